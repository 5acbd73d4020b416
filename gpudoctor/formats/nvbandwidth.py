"""Parse nvbandwidth's plain output (github.com/NVIDIA/nvbandwidth, output.cpp, v0.1 to v0.8)."""

import re
from collections.abc import Iterator

_RUNNING = re.compile(r"Running (\w+)\.")
_VERSION = re.compile(r"nvbandwidth Version: (\S+)")
# memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
_ENDS = re.compile(r"(\w+)\(row\) (<->|->|<-) (\w+)\(column\) bandwidth \(GB/s\)")
_NUMBER = re.compile(r"\d{1,9}\.\d{1,6}")


def parse_version(text: str) -> str:
    """Return its version, such as `v0.8`. Raises ValueError where the output tells none."""
    found = _VERSION.search(text)
    if not found:
        raise ValueError("no line names its version")
    return found[1]


def parse_bandwidths(text: str) -> dict[str, dict[str, float]]:
    """Return GB/s by testcase and pair (`CPU 0 -> GPU 1`); waived and failed ones are left out.

    `N/A`, and 0.00 on a matrix's diagonal, are no copies.
    """
    found: dict[str, dict[str, float]] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if (running := _RUNNING.fullmatch(line.strip())) and (values := _table(lines)):
            found[running[1]] = values
    return found


def _table(lines: Iterator[str]) -> dict[str, float]:
    """Return the pairs of the matrix that follows: what it is of, its columns, its rows."""
    ends = _ENDS.search(next(lines, ""))
    if ends is None:
        return {}
    columns = next(lines, "").split()
    values: dict[str, float] = {}
    for line in lines:
        row, *cells = line.split() or [""]
        if len(cells) != len(columns):
            break
        for column, cell in zip(columns, cells, strict=True):
            if _NUMBER.fullmatch(cell) and float(cell) > 0:
                values[f"{ends[1]} {row} {ends[2]} {ends[3]} {column}"] = float(cell)
    return values
