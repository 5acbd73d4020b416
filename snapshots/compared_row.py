"""What a parser of evidence yields: named values, each with its sort, or why one is unknown."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from gpudoctor.model import Unknown
from gpudoctor.model.diff import Sort
from gpudoctor.text import clean, one_line

SETTING, INVENTORY, COUNTER = Sort.SETTING, Sort.INVENTORY, Sort.COUNTER


@dataclass(frozen=True, slots=True)
class Row:
    """One value: of which thing, what of it, its sort and its text, or why it was not read.

    `part` names a group of values that are read or not read together (an environment).
    """

    of: str
    what: str
    sort: Sort
    text: str | Unknown
    part: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """One file, entry or tool's output, as a parser gets it.

    `parts` is what the rule's globs stood for; `servers` maps pids to what each server is called,
    `gpus` are the addresses of GPUs in the order of nvidia-smi.
    """

    path: str
    parts: tuple[str, ...]
    raw: bytes
    servers: Mapping[int, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the whole as safe text."""
        return _clean(self.raw) if len(self.raw) <= _SHORT else clean(self.raw)

    @property
    def server(self) -> str:
        """Return what the server is called whose pid the first glob stood for."""
        return self.servers.get(int(self.parts[0]), "server") if self.parts else "server"


# Of thousands of small files most hold the same few texts.
_SHORT = 64
_clean = lru_cache(4096)(clean)
Parser = Callable[[Answer], Iterable[Row]]


def line(text: str, limit: int = 200) -> str:
    """Return one safe line, as `one_line` does; what is one already is only looked at."""
    plain = text.isprintable() and len(text) <= limit and "  " not in text
    return text if plain and text == text.strip() else one_line(text, limit)


def shown(value: object) -> str | Unknown:
    """Return a typed value as text: yes or no, numbers without a needless fraction."""
    if isinstance(value, Unknown):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
