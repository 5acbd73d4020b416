"""Memory modules in `dmidecode -t 17`."""

import re
from dataclasses import dataclass

_FIELD = re.compile(r"^[ \t]+([A-Z][A-Za-z0-9 ]*): *(.*)$", re.MULTILINE)
_HEADING = re.compile(r"^Memory Device[ \t]*$", re.MULTILINE)
_SIZE = re.compile(r"(\d{1,9}) (kB|MB|GB|TB)")
_SPEED = re.compile(r"(\d{1,6}) M(?:T/s|Hz)")
_MIB = {"MB": 1, "GB": 1 << 10, "TB": 1 << 20}


@dataclass(frozen=True, slots=True)
class Dimm:
    """A memory slot: its module's size in MiB (0: empty) and speed in MT/s (0: not told)."""

    slot: str
    size: int
    speed: int

    def __str__(self) -> str:
        """Return it as people write it: `64 GiB at 6400 MT/s`."""
        if not self.size:
            return "empty"
        size = f"{self.size >> 10} GiB" if self.size % 1024 == 0 else f"{self.size} MiB"
        return f"{size} at {self.speed} MT/s" if self.speed else size


def parse_dimms(text: str) -> tuple[Dimm, ...]:
    """Return every memory slot that the firmware lists, filled or not."""
    return tuple(_dimm(block) for block in _HEADING.split(text)[1:])


def _dimm(block: str) -> Dimm:
    fields = {key: value.strip() for key, value in reversed(_FIELD.findall(block))}
    size = _SIZE.match(fields.get("Size", ""))
    # Newer dmidecode says Memory where older ones say Clock; Speed is what the module could do.
    told = fields.get("Configured Memory Speed") or fields.get("Configured Clock Speed", "")
    speed = _SPEED.match(told)
    bank, place = fields.get("Bank Locator", ""), fields.get("Locator", "")
    mib = _MIB.get(size[2], 0) * int(size[1]) if size else 0
    slot = " ".join(part for part in (bank, place) if part)
    return Dimm(slot or "unnamed", mib, int(speed[1]) if speed else 0)
