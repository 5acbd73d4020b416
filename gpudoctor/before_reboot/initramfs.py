"""Whether the initramfs of the kernel that boots is there, and newer than what it is made of."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from gpudoctor.before_reboot.coming import Coming, candidates
from gpudoctor.before_reboot.read import Read, newer, tools, why
from gpudoctor.model import Reason, Unknown
from gpudoctor.model.before_reboot import Line, Outlook, Topic
from gpudoctor.probes.reboot import DATES, Dates
from gpudoctor.shell import quote

_TOPIC = Topic.INITRAMFS
_NOT_IN_IT = ("/boot/", "/etc/default/")
_SHOWN = 4


def initramfs_lines(now: Coming, read: Read) -> list[Line]:
    """Judge the initramfs of every kernel that may boot; stale ones are told for the newest."""
    dates = read(DATES)
    if isinstance(dates, Unknown):
        return [_unknown(dates)]
    images = {k: _image(k, dates) for k in candidates(now, read)}
    found = {k: path for k, path in images.items() if path}
    lacking = [k for k, path in images.items() if not path]
    there = sorted(path for path in dates if path.startswith("/boot/initr"))
    if lacking and there and (found or now.initrds):
        return [_missing(now, lacking, list(images)[-1] in lacking, there, read)]
    if not found:
        none = Unknown(Reason.NOT_PRESENT, "none of a kernel that may boot was found in /boot")
        return [_unknown(none)]
    kernel, path = list(found.items())[-1]
    late = sorted(_later(kernel, path, dates), key=lambda name: dates[name].inode, reverse=True)
    made = _day(dates[path].content)
    if late:
        return [_stale(kernel, path, late, dates, read)]
    said = f"{path} ({made}) is newer than the configuration, module and microcode files"
    return [Line(_TOPIC, Outlook.READY, said, read=f"{len(dates)} dates")]


def _unknown(value: Unknown) -> Line:
    said = f"Whether the initramfs is stale cannot be told: {why(value)}"
    return Line(_TOPIC, Outlook.UNKNOWN, said, reason=value.reason)


def _image(kernel: str, dates: Mapping[str, Dates]) -> str:
    names = (
        f"/boot/initrd.img-{kernel}",
        f"/boot/initramfs-{kernel}.img",
        f"/boot/initrd-{kernel}",
    )
    return next((name for name in names if name in dates), "")


def _missing(
    now: Coming, lacking: Sequence[str], newest: bool, there: Sequence[str], read: Read
) -> Line:
    """Say that a kernel has none while others have: it stops where that kernel will boot."""
    how = "which boots" if now.release else "which may boot"
    said = f"/boot has no initramfs for {', '.join(lacking)}, {how}"
    make = _make(lacking[-1], read)
    seen = f"in /boot: {', '.join(there)}"
    return Line(_TOPIC, Outlook.LOOK, said, "Make it before the reboot", make, seen, newest)


def _later(kernel: str, path: str, dates: Mapping[str, Dates]) -> list[str]:
    """Return the files that changed after the image was made; of modules, the kernel's own."""
    ours = f"/lib/modules/{kernel}/"
    return [
        name
        for name, date in dates.items()
        if not name.startswith(_NOT_IN_IT)
        and (not name.startswith("/lib/modules/") or name.startswith(ours))
        and newer(date, dates[path])
    ]


def _stale(
    kernel: str, path: str, late: Sequence[str], dates: Mapping[str, Dates], read: Read
) -> Line:
    shown = [
        f"{name} ({_day(max(dates[name].content, dates[name].inode))})" for name in late[:_SHOWN]
    ]
    more = f" and {len(late) - _SHOWN} more" if len(late) > _SHOWN else ""
    said = (
        f"{path} ({_day(dates[path].content)}) is older than what it is made of: "
        f"{', '.join(shown)}{more}"
    )
    module = any(name.startswith("/lib/modules/") for name in late)
    todo = "Make it anew, or options set since may not act at boot"
    if module:
        todo += "; where the nvidia module is in it, the old one would be loaded"
    return Line(_TOPIC, Outlook.LOOK, said, todo, _make(kernel, read, again=True), said)


def _make(kernel: str, read: Read, again: bool = False) -> tuple[str, ...]:
    """Return this host's own command that makes a kernel's initramfs, or makes it again."""
    here, name = tools(read), quote(kernel)
    if "update-initramfs" in here:
        return (f"update-initramfs -{'u' if again else 'c'} -k {name}",)
    if "dracut" not in here:
        return ()
    image = quote(f"/boot/initramfs-{kernel}.img")
    return (f"dracut {'-f ' if again else ''}{image} {name}",)


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
