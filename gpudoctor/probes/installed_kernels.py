"""Kernels on disk: images, NVIDIA modules, pins, packages and what the package lists offer."""

import re
from dataclasses import dataclass

from gpudoctor.formats.apt_policy import Policy, parse_policy
from gpudoctor.formats.version import version_key
from gpudoctor.model import Evidence, Files, Listing, Reader, Reason, Tool, Unknown
from gpudoctor.probes.kernel import INSIDE_CONTAINER, vouched

_IMAGE = re.compile(r"/boot/vmlinuz-(.+)|/lib/modules/([^/]+)/vmlinuz")
_FOLDER = re.compile(r"/lib/modules/([^/]+)(?:/.*)?")
KERNELS_ON_DISK = Listing(
    "kernels-on-disk", ("/boot/vmlinuz-*", "/lib/modules/*", "/lib/modules/*/vmlinuz")
)


def _kernels(evidence: Evidence, inside: str | Unknown) -> tuple[str, ...] | Unknown:
    """Return installed kernels, oldest first: those with both an image and modules."""
    if refusal := vouched(inside, "installed kernels") or evidence.problem:
        return refusal
    paths = [path for path, line in evidence.files.items() if not isinstance(line, Unknown)]
    images = {next(filter(None, m.groups())) for m in map(_IMAGE.fullmatch, paths) if m}
    folders = {m.group(1) for m in map(_FOLDER.fullmatch, paths) if m}
    if not images & folders:
        return Unknown(Reason.NOT_PRESENT, "no kernel image with modules in /boot and /lib/modules")
    return tuple(sorted(images & folders, key=version_key))


INSTALLED_KERNELS: Reader[tuple[str, ...]] = Reader(
    "installed-kernels", (KERNELS_ON_DISK, INSIDE_CONTAINER), _kernels, tolerant=True
)

# DKMS, .run installers, RHEL's kmod and weak updates, Ubuntu's precompiled packages.
_PLACES = (
    "updates/dkms/nvidia.ko*",
    "updates/nvidia.ko*",
    "updates/*/nvidia.ko*",
    "extra/nvidia.ko*",
    "extra/*/nvidia.ko*",
    "extra/drivers/video/nvidia/nvidia.ko*",
    "weak-updates/*/nvidia.ko*",
    "kernel/drivers/video/nvidia.ko*",
    "kernel/drivers/video/nvidia/nvidia.ko*",
    "kernel/nvidia-*/nvidia.ko*",
    "kernel/nvidia-*/bits/nvidia.o",
    "kernel/drivers/char/drm/nvidia.ko*",
)
NVIDIA_ON_DISK = Listing(
    "nvidia-modules-on-disk", tuple(f"/lib/modules/*/{place}" for place in _PLACES)
)


def _with_module(evidence: Evidence) -> frozenset[str] | Unknown:
    """Return the kernels that have an nvidia module in one of the usual places."""
    if evidence.unread:
        return evidence.unread
    paths = [path for path, line in evidence.files.items() if not isinstance(line, Unknown)]
    return frozenset(m.group(1) for m in map(_FOLDER.fullmatch, paths) if m)


KERNELS_WITH_NVIDIA: Reader[frozenset[str]] = Reader(
    "kernels-with-nvidia", (NVIDIA_ON_DISK,), _with_module, tolerant=True
)

_PINS = (
    "/etc/kernel/next-boot-pin",
    "/etc/kernel/proxmox-boot-pin",
    "/etc/default/grub.d/proxmox-kernel-pin.cfg",
)
KERNEL_PINS = Files("kernel-pins", _PINS)
_RELEASE = re.compile(r"\d+\.\d+\.\d+-\d+-pve")


def _pinned(evidence: Evidence) -> str:
    """Return the release that Proxmox will boot by pin, "" for none."""
    texts = evidence.texts()
    found = (_RELEASE.search(texts.get(path, "")) for path in _PINS)
    return next((match.group() for match in found if match), "")


PINNED_KERNEL: Reader[str] = Reader("pinned-kernel", (KERNEL_PINS,), _pinned, tolerant=True)

_NAMES = "'proxmox-kernel-*' 'pve-kernel-*' 'linux-image-*'"
KERNEL_PACKAGES = Tool(
    "kernel-packages",
    "dpkg-query",
    "command -v dpkg-query >/dev/null || exit 127; "
    "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' "
    f"{_NAMES} pve-manager 2>/dev/null; exit 0",
)


def _packages(evidence: Evidence, inside: str | Unknown) -> dict[str, str] | Unknown:
    """Return the version of each installed package, by name."""
    if refusal := vouched(inside, "kernel packages") or evidence.problem:
        return refusal
    rows = (line.split() for line in evidence.text.splitlines())
    return {row[1]: row[2] for row in rows if len(row) == 3 and row[0] == "installed"}


KERNEL_VERSIONS: Reader[dict[str, str]] = Reader(
    "kernel-packages", (KERNEL_PACKAGES, INSIDE_CONTAINER), _packages, tolerant=True
)
PROXMOX: Reader[str] = Reader(
    "proxmox-release",
    (KERNEL_VERSIONS,),
    lambda packages: (
        packages.get("pve-manager") or Unknown(Reason.NOT_PRESENT, "this is not a Proxmox VE host")
    ),
)

# With empty cache paths apt-cache builds its cache in memory and rewrites nothing.
KERNEL_POLICY = Tool(
    "kernel-policy",
    "apt-cache",
    "command -v apt-cache >/dev/null || exit 127; d=/var/lib/apt/lists; "
    "t=$(stat -c %Y $d $d/partial 2>/dev/null | sort -n | tail -n 1); "
    'echo "indexes $(ls $d 2>/dev/null | grep -c _Packages) age $(($(date +%s) - ${t:-0}))"; '
    "s=$(uname -r | cut -d. -f1,2); "
    "apt-cache -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= policy "
    "\"proxmox-kernel-$s\" $(dpkg-query -W -f '${db:Status-Status} ${Package}\\n' "
    f"{_NAMES} 2>/dev/null | sed -n 's/^installed //p') 2>/dev/null; exit 0",
    limit=20.0,
    slow=True,
)


@dataclass(frozen=True, slots=True)
class Offers:
    """What the package lists offer, and their age in seconds."""

    policies: dict[str, Policy]
    age: int


_LISTS = re.compile(r"indexes (\d+) age (\d+)")


def _offers(evidence: Evidence, inside: str | Unknown) -> Offers | Unknown:
    if refusal := vouched(inside, "kernel packages") or evidence.problem:
        return refusal
    head, _, rest = evidence.text.partition("\n")
    match = _LISTS.fullmatch(head.strip())
    if match is None:
        return Unknown(Reason.PARSE_FAILED, "apt-cache policy: no heading line")
    if match.group(1) == "0":
        return Unknown(Reason.NOT_PRESENT, "no package lists on this host (apt update never ran)")
    return Offers(parse_policy(rest), int(match.group(2)))


OFFERS: Reader[Offers] = Reader(
    "kernel-offers", (KERNEL_POLICY, INSIDE_CONTAINER), _offers, tolerant=True
)
