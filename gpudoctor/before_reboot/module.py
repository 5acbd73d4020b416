"""Whether the NVIDIA module exists for the kernel that boots, and in which version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.before_reboot.coming import Coming, candidates
from gpudoctor.before_reboot.read import Read, why
from gpudoctor.model import Finding, Reason, Status, Unknown
from gpudoctor.model.before_reboot import Line, Outlook, Topic
from gpudoctor.probes.container_gpu import CONTAINER_LIBRARIES
from gpudoctor.probes.gpu import NVIDIA_MODULE
from gpudoctor.probes.installed_kernels import KERNEL_VERSIONS, KERNELS_WITH_NVIDIA
from gpudoctor.probes.pci import GPU_FUNCTIONS
from gpudoctor.probes.reboot import DKMS, MODULE_VERSIONS
from gpudoctor.shell import quote

_TOPIC = Topic.MODULE
_CHECK = "kver-gpu-driver-build"


@dataclass(frozen=True, slots=True)
class _Modules:
    """What is on disk: kernels with a module, and the version that modprobe would find."""

    built: frozenset[str]
    versions: Mapping[str, str]
    asked: bool

    def has(self, kernel: str) -> bool:
        return kernel in self.built or kernel in self.versions

    @property
    def seen(self) -> str:
        told = [f"{k} {self.versions.get(k, '')}".strip() for k in sorted(self.all)]
        return f"nvidia modules on disk: {', '.join(told) or 'none'}"

    @property
    def all(self) -> frozenset[str]:
        return self.built | frozenset(self.versions)


def module_lines(now: Coming, read: Read, findings: Sequence[Finding]) -> list[Line]:
    """Say whether the kernel that boots has its NVIDIA module, and which version comes."""
    gpus = read(GPU_FUNCTIONS)
    if isinstance(gpus, Unknown):
        absent = gpus.reason is Reason.NOT_PRESENT
        said = "No NVIDIA GPU is on the PCI bus: no module is needed"
        return [Line(_TOPIC, Outlook.READY, said) if absent else _unread(gpus)]
    disk = _on_disk(read)
    if isinstance(disk, Unknown):
        return [_unread(disk)]
    kernels = candidates(now, read)
    if not kernels:
        return [_unread(now.unknown or Unknown(Reason.NOT_PRESENT, "no kernel is known"))]
    lines = [_exists(now, kernels, disk, read), *_versions(kernels, disk, read)]
    return lines + _as_checked(lines[0], findings)


def _unread(value: Unknown) -> Line:
    said = f"Whether the NVIDIA module exists for the next kernel cannot be told: {why(value)}"
    return Line(_TOPIC, Outlook.UNKNOWN, said, reason=value.reason)


def _on_disk(read: Read) -> _Modules | Unknown:
    built, versions = read(KERNELS_WITH_NVIDIA), read(MODULE_VERSIONS)
    if isinstance(built, Unknown) and isinstance(versions, Unknown):
        return built
    asked = not isinstance(versions, Unknown)
    known = {} if isinstance(versions, Unknown) else versions
    found = _Modules(frozenset() if isinstance(built, Unknown) else built, known, asked)
    if not found.all:
        return Unknown(Reason.NOT_PRESENT, "no nvidia module lies in the usual places on disk")
    return found


def _exists(now: Coming, kernels: Sequence[str], disk: _Modules, read: Read) -> Line:
    lacking = [kernel for kernel in kernels if not disk.has(kernel)]
    lost = [
        k for k in kernels if disk.asked and disk.versions and k in disk.built - {*disk.versions}
    ]
    if lacking:
        return _lacking(now, lacking, disk, read)
    if lost:
        said = f"The NVIDIA module for {lost[0]} is on disk, but modprobe does not find it there"
        todo = "Index the modules of that kernel"
        return Line(
            _TOPIC,
            Outlook.LOOK,
            said,
            todo,
            (f"depmod {quote(lost[0])}",),
            disk.seen,
            bool(now.release),
        )
    if now.release:
        said = f"The NVIDIA module exists for {now.release}, which boots"
    else:
        said = f"Whichever of these boots, it has an NVIDIA module: {', '.join(kernels)}"
    return Line(_TOPIC, Outlook.READY, said, read=disk.seen)


def _lacking(now: Coming, lacking: Sequence[str], disk: _Modules, read: Read) -> Line:
    names = ", ".join(lacking)
    if now.release:
        said = f"There is no NVIDIA module for {names}, which boots: the GPUs would be gone"
    else:
        said = f"There is no NVIDIA module for {names}: if that boots, the GPUs are gone"
    todo, commands = _build(lacking[-1], read)
    stops = bool(now.release) or _newest(lacking, candidates(now, read))
    return Line(_TOPIC, Outlook.LOOK, said, todo, commands, disk.seen, stops)


def _newest(lacking: Sequence[str], kernels: Sequence[str]) -> bool:
    return bool(kernels) and kernels[-1] in lacking


def _build(kernel: str, read: Read) -> tuple[str, tuple[str, ...]]:
    """Return how to have the module built for a kernel, with this host's own tools."""
    dkms, packages = read(DKMS), read(KERNEL_VERSIONS)
    name = quote(kernel)
    kind = "proxmox" if kernel.endswith("-pve") else "linux"
    headers = (
        ()
        if isinstance(packages, Unknown)
        else (f"apt install {quote(f'{kind}-headers-{kernel}')}",)
    )
    if isinstance(dkms, Unknown) or not dkms.added:
        return (
            f"Install the headers of {kernel}, then build the driver for it by the way it was "
            "installed; in DKMS it is not known here. Do not reboot before",
            headers,
        )
    return (
        "Install the kernel's headers, build the module, and do not reboot before it is built",
        (*headers, f"dkms autoinstall -k {name}", f"modinfo -k {name} -F version nvidia"),
    )


def _versions(kernels: Sequence[str], disk: _Modules, read: Read) -> list[Line]:
    """Say where another version comes than is loaded, or than the container's libraries are of."""
    loaded, dkms, libraries = read(NVIDIA_MODULE), read(DKMS), read(CONTAINER_LIBRARIES)
    by_dkms = {} if isinstance(dkms, Unknown) else dkms.installed
    of = {k: disk.versions.get(k) or by_dkms.get(k, "") for k in kernels}
    if isinstance(loaded, Unknown):
        return []
    others = {k: v for k, v in of.items() if v and v != loaded.version}
    if not others:
        return []
    kernel, version = list(others.items())[-1]
    said = f"Another driver version is on disk for {kernel}, {version}, than runs, {loaded.version}"
    todo = f"The libraries of the host and of every container must be of {version} then"
    if not isinstance(libraries, Unknown):
        theirs = sorted({v for found in libraries.used.values() for v in found})
        if theirs and version not in theirs:
            said += f"; the container's libraries are of {', '.join(theirs)}, and CUDA fails there"
    seen = f"{disk.seen}; loaded {loaded.version}"
    return [Line(_TOPIC, Outlook.LOOK, said, todo, read=seen)]


def _as_checked(first: Line, findings: Sequence[Finding]) -> list[Line]:
    """Repeat what the audit's own check says, where this page is milder than it."""
    found = next((f for f in findings if f.id == _CHECK and f.status is Status.ISSUE), None)
    if found is None or first.outlook is Outlook.LOOK:
        return []
    verdict = found.verdict
    said = f"{verdict.summary}, by the newest kernel's name ({_CHECK}): {verdict.observed}"
    return [Line(_TOPIC, Outlook.LOOK, said, verdict.remedy, read=verdict.observed)]
