"""What nvidia-smi and the nvidia module tell: one guarded run of `-q -x` feeds five panels."""

import re
from dataclasses import dataclass

from gpudoctor.formats.listing import link_target
from gpudoctor.formats.nvidia_smi import SmiLog, parse_nvidia_smi
from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.model import Evidence, Files, Later, Listing, Reader, Reason, Tool, Unknown
from gpudoctor.probes.pci import GPU_FUNCTIONS, PciFunction
from gpudoctor.tables.drivers import Arch, arch_of
from gpudoctor.text import one_line

# Exit codes of the guard, outside what nvidia-smi itself uses.
_NO_NODE, _NO_MODULE, _HANGING, _AT_RISK = 120, 121, 122, 123

MEANINGS = (
    (
        _NO_MODULE,
        Unknown(Reason.NOT_PRESENT, "the nvidia kernel module is not loaded, so no GPU can answer"),
    ),
    (
        _NO_NODE,
        Unknown(
            Reason.NOT_PRESENT,
            "there is no /dev/nvidiactl, and nvidia-smi would make it: not started; "
            "run `nvidia-smi` once by hand, or nvidia-persistenced",
        ),
    ),
    (
        _HANGING,
        Unknown(
            Reason.GPU_AT_RISK,
            "an earlier nvidia-smi hangs in the kernel (state D): not started again; "
            "run `nvidia-smi -q -x` by hand if you accept the risk",
        ),
    ),
    (
        _AT_RISK,
        Unknown(
            Reason.GPU_AT_RISK,
            "the kernel log of this boot shows Xid 79, 119 or 120, or a GPU fallen off the bus: "
            "nvidia-smi was not started; run it by hand if you accept that it may hang",
        ),
    ),
)

# nvidia-smi can hang on a sick GPU: it runs only with the module loaded, none hanging, and no sign
# of a lost GPU in the log; and with its device node there, since as root it would make the nodes
# itself. A plain user often cannot read the log; the other conditions still hold then.
_GUARD = (
    f"[ -d /sys/module/nvidia ] || exit {_NO_MODULE}; [ -e /dev/nvidiactl ] || exit {_NO_NODE}; "
    "for s in /proc/[0-9]*/stat; do { read -r _ c t _ <$s; } 2>/dev/null || continue; "
    f'[ "$c $t" = "(nvidia-smi) D" ] && exit {_HANGING}; done; '
    "{ journalctl -k -b -q --no-pager; dmesg; } 2>/dev/null "
    "| grep -Eq 'Xid \\([^)]*\\): (79|119|120),|fallen off the bus' "
    f"&& exit {_AT_RISK}; "
)


def guarded(command: str) -> str:
    """Return sh text that runs an nvidia-smi command only where that endangers nothing."""
    return f"{_GUARD}exec {command}"


def nvidia_smi(key: str, arguments: str, limit: float = 20.0) -> Tool:
    """Return a guarded, gentle nvidia-smi probe."""
    return Tool(
        key,
        "nvidia-smi",
        guarded(f"nvidia-smi {arguments}"),
        limit=limit,
        cap=8 << 20,
        gentle=True,
        slow=True,
        meanings=MEANINGS,
    )


NVIDIA_SMI_XML = nvidia_smi("nvidia-smi-xml", "-q -x")


def _first_ended(evidence: Evidence) -> bool | Unknown:
    """Return that no nvidia-smi hangs or was refused before this one, else why one did or was."""
    problem = evidence.problem
    harmless = problem is None or problem.reason in {Reason.NOT_IN_RECORDING, Reason.TOOL_MISSING}
    return True if harmless or problem is None else problem


_FIRST_ENDED: Reader[bool] = Reader(
    "nvidia-smi-ended", (NVIDIA_SMI_XML,), _first_ended, tolerant=True
)


def another_nvidia_smi(key: str, arguments: str) -> Later:
    """Return a probe that starts only after the first has ended: a GPU that hangs hangs one."""
    tool = nvidia_smi(key, arguments)
    return Later(key, (_FIRST_ENDED,), lambda _: tool)


Functions = tuple[PciFunction, ...] | Unknown

# What nvidia-smi prints instead of its XML, and what it means.
_FAILURES = (
    ("couldn't communicate with the NVIDIA driver", Reason.NOT_PRESENT),
    ("No devices were found", Reason.NOT_PRESENT),
    ("Driver/library version mismatch", Reason.NOT_PRESENT),
    ("GPU is lost", Reason.GPU_AT_RISK),
    ("Unknown Error", Reason.GPU_AT_RISK),
    ("GPU requires reset", Reason.GPU_AT_RISK),
    ("Insufficient Permissions", Reason.NO_PERMISSION),
)


def _no_gpu(problem: Unknown, functions: Functions) -> Unknown:
    """Say why no GPU answers, with what the PCI bus shows."""
    if problem.reason not in {Reason.NOT_PRESENT, Reason.TOOL_MISSING}:
        return problem
    if isinstance(functions, Unknown):
        return functions if functions.reason is Reason.NOT_PRESENT else problem
    return Unknown(
        problem.reason, f"{len(functions)} NVIDIA GPU(s) on the PCI bus, but {problem.detail}"
    )


