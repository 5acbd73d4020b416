"""What the kernel does with limits written to the files of a cgroup (v2)."""

import errno
import os
import re
from collections.abc import Callable

from gpudoctor.formats.cpulist import format_cpulist, parse_cpulist

Read = Callable[[str], str | None]
Changes = dict[str, str]

_PAGE = 4096
_LEAST_QUOTA = 1000


def _refused(path: str) -> OSError:
    return OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)


def _amount(path: str, value: str, read: Read) -> Changes:
    """Bytes are rounded down to whole pages."""
    if value == "max":
        return {path: value}
    if not value.isdecimal():
        raise _refused(path)
    return {path: str(int(value) // _PAGE * _PAGE)}


def _bandwidth(path: str, value: str, read: Read) -> Changes:
    """A quota, or max, in microseconds; without a period the old one stays."""
    match = re.fullmatch(r"(max|\d+)(?: (\d+))?", value)
    if match is None or (match[1] != "max" and int(match[1]) < _LEAST_QUOTA):
        raise _refused(path)
    return {path: f"{match[1]} {match[2] or (read(path) or '').split(' ')[-1]}"}


def _list(path: str, value: str, read: Read) -> Changes:
    """CPUs or nodes; a cgroup with processes cannot be given none."""
    try:
        listed = parse_cpulist(value)
    except ValueError:
        raise _refused(path) from None
    if not listed and read(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    return {path: format_cpulist(listed)}


CGROUP_RULES: tuple[tuple[str, Callable[[str, str, Read], Changes]], ...] = (
    ("/sys/fs/cgroup/*/memory.max", _amount),
    ("/sys/fs/cgroup/*/memory.high", _amount),
    ("/sys/fs/cgroup/*/cpu.max", _bandwidth),
    ("/sys/fs/cgroup/*/cpuset.cpus", _list),
    ("/sys/fs/cgroup/*/cpuset.mems", _list),
)
