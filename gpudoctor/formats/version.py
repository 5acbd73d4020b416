"""Version strings: Debian's order, and the numbers at the front of a kernel release."""

import re
from functools import cmp_to_key

_SERIES = re.compile(r"(\d+)\.(\d+)")


def compare(left: str, right: str) -> int:
    """Return below, equal to or above 0 by Debian's rules (deb-version(7)): `~` sorts first.

    Kernel releases sort rightly by them too: 6.8.12-10-pve is above 6.8.12-9-pve.
    """
    left_epoch, left_rest = _epoch(left)
    right_epoch, right_rest = _epoch(right)
    if left_epoch != right_epoch:
        return left_epoch - right_epoch
    return _compare_part(left_rest, right_rest)


version_key = cmp_to_key(compare)


def series(release: str) -> tuple[int, int]:
    """Return the kernel series, such as (6, 8) of 6.8.12-9-pve. Raises ValueError if none."""
    match = _SERIES.match(release)
    if match is None:
        raise ValueError(f"not a kernel release: {release[:60]!r}")
    return int(match.group(1)), int(match.group(2))


def flavour(release: str) -> str:
    """Return the last word of a release (pve, generic, amd64), or "" where it has none."""
    last = release.rsplit("-", 1)[-1]
    return last if "-" in release and last.isalpha() or last in {"amd64", "arm64"} else ""


def _epoch(version: str) -> tuple[int, str]:
    epoch, colon, rest = version.partition(":")
    return (int(epoch), rest) if colon and epoch.isdigit() else (0, version)


def _compare_part(left: str, right: str) -> int:
    """Compare by turns a run of non-digits and a run of digits."""
    runs_left, runs_right = (re.split(r"(\d+)", text) for text in (left, right))
    for index in range(max(len(runs_left), len(runs_right))):
        a = runs_left[index] if index < len(runs_left) else ""
        b = runs_right[index] if index < len(runs_right) else ""
        order = int(a or 0) - int(b or 0) if index % 2 else _compare_words(a, b)
        if order:
            return order
    return 0


def _compare_words(left: str, right: str) -> int:
    for index in range(max(len(left), len(right))):
        order = _weight(left[index : index + 1]) - _weight(right[index : index + 1])
        if order:
            return order
    return 0


def _weight(char: str) -> int:
    """Rank `~`, then the end, then letters, then everything else."""
    if char == "~":
        return -1
    if not char:
        return 0
    return ord(char) if char.isalpha() else ord(char) + 256