def _smi(evidence: Evidence, functions: Functions) -> SmiLog | Unknown:
    """Parse the report: an exit code above 0 may still come with a whole one."""
    if "<nvidia_smi_log>" in evidence.text and _whole(evidence):
        return parse_nvidia_smi(evidence.text)
    if evidence.problem is not None:
        return _no_gpu(evidence.problem, functions)
    said = f"{evidence.text}\n{evidence.stderr}"
    for words, reason in _FAILURES:
        if words in said:
            return _no_gpu(Unknown(reason, f"nvidia-smi says: {one_line(said)}"), functions)
    raise ValueError(one_line(said, 120) or f"nvidia-smi said nothing (exit {evidence.exit})")


def _whole(evidence: Evidence) -> bool:
    return evidence.problem is None or "</nvidia_smi_log>" in evidence.text


SMI: Reader[SmiLog] = Reader("nvidia-smi", (NVIDIA_SMI_XML, GPU_FUNCTIONS), _smi, tolerant=True)


def _gpus(log: SmiLog, functions: Functions) -> tuple[Gpu, ...] | Unknown:
    nothing = Unknown(Reason.NOT_PRESENT, "nvidia-smi lists no GPU")
    return log.gpus or _no_gpu(nothing, functions)


def _gpus_of(log: SmiLog | Unknown, functions: Functions) -> tuple[Gpu, ...] | Unknown:
    return log if isinstance(log, Unknown) else _gpus(log, functions)


# Every GPU that nvidia-smi lists, in its order.
GPUS: Reader[tuple[Gpu, ...]] = Reader("gpus", (SMI, GPU_FUNCTIONS), _gpus_of, tolerant=True)

CUDA_OF_DRIVER: Reader[str] = Reader("cuda-of-driver", (SMI,), lambda log: log.cuda_version)

_VERSION = re.compile(r"\d{3,}\.\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class NvidiaModule:
    """The loaded kernel module: its version, and whether it is the open flavour."""

    version: str
    is_open: bool | Unknown


NVIDIA_MODULE_FILES = Files(
    "nvidia-module-version", ("/proc/driver/nvidia/version", "/sys/module/nvidia/version")
)


def _module(evidence: Evidence, functions: Functions) -> NvidiaModule | Unknown:
    """Take the NVRM line, else the version alone: modinfo would tell the file, not the module."""
    if evidence.problem is not None:
        absent = Unknown(evidence.problem.reason, "the nvidia kernel module is not loaded")
        missing = evidence.problem.reason is Reason.NOT_PRESENT
        return _no_gpu(absent if missing else evidence.problem, functions)
    texts = evidence.texts()
    for line in texts.get("/proc/driver/nvidia/version", "").splitlines():
        match = _VERSION.search(line.partition("NVRM version:")[2])
        if match:
            return NvidiaModule(match.group(0), "Open Kernel Module" in line)
    match = _VERSION.search(texts.get("/sys/module/nvidia/version", ""))
    if match is None:
        raise ValueError("no version in /proc/driver/nvidia/version")
    flavour = Unknown(Reason.NOT_PRESENT, "/proc/driver/nvidia/version does not tell the flavour")
    return NvidiaModule(match.group(0), flavour)


NVIDIA_MODULE: Reader[NvidiaModule] = Reader(
    "nvidia-module", (NVIDIA_MODULE_FILES, GPU_FUNCTIONS), _module, tolerant=True
)

PCI_DRIVER_LINKS = Listing("pci-driver-links", ("/sys/bus/pci/devices/*/driver",))


def _drivers(links: Evidence, functions: tuple[PciFunction, ...]) -> dict[str, str]:
    """Return the bound driver of each GPU by BDF, an empty string where none is bound."""
    bound = {
        path.split("/")[-2]: link_target(line).rsplit("/", 1)[-1]
        for path, line in links.files.items()
        if not isinstance(line, Unknown)
    }
    drivers = {function.bdf: bound.get(function.bdf, "") for function in functions}
    untold = [bdf for bdf, name in drivers.items() if bdf in bound and not name]
    if untold:
        raise ValueError(f"{untold[0]} has a driver, and where its link leads is untold")
    return drivers


GPU_DRIVERS: Reader[dict[str, str]] = Reader(
    "gpu-drivers", (PCI_DRIVER_LINKS, GPU_FUNCTIONS), _drivers
)


# The architectures of the GPUs that the host's driver serves, by BDF; unknown ones are left out.
def _archs(
    functions: Functions, drivers: dict[str, str] | Unknown, gpus: tuple[Gpu, ...] | Unknown
) -> dict[str, Arch] | Unknown:
    """Take device ids from the bus, without GPUs given to a VM, else from nvidia-smi."""
    if isinstance(functions, Unknown):
        if isinstance(gpus, Unknown):
            return functions
        devices = {gpu.bdf: gpu.device for gpu in gpus}
    else:
        bound = {} if isinstance(drivers, Unknown) else drivers
        devices = {f.bdf: f.device for f in functions if bound.get(f.bdf) != "vfio-pci"}
    named = {} if isinstance(gpus, Unknown) else {gpu.bdf: gpu.architecture for gpu in gpus}
    found = {}
    for bdf, device in devices.items():
        arch = None if isinstance(device, Unknown) else arch_of(device)
        if arch and _agrees(arch, named.get(bdf)):
            found[bdf] = arch
    return found


def _agrees(arch: Arch, named: str | Unknown | None) -> bool:
    """Return whether nvidia-smi does not name another architecture."""
    return not isinstance(named, str) or named == arch.architecture


GPU_ARCHS: Reader[dict[str, Arch]] = Reader(
    "gpu-archs", (GPU_FUNCTIONS, GPU_DRIVERS, GPUS), _archs, tolerant=True
)
