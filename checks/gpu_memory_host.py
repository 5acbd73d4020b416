"""Panel 6, host side: managed memory, room to pin memory, and /dev/shm."""

from dataclasses import dataclass

from gpudoctor.checks.per_gpu import Gpus, unread
from gpudoctor.formats.serving import Server
from gpudoctor.model import (
    Class,
    Evidence,
    Files,
    Impact,
    ModuleOption,
    MountSize,
    Needs,
    Reader,
    Reason,
    Side,
    Tool,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
)
from gpudoctor.probes.gpu import GPUS
from gpudoctor.probes.kernel import HOST_MEMORY
from gpudoctor.probes.pci import GPU_FUNCTIONS, PciFunction
from gpudoctor.probes.served import SERVERS_HERE
from gpudoctor.tables.gpu_limits import limit
from gpudoctor.tables.gpus import spec_of

_HMM = "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"
HMM_OFF: Reader[bool] = Reader(
    "uvm-disable-hmm",
    (Files("uvm-disable-hmm", (_HMM,)),),
    lambda e: _yes_no(e.get(_HMM)),
)


def _yes_no(text: str | Unknown) -> bool | Unknown:
    if isinstance(text, Unknown):
        return text
    return {"Y": True, "N": False}[text.strip()]


@check(
    "mem-uvm-hmm",
    "Heterogeneous memory management (HMM)",
    reads=(HMM_OFF, GPUS),
    why="Owners of several PCIe GPUs report NCCL hangs with P2P that uvm_disable_hmm=1 cured; "
    "NVIDIA does not document it. It matters where such hangs were seen, and little else.",
    source="NVIDIA/open-gpu-kernel-modules kernel-open/nvidia-uvm/uvm_hmm.c; nvidia-smi manual "
    "(addressing mode)",
    changes=(ModuleOption,),
)
def uvm_hmm(off: bool, gpus: Gpus) -> Verdict:
    """Judge HMM on hosts with several PCIe GPUs."""
    modes = sorted({gpu.addressing for gpu in gpus if isinstance(gpu.addressing, str)})
    seen = f"uvm_disable_hmm={'Y' if off else 'N'}, addressing mode {', '.join(modes) or 'unknown'}"
    if off:
        return good("HMM is off", observed=seen)
    if "HMM" not in modes or len(gpus) < 2 or any(_has_nvlink(gpu.name) for gpu in gpus):
        return info("HMM is permitted, and not a concern here", observed=seen)
    return issue(
        "HMM is active on several PCIe GPUs",
        Class.P1,
        Impact.LOW,
        observed=seen,
        expected="uvm_disable_hmm=Y if NCCL hangs were seen",
        needs=Needs.MODULE_RELOAD,
        remedy="Only if NCCL hangs: `options nvidia_uvm uvm_disable_hmm=1` in /etc/modprobe.d, "
        "stop what uses the GPUs, `modprobe -r nvidia_uvm && modprobe nvidia_uvm`.",
        changes=((_NO_HMM,),),
    )


_NO_HMM = ModuleOption(
    "nvidia_uvm",
    "uvm_disable_hmm",
    "1",
    ("nvidia_uvm",),
    risk="medium",
    caution="Only where NCCL hangs. Stop all that uses CUDA on the host first: the module cannot "
    "be unloaded before.",
)


def _has_nvlink(name: str | Unknown) -> bool:
    spec = None if isinstance(name, Unknown) else spec_of(name)
    return spec is not None and spec.nvlink > 0


@check(
    "mem-pinned-capacity",
    "Room for pinned host memory",
    reads=(HOST_MEMORY,),
    why="CUDA's pinned memory is bounded by the memory that the host has left, neither by "
    "RLIMIT_MEMLOCK nor by a container's memory.max.",
    source="NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/os-mlock.c; kernel.org "
    "filesystems/proc.rst (meminfo)",
)
def pinned_capacity(memory: dict[str, int]) -> Verdict:
    """Judge the share of host memory that is available."""
    available, total = memory["MemAvailable"], memory["MemTotal"]
    share = available / total
    seen = f"{available / 2**30:.0f} of {total / 2**30:.0f} GiB available ({share:.0%})"
    least, wanted = limit("mem-pinned-capacity", "bad"), limit("mem-pinned-capacity", "good")
    if share >= wanted:
        return good("The host has memory left to pin", observed=seen)
    if share >= least:
        return info("Little host memory is left", observed=seen, expected=f"{wanted:.0%} or more")
    return issue(
        "Hardly any host memory is left to pin",
        Class.P0,
        Impact.HIGH,
        observed=seen,
        expected=f"{wanted:.0%} or more",
        remedy="Find who holds it (`ps aux --sort=-rss | head`) and stop it or add memory.",
    )


