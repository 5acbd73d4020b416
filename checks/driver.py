"""Panel 3: the NVIDIA driver: its version, kernel module and firmware, and all about it."""

from gpudoctor.checks.driver_boards import nouveau, uniformity
from gpudoctor.checks.driver_errors import ecc_errors, recovery_action
from gpudoctor.checks.driver_modes import compute_mode, ecc_mode, mig_mode, persistence_mode
from gpudoctor.checks.driver_xid import xid
from gpudoctor.checks.per_gpu import Gpus, each, unread
from gpudoctor.formats.nvidia_smi import SmiLog
from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.model import (
    Class,
    Impact,
    Needs,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
)
from gpudoctor.probes.gpu import (
    CUDA_OF_DRIVER,
    GPU_ARCHS,
    GPUS,
    NVIDIA_MODULE,
    SMI,
    NvidiaModule,
)
from gpudoctor.probes.server_packages import CUDA_RUNTIME
from gpudoctor.tables.drivers import (
    Arch,
    CudaFit,
    as_of,
    branch_of,
    branches,
    cuda_fit,
    driver_for_cuda,
    has_ended,
    is_old,
    older,
    version_of,
)

# The checks of this panel that live in files of their own.
__all__ = [
    "compute_mode",
    "ecc_errors",
    "ecc_mode",
    "mig_mode",
    "nouveau",
    "persistence_mode",
    "recovery_action",
    "uniformity",
    "xid",
]

Archs = dict[str, Arch] | Unknown


@check(
    "drv-version",
    "Driver version",
    reads=(),
    optional=(NVIDIA_MODULE, SMI, GPU_ARCHS),
    why="A driver older than the GPU cannot run it; newer ones bring fixes. Within a branch the "
    "speed rarely changes.",
    source="CUDA Toolkit release notes; NVIDIA data-centre driver support matrix; "
    "NVIDIA/open-gpu-kernel-modules README",
)
def version(module: NvidiaModule | Unknown, smi: SmiLog | Unknown, archs: Archs) -> Verdict:
    """Judge the loaded module's version, else the one that nvidia-smi names."""
    loaded = _version(module, smi)
    if isinstance(loaded, Unknown):
        return unread("driver version", loaded)
    if isinstance(smi, Unknown) and "library version mismatch" in smi.detail:
        return _half_updated(loaded, smi)
    wrong = _unfit(loaded, archs)
    if wrong is not None:
        return wrong
    branch = branch_of(loaded)
    seen = f"{loaded} (compared with {as_of()})"
    if branch is None or is_old(branch) or has_ended(branch):
        return issue(
            "The driver's branch is old or out of support",
            Class.P2,
            Impact.LOW,
            observed=seen,
            expected=_supported(archs),
            needs=Needs.MODULE_RELOAD,
            remedy="Install a newer driver at the next window, with the GPUs idle.",
        )
    return good("The driver is current enough for these GPUs", observed=loaded)


def _half_updated(loaded: str, smi: Unknown) -> Verdict:
    return issue(
        "The loaded kernel module and the driver's libraries are of different versions",
        Class.P1,
        Impact.HIGH,
        observed=f"module {loaded}; {smi.detail}",
        expected="one version",
        needs=Needs.MODULE_RELOAD,
        why="An update replaced the files while the old module stayed loaded: NVML and new CUDA "
        "processes refuse to start. Servers that run already keep working until they restart.",
        remedy="See that the update is whole: `modinfo -F version nvidia` must name the libraries' "
        "version. Then stop what uses the GPUs and reload the module (`rmmod nvidia_uvm nvidia_drm "
        "nvidia_modeset nvidia`, then `modprobe nvidia_uvm`, which loads both), or reboot.",
    )


def _supported(archs: Archs) -> str:
    """Name the branch to go to: the last one of the oldest architecture, else the newest."""
    known = () if isinstance(archs, Unknown) else archs.values()
    last = min((arch.last_branch for arch in known if arch.last_branch), default=0)
    return (
        f"branch {last}, the last one for these GPUs"
        if last
        else (f"a branch in support, such as {branches()[-1].number}")
    )


def _version(module: NvidiaModule | Unknown, smi: SmiLog | Unknown) -> str | Unknown:
    if not isinstance(module, Unknown):
        return module.version
    return module if isinstance(smi, Unknown) else smi.driver_version


def _unfit(loaded: str, archs: Archs) -> Verdict | None:
    """Return the issue of a driver that does not know one of the GPUs' architectures."""
    for bdf, arch in () if isinstance(archs, Unknown) else archs.items():
        if older(loaded, arch.min_driver):
            wanted = f"{arch.min_driver} or newer for {arch.name}"
        elif arch.last_branch and version_of(loaded)[0] > arch.last_branch:
            wanted = f"branch {arch.last_branch}, the last one for {arch.name}"
        else:
            continue
        return issue(
            "The driver does not support a GPU of this host",
            Class.P1,
            Impact.HIGH,
            observed=f"{loaded}; {bdf} is {arch.name}",
            expected=wanted,
            needs=Needs.MODULE_RELOAD,
            remedy=f"Install driver {wanted}.",
        )
    return None


