"""Limits of a container's cgroup (v2), by the files below /sys/fs/cgroup."""

import re

from gpudoctor.fixes.mechanism import GONE, Mechanism, Seen, Values, unread
from gpudoctor.formats.cpulist import format_cpulist, parse_cpulist
from gpudoctor.model import CgroupLimit
from gpudoctor.shell import quote

_PATH = re.compile(r"/sys/fs/cgroup(?:/(?!\.{1,2}/)[^/\0-\x1f]+)+/(?P<file>[a-z.]+)")
_AMOUNT = re.compile(r"\d{1,18}|max")
_BANDWIDTH = re.compile(r"(?:\d{1,18}|max)(?: \d{1,18})?")
# The kernel rounds a limit down to pages; 64 KiB is the largest page it is built with.
_ROUND = 1 << 16


class CgroupLimitMechanism(Mechanism[CgroupLimit]):
    """One file is one item, named by its path; it is gone with its cgroup (the container)."""

    def reads(self, change: CgroupLimit) -> dict[str, str]:
        """Return the read text of the limit, and of what is used of it."""
        folder = quote(_folder(change))
        texts = {change.path: _read(folder, change.path)}
        if change.usage:
            texts[change.usage] = _read(folder, f"{_folder(change)}/{change.usage}")
        return texts

    def refuse(self, change: CgroupLimit, now: Seen) -> str:
        """Return why: no such file or value, less than in use, or what cannot be put back."""
        value = now[change.path]
        if not (match := _PATH.fullmatch(change.path)) or not _is_value(match["file"], change):
            return f"{change.value!r} is no value of {change.path} that gpudoctor sets"
        if value == GONE:
            return f"{_folder(change)} is not there any more: audit again"
        if sentence := unread(now):
            return sentence
        if match["file"].startswith("cpuset.") and not value:
            return f"{change.path} is empty, and the kernel does not take that back"
        used = str(now.get(change.usage, "0"))
        if change.value.isdecimal() and used.isdecimal() and int(used) > int(change.value):
            return f"{used} is in use there, more than {change.value}"
        return ""

    def wanted(self, change: CgroupLimit, before: Values) -> dict[str, str]:
        """Return what the file reads as: whole pages, a quota with its period, a short list."""
        return {change.path: _wanted(change, before[change.path])}

    def write(self, change: CgroupLimit, item: str, before: Values) -> str:
        """Return the command that writes the wanted value."""
        return f"echo {quote(_wanted(change, before[item]))} > {quote(item)}"

    def undo(self, change: CgroupLimit, item: str, before: Values) -> str:
        """Return the command that writes the captured value, both words of cpu.max."""
        return f"echo {quote(before[item])} > {quote(item)}"

    def guard(self, change: CgroupLimit, item: str, before: Values) -> str:
        """Hold the undo back while more is in use than the old limit allows."""
        if not change.usage or not before[item].isdecimal():
            return ""
        usage = quote(f"{_folder(change)}/{change.usage}")
        return (
            f'[ "$(cat {usage})" -le {before[item]} ] || '
            f"echo more is in use there than the old limit of {before[item]}"
        )


def _folder(change: CgroupLimit) -> str:
    return change.path.rpartition("/")[0]


def _read(folder: str, path: str) -> str:
    return f"[ -d {folder} ] || echo {GONE}; [ ! -d {folder} ] || cat {quote(path)}"


def _is_value(file: str, change: CgroupLimit) -> bool:
    if file in {"memory.max", "memory.high"}:
        return bool(_AMOUNT.fullmatch(change.value))
    if file == "cpu.max":
        return bool(_BANDWIDTH.fullmatch(change.value))
    if file not in {"cpuset.cpus", "cpuset.mems"}:
        return False
    try:
        return bool(parse_cpulist(change.value))
    except ValueError:
        return False


def _wanted(change: CgroupLimit, before: str) -> str:
    file = change.path.rpartition("/")[2]
    if file.startswith("cpuset."):
        return format_cpulist(parse_cpulist(change.value))
    if file == "cpu.max":
        whole = " " in change.value
        return change.value if whole else f"{change.value} {before.split(' ')[-1]}"
    return change.value if change.value == "max" else str(-(-int(change.value) // _ROUND) * _ROUND)
