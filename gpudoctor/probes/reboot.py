"""What the next boot will be made of; asked only where somebody wants to reboot.

Nothing here runs dkms: what it would say lies in its tree, and listing that is sure to only read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpudoctor.formats.boot_entries import BootEntry, efi_text, parse_entry_file
from gpudoctor.formats.grub import Menu, parse_grubenv, parse_menu, parse_settings
from gpudoctor.formats.listing import link_target
from gpudoctor.model import Evidence, Files, Listing, Reader, Reason, Tool, Unknown
from gpudoctor.probes.installed_kernels import NVIDIA_ON_DISK
from gpudoctor.text import one_line

_GUID = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
_EFI = "/sys/firmware/efi/efivars/Loader"
_VARIABLES = ("Info", "EntryDefault", "EntryOneShot")
LOADER_VARIABLES = Files(
    "reboot-loader-variables", tuple(f"{_EFI}{name}-{_GUID}" for name in _VARIABLES)
)


def _variables(evidence: Evidence) -> dict[str, str] | Unknown:
    """Return what systemd-boot left in EFI variables, by name without its Loader."""
    if evidence.unread:
        return evidence.unread
    raw = {name: evidence.files.get(f"{_EFI}{name}-{_GUID}") for name in _VARIABLES}
    return {name: efi_text(data) for name, data in raw.items() if isinstance(data, bytes)}


EFI_LOADER: Reader[dict[str, str]] = Reader(
    "reboot-loader-variables", (LOADER_VARIABLES,), _variables, tolerant=True
)

# grub.cfg may hold password hashes, so only the lines of its menu leave the host.
GRUB_MENU = Tool(
    "reboot-grub-menu",
    "awk",
    "cat /boot/grub/grub.cfg /boot/grub/custom.cfg /boot/grub2/grub.cfg /boot/grub2/custom.cfg "
    "/boot/efi/EFI/*/grub.cfg | awk '/^[ \\t]*(menuentry|submenu|function|linux|initrd|blscfg"
    "|set[ \\t]+default=|if .*default=|[}][ \\t]*$)/{print substr($0,1,2048)}'",
)


def _menu(evidence: Evidence) -> Menu | Unknown:
    if evidence.problem:
        return evidence.problem
    if evidence.text.strip():
        return parse_menu(evidence.text)
    if "ermission denied" in evidence.stderr:
        return Unknown(Reason.NO_PERMISSION, "grub.cfg is for root to read")
    return Unknown(Reason.NOT_PRESENT, "there is no grub.cfg in the usual places")


MENU: Reader[Menu] = Reader("reboot-grub-menu", (GRUB_MENU,), _menu, tolerant=True)

_ENV = ("/boot/grub/grubenv", "/boot/grub2/grubenv", "/boot/efi/EFI/*/grubenv")
GRUB_ENV = Files("reboot-grubenv", _ENV)


def _grubenv(evidence: Evidence) -> dict[str, str] | Unknown:
    """Return GRUB's kept variables; none where it keeps no such file."""
    if evidence.unread:
        return evidence.unread
    return {k: v for text in evidence.texts().values() for k, v in parse_grubenv(text).items()}


GRUBENV: Reader[dict[str, str]] = Reader("reboot-grubenv", (GRUB_ENV,), _grubenv, tolerant=True)

_SETTINGS = ("/etc/default/grub", "/etc/default/grub.d/*.cfg")
GRUB_SETTINGS_FILES = Files("reboot-grub-settings", _SETTINGS, cap=65536)


def _settings(evidence: Evidence) -> dict[str, str | None]:
    """Return GRUB's settings in the order in which update-grub reads their files."""
    texts = evidence.texts()
    return parse_settings([texts[path] for path in sorted(texts, key=lambda p: (p.count("/"), p))])


GRUB_SETTINGS: Reader[dict[str, str | None]] = Reader(
    "reboot-grub-settings", (GRUB_SETTINGS_FILES,), _settings
)

_ESPS = ("/boot", "/efi", "/boot/efi")
LOADER_FILES = Files(
    "reboot-loader-files",
    (
        *(f"{esp}/loader/{name}" for esp in _ESPS for name in ("loader.conf", "entries/*.conf")),
        "/etc/kernel/cmdline",
        "/etc/kernel/proxmox-boot-uuids",
    ),
)


@dataclass(frozen=True, slots=True)
class LoaderFiles:
    """The loader's own configuration: `default` of loader.conf, entries by id, /etc/kernel."""

    entries: tuple[BootEntry, ...]
    default: str
    cmdline: str
    proxmox: bool


def _loader_files(evidence: Evidence) -> LoaderFiles | Unknown:
    if evidence.unread:
        return evidence.unread
    texts = evidence.texts()
    named = {p: t for p, t in texts.items() if "/loader/entries/" in p}
    entries = tuple(parse_entry_file(p.rsplit("/", 1)[-1], t) for p, t in sorted(named.items()))
    confs = " \n".join(text for path, text in texts.items() if path.endswith("/loader.conf"))
    default = re.findall(r"^default[ \t]+(\S+)", confs, re.MULTILINE)
    line = texts.get("/etc/kernel/cmdline", "").partition("\n")[0]
    return LoaderFiles(
        entries, default[-1] if default else "", line, "/etc/kernel/proxmox-boot-uuids" in texts
    )


