"""A sysfs choice file: all words, the active one in brackets."""

import re
from dataclasses import dataclass

_ACTIVE = re.compile(r"\[([^\[\]\s]+)\]")


@dataclass(frozen=True, slots=True)
class Choice:
    """The active word and every word that may be written, in the file's order."""

    active: str
    options: tuple[str, ...]


def parse_choice(text: str) -> Choice:
    """Parse `always [madvise] never`. Raises ValueError unless exactly one word is in brackets."""
    active = _ACTIVE.findall(text)
    if len(active) != 1:
        raise ValueError(f"not one word in brackets: {text[:80]!r}")
    return Choice(active[0], tuple(text.replace("[", " ").replace("]", " ").split()))
