"""Lists of CPUs or nodes as the kernel prints them: `0-3,8,10-15`."""

from collections.abc import Iterable

_LIMIT = 1 << 16


def parse_cpulist(text: str) -> frozenset[int]:
    """Return the numbers of a list; an empty list is empty. Raises ValueError on anything else."""
    found: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.strip().split(","))):
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= low <= high < _LIMIT:
            raise ValueError(f"not a CPU range: {part[:40]!r}")
        found.update(range(low, high + 1))
    return frozenset(found)


def format_cpulist(numbers: Iterable[int]) -> str:
    """Return numbers as the shortest list of ranges."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
