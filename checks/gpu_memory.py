"""Panel 6: memory of the GPUs and of the host that feeds them."""

from gpudoctor.checks.gpu_memory_errors import retired_pages, row_remap
from gpudoctor.checks.gpu_memory_host import pinned_capacity, shm_size, uvm_hmm
from gpudoctor.checks.per_gpu import Gpus, unread
from gpudoctor.formats.nvidia_smi_gpu import Gpu, Process
from gpudoctor.model import (
    Class,
    Impact,
    Reason,
    Unknown,
    Verdict,
    check,
    good,
    issue,
    per_target,
    unknown,
)
from gpudoctor.probes.gpu import GPUS
from gpudoctor.probes.gpu_processes import GPU_PROCESSES, PROCESS_OWNERS, Processes
from gpudoctor.probes.kernel import INSIDE_CONTAINER, vouched
from gpudoctor.tables.gpu_limits import limit

# The checks of this panel that live in files of their own.
__all__ = ["pinned_capacity", "retired_pages", "row_remap", "shm_size", "uvm_hmm"]


@check(
    "mem-fb-total",
    "GPU memory size",
    reads=(GPUS,),
    why="A GPU with less memory than its equals limits all of them. That 97887 MiB is less than "
    "98304 is normal: ECC and firmware keep a part.",
    source="nvidia-smi manual (FB memory usage)",
    scope="gpu",
)
def fb_total(gpus: Gpus) -> list[Verdict]:
    """Compare the memory of GPUs of one product."""
    return per_target((gpu.bdf, _total(gpu, gpus)) for gpu in gpus)


def _total(gpu: Gpu, gpus: Gpus) -> Verdict:
    total = gpu.memory.total
    if isinstance(total, Unknown):
        return unread("GPU memory", total)
    equals = [g.memory.total for g in gpus if g.name == gpu.name]
    most = max(size for size in equals if not isinstance(size, Unknown))
    if total >= most * (1 - limit("mem-fb-total", "tolerance")):
        return good("GPU memory is whole", observed=f"{total} MiB", expected=f"{most} MiB")
    return issue(
        "A GPU has less memory than its equals",
        Class.FW,
        Impact.LOW,
        observed=f"{total} MiB",
        expected=f"{most} MiB",
        remedy="Compare ECC mode, MIG mode and VBIOS of the GPUs; if they are alike, ask the "
        "vendor.",
    )


@check(
    "mem-fb-foreign",
    "Who holds GPU memory",
    reads=(GPUS, GPU_PROCESSES),
    optional=(PROCESS_OWNERS, INSIDE_CONTAINER),
    why="Memory held by somebody else is missing from the KV cache, and graph capture fails when "
    "it runs out.",
    source="nvidia-smi manual (compute apps); kernel.org admin-guide/cgroup-v2.rst",
    scope="gpu",
)
def fb_foreign(
    gpus: Gpus, processes: Processes, owners: dict[int, str] | Unknown, inside: str | Unknown
) -> list[Verdict]:
    """Judge who holds memory of each GPU."""
    hidden = vouched(inside, "GPU processes of the host")
    if hidden:
        return [unread("owners of GPU memory", hidden)]
    known = {} if isinstance(owners, Unknown) else owners
    return per_target((gpu.bdf, _held(gpu, processes[gpu.bdf], known, inside)) for gpu in gpus)


def _held(
    gpu: Gpu,
    found: tuple[Process, ...] | Unknown,
    owners: dict[int, str],
    inside: str | Unknown,
) -> Verdict:
    if isinstance(found, Unknown):
        return unread("processes on the GPU", found)
    least = limit("mem-fb-foreign", "process_mib")
    holding = [p for p in found if isinstance(p.used, Unknown) or p.used > least]
    if holding:
        return _shared(holding, owners)
    used = gpu.memory.used
    if isinstance(used, Unknown):
        return unread("GPU memory in use", used)
    listed = sum(p.used for p in found if not isinstance(p.used, Unknown))
    if used - listed <= limit("mem-fb-foreign", "orphan_mib"):
        return good("Nobody holds much memory of the GPU", observed=f"{used} MiB used")
    if isinstance(inside, Unknown):
        return unread("whether the process list is the host's", inside)
    return _orphaned(gpu, f"{used} MiB used, processes account for {listed} MiB")


def _orphaned(gpu: Gpu, seen: str) -> Verdict:
    if isinstance(gpu.host_vgpu, str):
        return unknown(Reason.NOT_PRESENT, "a vGPU host does not list what its guests use")
    return issue(
        "GPU memory is in use and no process accounts for it",
        Class.P0,
        Impact.HIGH,
        observed=seen,
        expected="a process that accounts for it",
        remedy="`fuser -v /dev/nvidia*` as root on the host: look for a process in a hidden PID "
        "namespace or a leaked context, and stop it.",
    )


def _shared(holding: list[Process], owners: dict[int, str]) -> Verdict:
    holders, shares = {owners.get(p.pid) for p in holding}, _shares(holding, owners)
    if len(holding) == 1 or (len(holders) == 1 and None not in holders):
        return good("One owner holds the GPU's memory", observed=shares)
    if None in holders:
        return unknown(Reason.NO_PERMISSION, "the owners of some processes could not be read")
    if any(isinstance(process.used, Unknown) for process in holding):
        return unknown(Reason.NOT_PRESENT, "nvidia-smi does not tell how much each process uses")
    return issue(
        "More than one owner holds memory of the GPU",
        Class.P0,
        Impact.MEDIUM,
        observed=shares,
        expected="the audited server alone",
        remedy="Stop the other owner, or give it a GPU of its own.",
    )


def _shares(holding: list[Process], owners: dict[int, str]) -> str:
    shares: dict[str, int] = {}
    for process in holding:
        name = owners.get(process.pid, f"pid {process.pid}")
        shares[name] = shares.get(name, 0) + (process.used if isinstance(process.used, int) else 0)
    return ", ".join(f"{name} {mib} MiB" if mib else name for name, mib in shares.items())


@check(
    "mem-fragmentation",
    "Fragmentation of the engine's memory",
    reads=(),
    why="The engine's allocator keeps this to itself; nvidia-smi cannot show it. The engine's own "
    "metrics tell how full its KV cache is.",
    source="PyTorch CUDA semantics (memory management)",
    scope="server",
)
def fragmentation() -> Verdict:
    """Say that only the application can tell."""
    return unknown(Reason.NEEDS_APP_METRICS, "fragmentation shows in the engine's own metrics only")
