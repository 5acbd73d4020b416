"""What differs between two snapshots, two recordings, or one of them and now."""

from dataclasses import dataclass, field
from enum import StrEnum

from gpudoctor.model.snapshot import KeptFinding, SnapshotHead


class Sort(StrEnum):
    """What kind of value it is; `volatile` ones are never compared."""

    SETTING = "setting"
    INVENTORY = "inventory"
    COUNTER = "counter"
    VOLATILE = "volatile"


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """What a value is called: of which thing (`GPU 0000:41:00.0`, `kernel`, ``), and what of it."""

    of: str
    what: str

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.of} {self.what}".strip()


@dataclass(frozen=True, slots=True)
class Value:
    """One value worth comparing, as one line of text; a counter's text is a whole number.

    `sources` name where it was read, narrowest first, as `Compared.unread` does.
    """

    sort: Sort
    text: str
    sources: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Compared:
    """One side of a diff: who and when, its values, and its findings by today's rules.

    `unread` tells what could not be read there, by a value's name or one of its sources, and why:
    such values are neither gone nor changed. The narrowest name or source counts; an empty reason
    says that it was read.
    """

    head: SnapshotHead
    values: dict[Name, Value]
    findings: tuple[KeptFinding, ...]
    unread: dict[str, str] = field(default_factory=dict)


class Moved(StrEnum):
    """How something differs; the word that text, JSON, Markdown and the screen show."""

    ADDED = "added"
    GONE = "gone"
    CHANGED = "changed"
    GREW = "grew"
    RESET = "reset"
    FIXED = "fixed"
    REGRESSED = "regressed"
    NEW = "new"
    NOT_READ = "not-read"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs; an absent value is empty. `by` says by whom or what, where known.

    `items` are the things that it stands for where many differ alike (256 policies, 8 GPUs).
    """

    moved: Moved
    sort: Sort | None
    name: Name
    before: str
    after: str
    by: str = ""
    items: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diff:
    """All that differs from `old` to `new`. Findings have no sort. `remarks` are sentences.

    `same` counts values that were compared and are equal, `left_out` those that only one side read:
    `not_read` names them. They are no differences.
    """

    old: SnapshotHead
    new: SnapshotHead
    settings: tuple[Difference, ...] = ()
    inventory: tuple[Difference, ...] = ()
    counters: tuple[Difference, ...] = ()
    findings: tuple[Difference, ...] = ()
    remarks: tuple[str, ...] = ()
    same: int = 0
    left_out: int = 0
    not_read: tuple[Difference, ...] = ()

    @property
    def empty(self) -> bool:
        """Return whether nothing differs."""
        return not (self.settings or self.inventory or self.counters or self.findings)
