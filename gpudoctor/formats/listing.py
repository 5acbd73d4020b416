"""One line of `ls -ldn`: kind, owner, device numbers, link target."""

import re
from dataclasses import dataclass

from gpudoctor.text import clean

_LINE = re.compile(
    r"(?P<mode>[-bcdlps][rwxsStT-]{9})[.+@]?\s+\d+\s+(?P<uid>\d+)\s+\d+\s+"
    r"(?:(?P<major>\d+),\s*(?P<minor>\d+)|(?P<size>\d+))\s"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A directory entry; `device` is (major, minor) of a device node, else None."""

    mode: str
    uid: int
    device: tuple[int, int] | None


def parse_entry(line: bytes) -> Entry:
    """Parse one `ls -ldn` line. Raises ValueError when it is none."""
    match = _LINE.match(clean(line))
    if match is None:
        raise ValueError("not an ls -l line")
    major, minor = match.group("major", "minor")
    device = (int(major), int(minor)) if major is not None else None
    return Entry(
        match.group("mode"),
        int(match.group("uid")),
        device,
    )


def link_target(line: bytes) -> str:
    """Return where the symbolic link of an `ls -l` line points, or an empty string."""
    return clean(line).partition(" -> ")[2]
