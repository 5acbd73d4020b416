"""`grep -H` of a simulated machine: each line, or each count, behind the name of its file."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoctor.hosts.simulated import SimulatedMachine


def named_lines(
    machine: "SimulatedMachine", regex: "re.Pattern[str]", paths: Sequence[str], counts: bool
) -> str:
    """Return what `grep -Hs`, or with `counts` `grep -Hsc`, prints of the files that are there."""
    return "".join(f"{row}\n" for path in paths for row in _rows(machine, regex, path, counts))


def _rows(
    machine: "SimulatedMachine", regex: "re.Pattern[str]", path: str, counts: bool
) -> Iterator[str]:
    text = machine.text(path)
    if text is None:
        return
    found = [line for line in text.splitlines() if regex.search(line)]
    yield from [f"{path}:{len(found)}"] if counts else (f"{path}:{line}" for line in found)
