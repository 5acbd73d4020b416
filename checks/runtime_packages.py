"""Panel 10, the server's Python packages: PyTorch, CUDA, the engine and its kernels."""

import re
from collections.abc import Mapping

from gpudoctor.checks.runtime_servers import per_server
from gpudoctor.formats.pip_metadata import Packages
from gpudoctor.formats.serving import Server
from gpudoctor.model import (
    Class,
    Impact,
    Needs,
    Reason,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    unknown,
)
from gpudoctor.probes.gpu import CUDA_OF_DRIVER
from gpudoctor.probes.pci import GPU_FUNCTIONS, PciFunction
from gpudoctor.probes.server_packages import CUDA_RUNTIME, PACKAGES
from gpudoctor.probes.serving import SERVERS
from gpudoctor.tables.drivers import CudaFit, cuda_fit, driver_for_cuda
from gpudoctor.tables.software import at_least, torch_floor

_RESTART = Needs.SERVER_RESTART


@check(
    "rt-torch-version",
    "PyTorch for these GPUs",
    reads=(SERVERS, PACKAGES, GPU_FUNCTIONS),
    why="The wheel must hold machine code for the GPU: without it the first kernel fails with `no "
    "kernel image is available`, although torch.cuda.is_available() says True. The version alone "
    "is not enough: 2.7 for CUDA 12.6 has no code for Blackwell, 2.7 for CUDA 12.8 has.",
    source="PyTorch release notes (architectures of the wheels); developer.nvidia.com/cuda-gpus",
    scope="server",
)
def torch_version(
    servers: tuple[Server, ...], packages: dict[int, Packages], gpus: tuple[PciFunction, ...]
) -> list[Verdict]:
    """Judge each server's torch against the floors of all GPUs."""
    devices = {gpu.device for gpu in gpus}
    return per_server(servers, lambda s: _torch(packages.get(s.pid), devices), lambda s: s)


def _torch(packages: Packages | None, devices: set[int]) -> Verdict:
    build = packages.torch if packages else None
    if build is None:
        return unknown(Reason.NOT_PRESENT, "no torch found in the server's package folders")
    observed = f"{build.version}, CUDA {build.cuda or 'none'}"
    if not build.cuda:
        return info("This torch is not built for CUDA", observed)
    floors = [floor for device in devices if (floor := torch_floor(device))]
    if len(floors) < len(devices):
        return info("What torch these GPUs need is not in the table", observed)
    for floor in floors:
        wanted = f"torch {floor.torch} for CUDA {floor.cuda} or newer"
        dropped = floor.cuda_below and at_least(build.cuda, floor.cuda_below)
        old = not (at_least(build.version, floor.torch) and at_least(build.cuda, floor.cuda))
        if (old or dropped) and not floor.firm:
            return info("This torch may have no code for the GPUs", observed, wanted)
        if old:
            return issue(
                "This torch has no machine code for the GPUs",
                Class.P0,
                Impact.HIGH,
                observed,
                wanted,
                needs=_RESTART,
                remedy=f"Install {wanted} in the server's environment and restart it.",
            )
    return good("This torch has machine code for the GPUs", observed)


@check(
    "rt-torch-cuda",
    "CUDA of PyTorch",
    reads=(CUDA_RUNTIME, CUDA_OF_DRIVER),
    why="A wheel for a newer CUDA major version than the driver's cannot start; a newer minor "
    "version works, without compiling its PTX.",
    source="CUDA compatibility guide; torch/version.py",
    scope="server",
)
def torch_cuda(runtime: str, driver: str) -> Verdict:
    """Compare torch's CUDA with the newest that the driver supports."""
    fit, observed = cuda_fit(driver, runtime), f"torch CUDA {runtime}, driver up to {driver}"
    if fit is CudaFit.FULL:
        return good("The driver supports torch's CUDA", observed)
    if fit is CudaFit.MINOR:
        return info("torch's CUDA is a newer minor version than the driver's: it works", observed)
    return issue(
        "torch is built for a newer CUDA major version than the driver supports",
        Class.P1,
        Impact.HIGH,
        observed,
        f"driver {driver_for_cuda(runtime) or 'for CUDA ' + runtime} or newer",
        needs=Needs.MODULE_RELOAD,
        remedy="Update the driver, or install a torch wheel for an older CUDA.",
    )


