"""The next command line against today's, and settings that the boot loader did not take over."""

from gpudoctor.before_reboot.coming import Coming
from gpudoctor.before_reboot.read import Read, newer, tools, why
from gpudoctor.formats.boot_entries import Loader, same_words
from gpudoctor.model import Unknown
from gpudoctor.model.before_reboot import Line, Outlook, Topic
from gpudoctor.probes.kernel import KERNEL_CMDLINE
from gpudoctor.probes.reboot import DATES, GRUB_SETTINGS, LOADER
from gpudoctor.text import one_line

_TOPIC = Topic.COMMAND_LINE
_MENUS = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")


def command_lines(now: Coming, read: Read) -> list[Line]:
    """Say what the next boot adds to the command line or takes out, and what was not taken over."""
    booted = read(KERNEL_CMDLINE)
    if isinstance(booted, Unknown):
        return [_untold(booted)]
    later = [_not_taken_over(now, read)] if now.loader is Loader.GRUB else []
    return [_next(now, booted, read), *(line for line in later if line is not None)]


def closest(now: Coming, booted: str) -> str:
    """Return the coming command line that is most like today's; "" where none is told."""
    whole = [line for line in now.lines if "$" not in line.replace("$vt_handoff", "")]
    return min(whole, key=lambda line: sum(map(len, same_words(line, booted))), default="")


def _next(now: Coming, booted: str, read: Read) -> Line:
    files = read(LOADER)
    line, where = closest(now, booted), f"the entry that {now.loader} takes"
    systemd_boot = now.loader is Loader.SYSTEMD_BOOT
    if not line and systemd_boot and isinstance(files, Unknown):
        return _untold(files)
    if not line and systemd_boot and not isinstance(files, Unknown):
        line, where = files.cmdline, "/etc/kernel/cmdline, of which the entries are made,"
    if not line:
        return _untold(now.unknown)
    seen = f"booted: {one_line(booted, 400)}; next: {one_line(line, 400)}"
    added, gone = same_words(line, booted)
    if not added and not gone:
        said = f"The next command line has today's words: {where} holds them all"
        return Line(_TOPIC, Outlook.READY, said, read=seen)
    parts = [f"adds {' '.join(added)}"] if added else []
    parts += [f"takes out {' '.join(gone)}"] if gone else []
    said = f"The next boot {' and '.join(parts)}: so {where} has it".replace(",:", ":")
    todo = "See that this is wanted"
    if systemd_boot and not now.lines:
        todo += "; it acts once the entries were made anew"
        return Line(_TOPIC, Outlook.LOOK, one_line(said, 600), todo, _refresh(read), seen)
    return Line(_TOPIC, Outlook.LOOK, one_line(said, 600), todo, read=seen)


def _untold(reason: Unknown | None) -> Line:
    said = "The next command line cannot be told"
    if reason is None:
        return Line(_TOPIC, Outlook.UNKNOWN, f"{said}: the entry does not spell it out")
    return Line(_TOPIC, Outlook.UNKNOWN, f"{said}: {why(reason)}", reason=reason.reason)


def _refresh(read: Read) -> tuple[str, ...]:
    proxmox = "proxmox-boot-tool" in tools(read)
    return ("proxmox-boot-tool refresh",) if proxmox else ()


def _not_taken_over(now: Coming, read: Read) -> Line | None:
    """Return the line about settings that the menu lacks or is older than; None for none."""
    settings, dates = read(GRUB_SETTINGS), read(DATES)
    if isinstance(settings, Unknown):
        return None
    keys = ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT")
    words = [word for key in keys for word in (settings.get(key) or "").split()]
    there = {word for line in now.lines for word in line.split()}
    missing = [word for word in words if word not in there] if now.lines else []
    known = {} if isinstance(dates, Unknown) else dates
    menu = next((known[path] for path in _MENUS if path in known), None)
    files = [path for path in known if path.startswith("/etc/default/grub")]
    late = [path for path in files if menu is not None and newer(known[path], menu)]
    if not missing and not late:
        return None
    what = f"{' '.join(missing)} of GRUB's settings" if missing else f"What {', '.join(late)} says"
    verb = "is not in the entry that boots" if missing else "may be newer than GRUB's menu"
    seen = f"GRUB's settings: {one_line(' '.join(words), 300)}"
    todo = "Have the menu made anew, if this shall act"
    said = one_line(f"{what} {verb}: the menu was not made anew since", 600)
    return Line(_TOPIC, Outlook.LOOK, said, todo, _remake(read), seen)


def _remake(read: Read) -> tuple[str, ...]:
    if "update-grub" in tools(read):
        return ("update-grub",)
    return ("grub2-mkconfig -o /boot/grub2/grub.cfg",)
