"""Parse the table of an nccl-tests program (github.com/NVIDIA/nccl-tests, src/util.cu)."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Collective:
    """One size out of place: bytes, microseconds for each, GB/s of the bus by their definition."""

    size: int
    time: float
    bus: float


def parse_collectives(text: str) -> tuple[Collective, ...]:
    """Return the rows of the table, its columns found by their titles, which differ by version.

    Raises ValueError for a row with a word where a number belongs.
    """
    found = []
    columns: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["#", "size"] and "busbw" in words:
            columns = words[1:]
        elif columns and words and words[0].isdecimal() and len(words) > columns.index("busbw"):
            size, time, bus = (words[columns.index(name)] for name in ("size", "time", "busbw"))
            found.append(Collective(int(size), _number(time), _number(bus)))
    return tuple(found)


def _number(word: str) -> float:
    if not re.fullmatch(r"\d{1,12}(\.\d{1,6})?", word):
        raise ValueError(f"{word!r} stands where a number belongs")
    return float(word)
