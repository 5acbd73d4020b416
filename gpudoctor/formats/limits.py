"""/proc/PID/limits: the resource limits of one process."""

import re
from dataclasses import dataclass

_LINE = re.compile(
    r"(?P<name>Max [a-z -]*[a-z])\s{2,}(?P<soft>\d+|unlimited)\s+(?P<hard>\d+|unlimited)"
    r"(?:\s+(?P<unit>\w+))?\s*"
)
# The kernel prints RLIM_INFINITY as a word; a wrapped multiple of it is as good as none.
_ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True)
class Limit:
    """A soft and a hard limit in `unit`; None is unlimited."""

    soft: int | None
    hard: int | None
    unit: str


def parse_limits(text: str) -> dict[str, Limit]:
    """Return limits by their printed name (`Max locked memory`). Raises ValueError if none."""
    found = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match:
            soft, hard = (_number(match[side]) for side in ("soft", "hard"))
            found[match["name"]] = Limit(soft, hard, match["unit"] or "")
    if not found:
        raise ValueError("no limits found")
    return found


def _number(word: str) -> int | None:
    if word == "unlimited" or int(word) >= _ENDLESS:
        return None
    return int(word)
