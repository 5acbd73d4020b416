"""The kernel command line, by hand: the right file for the boot loader that is really in use.

Editing the wrong one silently does nothing. systemd-boot leaves its name in an EFI variable, GRUB
leaves BOOT_IMAGE= on the command line itself (systemd.io/BOOT_LOADER_INTERFACE, GRUB manual).
"""

import re
from dataclasses import replace

from gpudoctor.fixes.by_hand import Recipe
from gpudoctor.fixes.mechanism import Seen
from gpudoctor.formats.boot_entries import Loader, loader_in_use
from gpudoctor.model import KernelArguments, Worked
from gpudoctor.shell import quote

_INFO = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
_GRUB, _KERNEL = "/etc/default/grub", "/etc/kernel/cmdline"
_SETTING = "GRUB_CMDLINE_LINUX_DEFAULT"
_PLAIN = re.compile(r"[A-Za-z0-9_.,:=/+-]+")
_READS = {
    "cmdline": "cat /proc/cmdline",
    "loader": f"sed 's/[^a-zA-Z0-9. -]//g' {_INFO}",
    "kernel": f"head -n 1 {_KERNEL}",
    "grub": f"grep '^{_SETTING}=' {_GRUB}",
    "grub.d": f"echo $(cat {_GRUB}.d/*.cfg 2>/dev/null | grep -c '^{_SETTING}=')",
    "proxmox": "head -n 1 /etc/kernel/proxmox-boot-uuids",
    "update-grub": "[ -e /usr/sbin/update-grub ] && echo yes",
    "grubby": "[ -e /usr/sbin/grubby ] || [ -e /usr/bin/grubby ] && echo yes",
}


class CmdlineRecipe(Recipe[KernelArguments]):
    """Edits the line word by word and lets the loader take it over; undo edits them back."""

    def reads(self, change: KernelArguments) -> dict[str, str]:
        """Return what tells the loader, and the lines to change."""
        return _READS

    def worked(self, change: KernelArguments, now: Seen) -> Worked | str:
        """Return the commands for the loader in use."""
        cmdline = now["cmdline"]
        if not isinstance(cmdline, str):
            return f"the kernel command line cannot be read there ({cmdline})"
        odd = next((w for w in (*change.add, *change.remove) if not _PLAIN.fullmatch(w)), None)
        if odd is not None:
            return (
                f"{odd} needs quoting that differs by boot loader: set it by the loader's own means"
            )
        words = set(cmdline.split())
        if words.issuperset(change.add) and not words.intersection(change.remove):
            return f"the kernel was booted with that already: {cmdline}"
        info = now["loader"]
        loader = loader_in_use(info if isinstance(info, str) else "", cmdline)
        made: Worked | str
        if loader is Loader.SYSTEMD_BOOT:
            made = _systemd_boot(change, now)
        elif loader is Loader.GRUB:
            made = _grubby(change) if now["grubby"] == "yes" else _grub(change, now)
        else:
            return "which boot loader is in use there does not show: add the words by its own means"
        return made if isinstance(made, str) else replace(made, caution=change.caution)


def _plan(
    change: KernelArguments, edit: tuple[str, ...], back: tuple[str, ...], refresh: tuple[str, ...]
) -> Worked:
    """Return the steps that all loaders share around the edit of one line.

    Words are added and taken out one by one, so that several plans can be done one after another.
    """
    look = [f"grep -w -o -e {quote(word)} /proc/cmdline" for word in change.add]
    look += [f"! grep -w -o -e {quote(word)} /proc/cmdline" for word in change.remove]
    return Worked(change.title, (*edit, *refresh, "reboot", *look), (*back, *refresh, "reboot"))


def _systemd_boot(change: KernelArguments, now: Seen) -> Worked | str:
    line = now["kernel"]
    if not isinstance(line, str):
        return f"systemd-boot is in use, and {_KERNEL} cannot be read there ({line})"
    release = '"$(uname -r)"'
    refresh = f"kernel-install add {release} /boot/vmlinuz-{release}"
    if isinstance(now["proxmox"], str):
        refresh = "proxmox-boot-tool refresh"
    edit = _edit(_KERNEL, "1", "", change.add, change.remove)
    return _plan(change, edit, _edit(_KERNEL, "1", "", change.remove, change.add), (refresh,))


def _grub(change: KernelArguments, now: Seen) -> Worked | str:
    line = now["grub"]
    if not isinstance(line, str):
        return f"GRUB is in use, and {_SETTING} in {_GRUB} cannot be read there ({line})"
    if now["grub.d"] != "0":
        return f"a file in {_GRUB}.d sets {_SETTING} too, and wins: change it there, by hand"
    found = re.fullmatch(rf"{_SETTING}=([\"'])([^\"'$`\\]*)\1", line)
    if found is None:
        return f"{_SETTING} in {_GRUB} is not a plain line: change it by hand"
    missing = [word for word in change.remove if word not in found[2].split()]
    if missing:
        return (
            f"{' '.join(missing)} is not in {_SETTING}: look for it in GRUB_CMDLINE_LINUX and in "
            "/etc/default/grub.d, take it out, and run update-grub"
        )
    refresh = ["update-grub" if now["update-grub"] == "yes" else _mkconfig()]
    if isinstance(now["proxmox"], str):
        refresh.append("proxmox-boot-tool refresh")
    at = f"/^{_SETTING}=/"
    edit = _edit(_GRUB, at, found[1], change.add, change.remove)
    back = _edit(_GRUB, at, found[1], change.remove, change.add)
    return _plan(change, edit, back, tuple(refresh))


def _edit(
    file: str, at: str, end: str, add: tuple[str, ...], remove: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the commands that take words out of a line of a file, and add words at its end."""
    between = "[^[:alnum:]_.,:=/+-]" if end else " "
    first, last = ("[^[:alnum:]_.,:/+-]", f"{between}|$") if end else ("^| ", " |$")
    out = [f"{at}s#({first}){word.replace('.', '[.]')}({last})#\\1\\2#" for word in remove]
    into = [f"{at}s#{end}$# {word}{end}#" for word in add]
    return tuple(f"sed -i -E {quote(text)} {file}" for text in (*out, *into))


def _grubby(change: KernelArguments) -> Worked:
    add, remove = " ".join(change.add), " ".join(change.remove)
    there = [f"--args={quote(add)}"] if add else []
    there += [f"--remove-args={quote(remove)}"] if remove else []
    back = [f"--args={quote(remove)}"] if remove else []
    back += [f"--remove-args={quote(add)}"] if add else []
    command = "grubby --update-kernel=ALL"
    return Worked(
        change.title,
        (f"{command} {' '.join(there)}", "reboot"),
        (f"{command} {' '.join(back)}", "reboot"),
    )


def _mkconfig() -> str:
    return "grub2-mkconfig -o /boot/grub2/grub.cfg"