@dataclass(frozen=True, slots=True)
class Shm:
    """/dev/shm: MiB in all and in use, and where that file system is mounted."""

    size: int
    used: int
    mount: str
    side: Side


def _df(key: str, side: Side) -> Tool:
    return Tool(key, "df", "df -Pk /dev/shm", cap=4096, side=side)


def _shm(evidence: Evidence) -> Shm | Unknown:
    """Read the last line of POSIX df: name, 1024-blocks, used, available, capacity, mount."""
    rows = [line.split() for line in evidence.text.splitlines()[1:] if line.strip()]
    if evidence.exit and not rows:
        return Unknown(Reason.NOT_PRESENT, "there is no /dev/shm")
    row = rows[-1]
    return Shm(int(row[1]) // 1024, int(row[2]) // 1024, row[5], evidence.side)


HOST_SHM: Reader[Shm] = Reader("shm-host", (_df("shm-host", Side.HOST),), _shm)
CONTAINER_SHM: Reader[Shm] = Reader("shm-container", (_df("shm-container", Side.CONTAINER),), _shm)
_NO_CONTAINER = {Reason.NOT_PRESENT, Reason.TOOL_MISSING, Reason.NOT_IN_RECORDING}


@check(
    "mem-shm-size",
    "Size of /dev/shm",
    reads=(GPU_FUNCTIONS,),
    optional=(CONTAINER_SHM, HOST_SHM, SERVERS_HERE, HOST_MEMORY),
    why="NCCL and the engines exchange data through files there and fail when they cannot be "
    "extended. NCCL 2.24 and newer ask CUDA for host memory first, so a small one bites less.",
    source="NCCL environment variables and troubleshooting (shared memory); Docker run reference "
    "(--shm-size)",
    scope="container",
    changes=(MountSize,),
)
def shm_size(
    functions: tuple[PciFunction, ...],
    container: Shm | Unknown,
    host: Shm | Unknown,
    servers: tuple[Server, ...] | Unknown,
    memory: dict[str, int] | Unknown,
) -> Verdict:
    """Judge the container's /dev/shm, or the host's where nothing serves in a container."""
    bare = isinstance(container, Unknown) and container.reason in _NO_CONTAINER
    shm = host if bare else container
    if isinstance(shm, Unknown):
        return unread("/dev/shm", shm)
    half = 0 if isinstance(memory, Unknown) else memory["MemTotal"] >> 21
    return _sized(shm, len(functions), 1 if bare else _init_of(servers), half)


def _init_of(servers: tuple[Server, ...] | Unknown) -> int:
    """Return the host's pid of the container's first process, 0 where it is not certain."""
    found = set() if isinstance(servers, Unknown) else {server.init for server in servers}
    return found.pop() if len(found) == 1 else 0


_LASTING_MIB = 16384
_NO_RESERVE = (
    "Files there take memory as they grow, counted against the container's limit; a server that "
    "already failed for want of room must be started again."
)


def _sized(shm: Shm, gpus: int, pid: int, most: int) -> Verdict:
    """Judge a size by the number of GPUs; `pid` sees the mount, `most` is half of the memory."""
    where = "the container" if shm.side is Side.CONTAINER else "the host"
    seen = f"{shm.size} MiB in {where}, {shm.used} MiB used"
    if shm.mount != "/dev/shm":
        seen += f" (no file system of its own: part of {shm.mount})"
    enough = min(limit("mem-shm-size", "good_mib"), limit("mem-shm-size", "good_mib_a_gpu") * gpus)
    if shm.size >= enough:
        return good("/dev/shm is large enough", observed=seen)
    tiny = shm.size <= limit("mem-shm-size", "tiny_mib") and gpus > 1
    inside = shm.side is Side.CONTAINER
    size = min(_LASTING_MIB, most)
    live = pid > 0 and shm.mount == "/dev/shm" and size >= enough
    return issue(
        "/dev/shm is small",
        Class.P0,
        Impact.HIGH if tiny else Impact.LOW,
        observed=seen,
        expected=f"{enough:.0f} MiB or more",
        needs=Needs.CONTAINER_RESTART if inside and not live else Needs.NOTHING,
        remedy="To last: start a Docker container with `--shm-size=16g` or `--ipc=host`; in LXC, "
        "`tmpfs /dev/shm tmpfs size=16g 0 0` in its /etc/fstab."
        if inside
        else "To last: size= of /dev/shm in /etc/fstab.",
        changes=((MountSize(pid, size << 20, caution=_NO_RESERVE),),) if live else (),
    )
