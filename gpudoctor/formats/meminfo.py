"""/proc/meminfo and a NUMA node's meminfo."""

import re

_LINE = re.compile(r"(?:Node\s+\d+\s+)?(?P<name>[\w()]+):\s+(?P<number>\d+)(?P<unit>\s+kB)?\s*")


def parse_meminfo(text: str) -> dict[str, int]:
    """Return each field in bytes (fields without a unit, such as HugePages_Total, as counts).

    Raises ValueError when there is no MemTotal.
    """
    found = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match:
            found[match["name"]] = int(match["number"]) * (1024 if match["unit"] else 1)
    if "MemTotal" not in found:
        raise ValueError("no MemTotal in meminfo")
    return found
