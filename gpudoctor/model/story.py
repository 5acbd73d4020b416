"""The story after a reboot, or after anything else that ended what was set: as data."""

from dataclasses import dataclass
from enum import StrEnum

from gpudoctor.model.change import Change
from gpudoctor.model.snapshot import SnapshotHead


class Fate(StrEnum):
    """What became of one change that had been applied."""

    LOST = "lost"
    KEPT = "kept"
    OVERRIDDEN = "overridden"
    CHANGED = "changed"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class KeptItem:
    """One value that a transaction wrote, as its record keeps it."""

    name: str
    before: str
    wanted: str
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class KeptStep:
    """One change of a transaction; `way` counts its check's alternatives from 1, 0 unknown."""

    check: str
    way: int
    title: str
    items: tuple[KeptItem, ...]
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """What a client keeps of a transaction it applied, beside the script.

    `system_uuid` is empty where it was not read: only root reads it, and not every machine has one.
    """

    id: str
    label: str
    operator: str
    machine_id: str
    boot_id: str
    applied: str
    steps: tuple[KeptStep, ...]
    system_uuid: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """One change in the story: which transaction set it, and what is there now.

    `values` are (name, wanted, now) of its items; `by` names the file, the process or the person
    that decided its fate, where known; `why` is one sentence. `can_last`: it has a persistent form;
    `lasts`: that form is in place. `way` as in KeptStep. `again`: it was put back just now.
    """

    transaction: str
    operator: str
    when: str
    check: str
    way: int
    title: str
    fate: Fate
    why: str
    values: tuple[tuple[str, str, str], ...] = ()
    by: str = ""
    can_last: bool = False
    lasts: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class Story:
    """What became of what was set before `since` ended; `since` is the last snapshot of then.

    `rebooted` says that the boot is another; else a driver, container or process was started anew,
    or somebody changed a value. `happened` is that in one sentence.
    """

    label: str
    rebooted: bool
    happened: str
    since: SnapshotHead | None
    told: tuple[Told, ...]

    def of(self, *fates: Fate) -> tuple[Told, ...]:
        """Return the changes of these fates."""
        return tuple(one for one in self.told if one.fate in fates)
