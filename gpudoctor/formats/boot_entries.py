"""Boot loaders: which one booted, EFI variables, and the entry files of the Boot Loader Spec."""

import re
from dataclasses import dataclass
from enum import StrEnum


class Loader(StrEnum):
    """A boot loader that is known here."""

    GRUB = "GRUB"
    SYSTEMD_BOOT = "systemd-boot"


def loader_in_use(info: str, cmdline: str) -> Loader | None:
    """Return which loader booted: systemd-boot names itself in LoaderInfo, GRUB in BOOT_IMAGE=.

    Source: systemd.io/BOOT_LOADER_INTERFACE, GRUB manual.
    """
    if "systemd-boot" in info:
        return Loader.SYSTEMD_BOOT
    if "BOOT_IMAGE=" in cmdline:
        return Loader.GRUB
    return Loader.SYSTEMD_BOOT if "initrd=\\" in cmdline else None


def efi_text(raw: bytes) -> str:
    """Return the text of an EFI variable: four bytes of attributes, then UTF-16 with a zero."""
    return raw[4:].decode("utf-16-le", "replace").split("\0", 1)[0]


@dataclass(frozen=True, slots=True)
class BootEntry:
    """One entry file: `id` is its file name; image and options as they stand in it."""

    id: str
    image: str
    options: str
    version: str
    initrds: tuple[str, ...] = ()


def parse_entry_file(name: str, text: str) -> BootEntry:
    """Parse an entry file `NAME.conf`; of repeated options all count."""
    rows = [line.split(None, 1) for line in text.splitlines() if not line.lstrip().startswith("#")]
    of: dict[str, list[str]] = {}
    for row in rows:
        if len(row) == 2:
            of.setdefault(row[0], []).append(row[1].strip())
    initrds = " ".join(of.get("initrd", [])).split()
    return BootEntry(
        name,
        (of.get("linux") or of.get("efi") or [""])[0],
        " ".join(of.get("options", [])),
        (of.get("version") or [""])[0],
        tuple(initrds),
    )


_IMAGE = re.compile(r".*/(?:vmlinuz|vmlinux|kernel|bzImage)-(?P<release>\d[\w.+~-]*)", re.ASCII)


def release_of(image: str, version: str, installed: tuple[str, ...]) -> str:
    """Return the kernel release of an image: by its name, or as a folder on its path; or ""."""
    named = _IMAGE.fullmatch(f"/{image}")
    if named:
        return named["release"].removesuffix(".efi")
    parts = [*image.split("/"), version]
    return next((part for part in parts if part in installed), "")


def same_words(line: str, booted: str) -> tuple[list[str], list[str]]:
    """Return the words of a command line that the booted one lacks, and those it has besides."""
    ours, theirs = (_counted(text) for text in (line, booted))
    return [w for w in ours if w not in theirs], [w for w in theirs if w not in ours]


def _counted(text: str) -> list[str]:
    """Return the words that are the operator's: what the loader itself adds is left out."""
    loaders = ("BOOT_IMAGE=", "initrd=", "vt.handoff=", "$vt_handoff")
    return [word.strip("\"'") for word in text.split() if not word.startswith(loaders)]