@check(
    "rt-engine-version",
    "Engine version",
    reads=(SERVERS, PACKAGES),
    why="Context, not judged: no release that must not be used is known. Support for RTX Blackwell "
    "(compute capability 12.0) landed piecemeal through 2026, so an engine from before that may "
    "fall back to slow kernels there: read its release notes.",
    source="dist-info of the engine; sgl-project/sglang issue 24047",
    scope="server",
)
def engine_version(servers: tuple[Server, ...], packages: dict[int, Packages]) -> list[Verdict]:
    """Show each engine's version."""
    return per_server(servers, lambda s: _engine(s, packages.get(s.pid)), lambda s: s)


def _engine(server: Server, packages: Packages | None) -> Verdict:
    name = {"SGLang": "sglang", "vLLM": "vllm", "TensorRT-LLM": "tensorrt-llm"}.get(server.engine)
    version = packages.version(name) if packages and name else None
    if packages is None or version is None or name is None:
        return unknown(Reason.NOT_PRESENT, f"no package version of {server.engine} found")
    origin = packages.origins.get(name, "")
    return info("Engine version", f"{server.engine} {version}" + (f" ({origin})" if origin else ""))


@check(
    "rt-kernel-pkgs",
    "Kernel packages",
    reads=(SERVERS, PACKAGES),
    why="flashinfer-python, -cubin and -jit-cache must be of one version, and NVIDIA's wheels of "
    "one CUDA major version (two of them write the same libraries): mixed kernels crash or give "
    "NaN.",
    source="SGLang's start-up version checks; dist-info of the packages",
    scope="server",
)
def kernel_packages(servers: tuple[Server, ...], packages: dict[int, Packages]) -> list[Verdict]:
    """Judge the kernel packages of each server."""
    return per_server(servers, lambda s: _kernels(s, packages.get(s.pid)), lambda s: s)


_KERNELS = re.compile(
    r"flashinfer.*|sgl-kernel|sglang-kernel|triton|nvidia-(cudnn|nccl)-cu\d+|nvidia-cutlass-dsl"
    r"|deep-gemm|flash-attn"
)
_SKIPPED = ("FLASHINFER_DISABLE_VERSION_CHECK", "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK")


def _kernels(server: Server, packages: Packages | None) -> Verdict:
    found = (
        {n: v for n, v in packages.versions.items() if _KERNELS.fullmatch(n)} if packages else {}
    )
    if not found:
        return unknown(Reason.NOT_PRESENT, "no kernel packages found in the server's folders")
    observed = ", ".join(f"{name} {'/'.join(v)}" for name, v in sorted(found.items()))
    flashinfer = {v.partition("+")[0] for n, vs in found.items() if "flashinfer" in n for v in vs}
    majors = {n for n in found if n.startswith("nvidia-nccl-cu")}
    env = {} if isinstance(server.env, Unknown) else server.env
    if len(flashinfer) > 1 and not _skips(env):
        return _mismatch("flashinfer packages of different versions", Impact.HIGH, observed)
    if len(majors) > 1:
        return _mismatch("NCCL wheels for two CUDA major versions", Impact.MEDIUM, observed)
    if _skips(env):
        return info("A variable switches the engine's version checks off", observed)
    return good("Kernel packages fit together", observed)


def _skips(env: Mapping[str, str]) -> bool:
    return any(env.get(name, "0").lower() not in {"", "0", "false"} for name in _SKIPPED)


def _mismatch(summary: str, impact: Impact, observed: str) -> Verdict:
    return issue(
        summary,
        Class.P0,
        impact,
        observed,
        "one version",
        needs=_RESTART,
        remedy="Install them anew at one version in the server's environment and restart it.",
    )
