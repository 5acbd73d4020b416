"""System power supplies in `dmidecode -t 39`."""

import re
from dataclasses import dataclass

_FIELD = re.compile(r"^[ \t]+([A-Z][A-Za-z0-9 ]*): *(.*)$", re.MULTILINE)
_HEADING = re.compile(r"^System Power Supply[ \t]*$", re.MULTILINE)
_WATTS = re.compile(r"(\d+(?:\.\d+)?) W")


@dataclass(frozen=True, slots=True)
class Supply:
    """A power supply slot: whether a working supply is in it, its rating in W (0: not told)."""

    present: bool
    healthy: bool
    watts: int


def parse_supplies(text: str) -> tuple[Supply, ...]:
    """Return every supply that the firmware lists, working or not."""
    blocks = _HEADING.split(text)[1:]
    return tuple(_supply(block) for block in blocks)


def _supply(block: str) -> Supply:
    fields = dict(_FIELD.findall(block))
    status = fields.get("Status", "")
    plugged = fields.get("Plugged", "Yes") != "No"
    watts = _WATTS.match(fields.get("Max Power Capacity", ""))
    present = status.startswith("Present") and plugged
    failing = status.endswith("ritical")  # "Present, Critical", "Present, Non-critical"
    rating = round(float(watts.group(1))) if watts else 0
    return Supply(present, present and not failing, rating)
