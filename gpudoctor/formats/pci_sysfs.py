"""Small PCI files of sysfs: link speeds, BAR resources, AER counters."""

import re
from dataclasses import dataclass

from gpudoctor.formats.pci import WIDTHS, Link, Region, generation
from gpudoctor.model import Reason, Unknown

_MEMORY, _PREFETCH = 0x200, 0x2000
_BARS = 6


@dataclass(frozen=True, slots=True)
class AerCounts:
    """PCIe errors that a function counted since boot, by severity."""

    correctable: int
    nonfatal: int
    fatal: int


def parse_link(speed: str, width: str) -> Link | Unknown:
    """Parse `32.0 GT/s PCIe` (or `8 GT/s`, `Unknown`) and a lane count (255, 63, 0 are none)."""
    found = re.match(r"([\d.]+) GT/s", speed)
    gen = generation(float(found[1])) if found else None
    if not isinstance(gen, int) or not width.strip().isdigit() or int(width) not in WIDTHS:
        return Unknown(Reason.NOT_PRESENT, f"the kernel gives no link ({speed}, {width} lanes)")
    return Link(gen, int(width))


def parse_resource(text: str) -> tuple[Region, ...]:
    """Return a function's memory BARs from `resource` (start, end, flags a line; bytes)."""
    regions = []
    for index, line in enumerate(text.splitlines()[:_BARS]):
        start, end, flags = (int(part, 16) for part in line.split())
        if flags & _MEMORY:
            size = end - start + 1
            regions.append(Region(index, start, size, bool(flags & _PREFETCH)))
    return tuple(regions)


def parse_aer(text: str) -> int:
    """Return the sum of one severity's counters; names may hold spaces, TOTAL_ lines repeat it."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return sum(int(words[-1]) for words in lines if not words[0].startswith("TOTAL_"))