@check(
    "drv-kernel-module-flavor",
    "Open or proprietary kernel module",
    reads=(NVIDIA_MODULE, GPU_ARCHS),
    why="Blackwell and Grace Hopper run with the open kernel module only; Volta and older with the "
    "proprietary one only.",
    source="NVIDIA driver installation guide; NVIDIA/open-gpu-kernel-modules README",
)
def flavour(module: NvidiaModule, archs: dict[str, Arch]) -> Verdict:
    """Judge the loaded module's flavour against what the GPUs need."""
    if isinstance(module.is_open, Unknown):
        return unread("kernel module flavour", module.is_open)
    have = "open" if module.is_open else "proprietary"
    for bdf, arch in archs.items():
        if arch.flavour not in {have, "either"}:
            return issue(
                "The loaded kernel module cannot run a GPU of this host",
                Class.P1,
                Impact.HIGH,
                observed=f"{have} module {module.version}; {bdf} is {arch.name}",
                expected=f"the {arch.flavour} module",
                needs=Needs.MODULE_RELOAD,
                remedy=f"Install the same driver version with its {arch.flavour} kernel module.",
            )
    needed = {arch.flavour for arch in archs.values()}
    if have == "proprietary" and needed != {"proprietary"}:
        return info("The proprietary kernel module is loaded", observed=have, expected="open")
    return good(f"The {have} kernel module suits these GPUs", observed=have)


@check(
    "drv-gsp-firmware",
    "GSP firmware",
    reads=(GPUS,),
    optional=(NVIDIA_MODULE,),
    why="The open kernel module runs the GPU through its GSP firmware and cannot do without. "
    "Switching the firmware off works with the proprietary module only.",
    source="NVIDIA/open-gpu-kernel-modules README; NVIDIA driver README (GSP firmware)",
    scope="gpu",
)
def gsp_firmware(gpus: Gpus, module: NvidiaModule | Unknown) -> list[Verdict]:
    """Judge the firmware version of each GPU."""
    return each(gpus, lambda gpu: _gsp(gpu, module))


def _gsp(gpu: Gpu, module: NvidiaModule | Unknown) -> Verdict:
    firmware = gpu.gsp_firmware
    is_open = module if isinstance(module, Unknown) else module.is_open
    if not isinstance(firmware, Unknown):
        if isinstance(module, Unknown) or firmware == module.version:
            return good("The GSP firmware runs", observed=firmware)
        return info("The GSP firmware is of another version than the module", observed=firmware)
    if isinstance(is_open, Unknown) or "N/A" not in firmware.detail:
        return unread("GSP firmware", firmware)
    if not is_open:
        return info("No GSP firmware runs, as the proprietary module allows", observed="N/A")
    return issue(
        "No GSP firmware runs under the open kernel module",
        Class.P1,
        Impact.HIGH,
        observed="N/A",
        expected="the driver's version",
        needs=Needs.MODULE_RELOAD,
        remedy="Install the driver's firmware files, remove NVreg_EnableGpuFirmware=0 and reload "
        "the module.",
    )


@check(
    "drv-min-for-cuda",
    "Newest CUDA of the driver",
    reads=(CUDA_OF_DRIVER,),
    optional=(CUDA_RUNTIME,),
    why="nvidia-smi's CUDA Version is the newest that the driver supports, not an installed "
    "toolkit; a missing nvcc is no fault. A runtime of a newer major version does not start.",
    source="CUDA compatibility guide; CUDA Toolkit release notes",
)
def min_for_cuda(driver: str, runtime: str | Unknown) -> Verdict:
    """Compare the driver's newest CUDA with the CUDA that the engine's torch was built for."""
    if isinstance(runtime, Unknown):
        return info(
            "The driver supports CUDA up to this version; the engine's CUDA is not known",
            observed=driver,
        )
    fit, seen = cuda_fit(driver, runtime), f"driver {driver}, runtime {runtime}"
    if fit is CudaFit.FULL:
        return good("The driver supports the engine's CUDA", observed=seen)
    if fit is CudaFit.MINOR:
        return info(
            "The engine's CUDA is a newer minor version: it works, but PTX of the newer minor "
            "does not compile",
            observed=seen,
        )
    wanted = driver_for_cuda(runtime)
    return issue(
        "The engine's CUDA is of a newer major version than the driver supports",
        Class.P1,
        Impact.HIGH,
        observed=seen,
        expected=f"driver {wanted or 'for CUDA ' + runtime} or newer",
        needs=Needs.MODULE_RELOAD,
        remedy="Update the driver, or install the engine's wheels for an older CUDA. Forward "
        "compatibility packages work on data-centre and RTX PRO GPUs only.",
    )
