"""The size of a tmpfs in a process's mount namespace, by `mount -N PID`.

The host's own mount enters the namespace for the one system call. `nsenter … mount` would run the
container's program as the host's root.
"""

import re

from gpudoctor.fixes.mechanism import GONE, Mechanism, Seen, Values, unread
from gpudoctor.fixes.process import start_of
from gpudoctor.model import MountSize, Unknown
from gpudoctor.shell import quote

_PATH = re.compile(r"(?:/[A-Za-z0-9_.-]+)+")
_VALUE = re.compile(r"\d+ (?P<flags>rw[a-z,]*) (?P<options>rw(?:,[^ ]*)?)")
_FLAGS = frozenset(
    "rw nosuid nodev noexec relatime noatime nodiratime strictatime lazytime nosymfollow".split()
)
_SIZE = re.compile(r"(?<=,)size=(\d+)k(?=,|$)")
# What tmpfs prints after its size (mm/shmem.c, shmem_show_options).
_AFTER_SIZE = re.compile(
    r"nr_inodes=|mode=|uid=|gid=|inode(?:32|64)|huge=|mpol=|noswap|usrquota|gr"
)
# A whole number of pages of any size that the kernel is built with.
_ROUND_KIB = 64


class MountSizeMechanism(Mechanism[MountSize]):
    """One mount is one item: start time of the process, mount flags, options of the tmpfs.

    The kernel prints no size= where it is the default, half of the memory in whole pages. An undo
    asks for exactly as many (50% would be one page more where their number is odd).
    """

    def reads(self, change: MountSize) -> dict[str, str]:
        """Return the read text of the mount, and of what its default size is made of."""
        return {
            _name(change): _mounted(change),
            "mount -N": "mount --help | grep -o '[-]-namespace'",
            "MemTotal": "sed -n 's/^MemTotal:[^0-9]*\\([0-9]*\\) kB.*/\\1/p' /proc/meminfo",
            "page size": "getconf PAGESIZE",
        }

    def refuse(self, change: MountSize, now: Seen) -> str:
        """Return why: no tmpfs of one's own there, or flags that could not be put back."""
        value = now[_name(change)]
        if not _PATH.fullmatch(change.path) or change.size <= 0:
            return f"{change.path!r} is no path whose size gpudoctor sets"
        if value == GONE:
            return f"process {change.pid} has ended: audit again"
        if isinstance(now["mount -N"], Unknown):
            return "mount there cannot enter a mount namespace (util-linux 2.33 or newer can)"
        if sentence := unread(now):
            return sentence
        match = _VALUE.fullmatch(str(value))
        if match is None:
            return f"{_name(change)} is no tmpfs of its own that can be written"
        if odd := set(match["flags"].split(",")) - _FLAGS:
            return f"{_name(change)} is mounted with {', '.join(sorted(odd))}"
        return ""

    def wanted(self, change: MountSize, before: Values) -> dict[str, str]:
        """Return flags and options as they are, with the wanted size."""
        old = before[_name(change)]
        return {_name(change): _sized(old, _wanted_kib(change), _default_kib(before))}

    def write(self, change: MountSize, item: str, before: Values) -> str:
        """Return the command that remounts with the wanted size."""
        return _remount(change, before[item], _wanted_kib(change))

    def undo(self, change: MountSize, item: str, before: Values) -> str:
        """Return the command that remounts with the captured size."""
        return _remount(change, before[item], _old_kib(before[item], before))

    def guard(self, change: MountSize, item: str, before: Values) -> str:
        """Hold the undo back while more is in use than the old size; the kernel refuses it too."""
        page = int(before["page size"])
        more = (_wanted_kib(change) - _old_kib(before[item], before)) * 1024 // page
        if more <= 0:
            return ""
        free = f"stat -f -c %f /proc/{change.pid}/root{change.path}"
        return f'[ "$({free})" -ge {more} ] || echo more is in use there than the old size holds'


def _name(change: MountSize) -> str:
    return f"{change.path} of process {change.pid}"


def _mounted(change: MountSize) -> str:
    """Return the text that prints `START FLAGS OPTIONS`, or gone."""
    path = change.path.replace(".", r"\.")
    row = rf"s|^[^ ]* [^ ]* [^ ]* [^ ]* {path} \([^ ]*\) .*- tmpfs [^ ]* \(.*\)|\1 \2|p"
    found = f"$({start_of(change.pid)}) $(sed -n {quote(row)} /proc/{change.pid}/mountinfo)"
    return f"[ -e /proc/{change.pid}/stat ] && echo {found} || echo {GONE}"


def _wanted_kib(change: MountSize) -> int:
    return -(-change.size // (_ROUND_KIB << 10)) * _ROUND_KIB


def _default_kib(before: Values) -> int:
    """Return half of the memory in whole pages, in KiB (mm/shmem.c, shmem_default_max_blocks)."""
    page = int(before["page size"]) // 1024
    return int(before["MemTotal"]) // page // 2 * page


def _old_kib(value: str, before: Values) -> int:
    match = _SIZE.search(value)
    return int(match[1]) if match else _default_kib(before)


def _sized(value: str, kib: int, default: int) -> str:
    """Return a value with another size, as the kernel prints it."""
    start, flags, text = value.split(" ", 2)
    options = [option for option in text.split(",") if not option.startswith("size=")]
    at = next((i for i, o in enumerate(options) if _AFTER_SIZE.match(o)), len(options))
    options[at:at] = [] if kib == default else [f"size={kib}k"]
    return f"{start} {flags} {','.join(options)}"


def _remount(change: MountSize, value: str, kib: int) -> str:
    """Return the command; flags are told again, and no fstab is asked where both names are told."""
    flags = value.split(" ")[1]
    return f"mount -N {change.pid} -t tmpfs -o remount,{flags},size={kib}k tmpfs {change.path}"
