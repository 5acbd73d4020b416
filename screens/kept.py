"""What the board knows of snapshots, of a diff, of the story, and of the page before a reboot."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoctor.model.before_reboot import BeforeReboot
    from gpudoctor.model.diff import Diff
    from gpudoctor.model.snapshot import KeptFinding, Otherwise, SnapshotHead, Unreadable
    from gpudoctor.model.story import Story, Told

Which = tuple[str, str, str]


@dataclass(slots=True)
class Shelf:
    """This machine's snapshots, newest first, None until listed; `marked` are paths.

    `findings` holds what files keep, by path, and `today` where today's rules say otherwise; a
    sentence says why one could not be read or judged.
    """

    heads: "tuple[SnapshotHead, ...] | None" = None
    unreadable: "tuple[Unreadable, ...]" = ()
    problem: str = ""
    reading: bool = False
    saving: bool = False
    marked: tuple[str, ...] = ()
    findings: "dict[str, tuple[KeptFinding, ...] | str]" = field(default_factory=dict)
    today: "dict[str, tuple[Otherwise, ...] | str]" = field(default_factory=dict)


@dataclass(slots=True)
class Comparison:
    """A diff as it is made: of what, and what came of it, or why nothing."""

    of: str
    diff: "Diff | None" = None
    problem: str = ""


@dataclass(slots=True)
class Page:
    """The page before a reboot, or why there is none."""

    read: "BeforeReboot | None" = None
    problem: str = ""
    reading: bool = False


@dataclass(slots=True)
class Telling:
    """The story and what the operator wants of it; `picks` are the operator's own choices.

    `wish` waits for the audit: `apply`, `last`, `snapshot` or `diff`. `said` are sentences about
    what was asked for and not done; `problem` says why there is no story.
    """

    story: "Story | None" = None
    problem: str = ""
    again: bool = False
    wish: str = ""
    said: tuple[str, ...] = ()
    picks: dict[Which, bool] = field(default_factory=dict)
    since: Comparison | None = None

    def picked(self, told: "Told") -> bool:
        """Return whether a change is selected: at first, what was lost or has ended is."""
        if not (pickable(told) or lastable(told)):
            return False
        return self.picks.get(which(told), told.fate in {"lost", "ended"})


def which(told: "Told") -> Which:
    """Return what tells one change of a story from the others."""
    return told.transaction, told.check, told.title


def pickable(told: "Told") -> bool:
    """Return whether there is something to apply again."""
    return told.fate != "kept"


def lastable(told: "Told") -> bool:
    """Return whether it was kept, and could last, and no file of ours makes it."""
    return told.fate == "kept" and told.can_last and not told.lasts