LOADER: Reader[LoaderFiles] = Reader(
    "reboot-loader-files", (LOADER_FILES,), _loader_files, tolerant=True
)

# Seconds of content and of inode: packages keep their files' own dates, never the inode's.
_DATED = (
    "/boot/initrd.img-* /boot/initramfs-*.img /boot/initrd-* /boot/grub/grub.cfg "
    "/boot/grub2/grub.cfg /etc/default/grub /etc/default/grub.d/*.cfg /etc/modprobe.d/*.conf "
    "/usr/lib/modprobe.d/*.conf /etc/initramfs-tools/*.conf /etc/initramfs-tools/modules "
    "/etc/initramfs-tools/conf.d/* /etc/initramfs-tools/hooks/* /etc/dracut.conf "
    "/etc/dracut.conf.d/*.conf /usr/lib/firmware/amd-ucode/* /usr/lib/firmware/intel-ucode/*"
)
DATES_READ = Tool(
    "reboot-dates",
    "stat",
    "stat -L -c '%Y %Z %n' -- " + _DATED + " " + " ".join(NVIDIA_ON_DISK.patterns),
    cap=1 << 20,
)


@dataclass(frozen=True, slots=True)
class Dates:
    """When a file's content and its inode last changed, in seconds since 1970."""

    content: int
    inode: int


def _dates(evidence: Evidence) -> dict[str, Dates] | Unknown:
    """Return the dates by path; of a menu that is for root alone, none."""
    if evidence.problem:
        return evidence.problem
    refused = [line for line in evidence.stderr.splitlines() if "ermission denied" in line]
    if any("/grub" not in line for line in refused):
        return Unknown(Reason.NO_PERMISSION, one_line(refused[-1], 120))
    rows = (line.split(" ", 2) for line in evidence.text.splitlines())
    return {r[2]: Dates(int(r[0]), int(r[1])) for r in rows if len(r) == 3}


DATES: Reader[dict[str, Dates]] = Reader("reboot-dates", (DATES_READ,), _dates, tolerant=True)

# What modprobe would load, by modules.dep, for every kernel on disk.
MODULE_VERSIONS_READ = Tool(
    "reboot-module-versions",
    "modinfo",
    "command -v modinfo >/dev/null || exit 127; for d in /lib/modules/*/; do k=${d%/}; "
    'k=${k##*/}; v=$(modinfo -k "$k" -F version nvidia 2>/dev/null) && '
    'printf \'%s %s\\n\' "$k" "$v"; done; echo end',
)


def _versions(evidence: Evidence) -> dict[str, str] | Unknown:
    """Return the version of the module that modprobe finds, by kernel."""
    if evidence.problem:
        return evidence.problem
    lines = evidence.text.split()
    if lines[-1:] != ["end"]:
        return Unknown(Reason.PARSE_FAILED, "modinfo did not come to its end")
    return dict(row for line in evidence.text.splitlines() if len(row := line.split()) == 2)


MODULE_VERSIONS: Reader[dict[str, str]] = Reader(
    "reboot-module-versions", (MODULE_VERSIONS_READ,), _versions, tolerant=True
)

DKMS_TREE = Listing(
    "reboot-dkms", ("/var/lib/dkms/nvidia*/kernel-*", "/var/lib/dkms/nvidia*/*/source")
)
_INSTALLED = re.compile(r"/var/lib/dkms/[^/]+/kernel-(?P<kernel>.+)-[^-]+")
_ADDED = re.compile(r"/var/lib/dkms/[^/]+/(?P<version>[^/]+)/source")


@dataclass(frozen=True, slots=True)
class Dkms:
    """The NVIDIA driver in DKMS: the versions added, and which is installed for a kernel."""

    added: tuple[str, ...]
    installed: Mapping[str, str]


def _dkms(evidence: Evidence) -> Dkms | Unknown:
    if evidence.unread:
        return evidence.unread
    lines = {p: line for p, line in evidence.files.items() if isinstance(line, bytes)}
    added = (m["version"] for m in map(_ADDED.fullmatch, lines) if m)
    kernels = {m["kernel"]: lines[m.string] for m in map(_INSTALLED.fullmatch, lines) if m}
    installed = {k: link_target(line).partition("/")[0] for k, line in kernels.items()}
    return Dkms(tuple(sorted(set(added))), installed)


DKMS: Reader[Dkms] = Reader("reboot-dkms", (DKMS_TREE,), _dkms, tolerant=True)

_TOOLS = (
    "update-grub",
    "grub-reboot",
    "update-initramfs",
    "dkms",
    "dracut",
    "proxmox-boot-tool",
)
BOOT_TOOLS_HERE = Listing(
    "reboot-tools",
    tuple(f"{folder}/{name}" for folder in ("/usr/sbin", "/usr/bin") for name in _TOOLS),
)


def _tools(evidence: Evidence) -> frozenset[str] | Unknown:
    """Return which of the tools that write boot files are there, by name."""
    if evidence.unread:
        return evidence.unread
    found = (p for p, line in evidence.files.items() if not isinstance(line, Unknown))
    return frozenset(path.rsplit("/", 1)[-1] for path in found)


BOOT_TOOLS: Reader[frozenset[str]] = Reader(
    "reboot-tools", (BOOT_TOOLS_HERE,), _tools, tolerant=True
)
