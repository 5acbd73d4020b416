"""Plans and transactions as data: what would run, what ran, and how it is taken back."""

from dataclasses import dataclass
from enum import StrEnum

from gpudoctor.model.change import Change, Worked
from gpudoctor.model.finding import Needs
from gpudoctor.model.probe import Side


@dataclass(frozen=True, slots=True)
class Item:
    """One value that a step writes: each is sh text, and values are normalised strings.

    `read` prints the value now; `before` is what it was when planned, `wanted` what it shall be;
    `write` sets it and `undo` puts `before` back. `guard` prints why the undo must not run now, if
    so. A write that changed nothing and complained as `tolerates` (extended regular expression) is
    skipped. What is `lasting` outlives a reboot.
    """

    name: str
    read: str
    before: str
    wanted: str
    write: str
    undo: str
    guard: str = ""
    tolerates: str = ""
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One change of one check with its items, on one side.

    `proof` says where its mechanism was seen working; `unproven` asks the operator twice. `way` is
    the number of the check's alternative that it belongs to, counted from 1; 0 is not known.
    """

    check: str
    change: Change
    items: tuple[Item, ...]
    side: Side = Side.HOST
    risk: str = "low"
    needs: Needs = Needs.NOTHING
    caution: str = ""
    proof: str = ""
    unproven: bool = False
    way: int = 0

    @property
    def title(self) -> str:
        """Return the change in the field's own notation."""
        return self.change.title


@dataclass(frozen=True, slots=True)
class ByHand:
    """A worked plan of one check: commands for this host that gpudoctor never runs itself."""

    check: str
    change: Worked
    needs: Needs = Needs.NOTHING
    observed: str = ""
    expected: str = ""
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order, for one host at one time; `script` is the very text that will run there.

    `hash` covers the values it was made from. `refused` names checks not planned, and why. Where
    `confirm_within` is not 0, the target undoes it all unless confirmed within so many seconds.
    """

    id: str
    label: str
    operator: str
    machine_id: str
    boot_id: str
    steps: tuple[Step, ...]
    script: str
    hash: str
    refused: tuple[tuple[str, str], ...] = ()
    already: tuple[str, ...] = ()
    by_hand: tuple[ByHand, ...] = ()
    confirm_within: int = 0
    system_uuid: str = ""

    @property
    def items(self) -> tuple[Item, ...]:
        """Return all items in the order they are written; the journal counts them from 1."""
        return tuple(item for step in self.steps for item in step.items)


class State(StrEnum):
    """Where a transaction stands."""

    PLANNED = "planned"
    APPLYING = "applying"
    APPLIED = "applied"
    CONFIRMED = "confirmed"
    UNDOING = "undoing"
    UNDONE = "undone"
    FAILED = "failed"
    UNDO_FAILED = "undo-failed"


@dataclass(frozen=True, slots=True)
class ItemMoved:
    """One line of the journal about an item: intent, done, ignored, skipped, undone, foreign …

    `number` counts the plan's items from 1; `seconds` since the start; `detail` is what was read.
    """

    number: int
    phase: str
    seconds: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StateMoved:
    """The transaction is in a new state; `detail` is a sentence where there is more to say."""

    state: State
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TimerArmed:
    """The target takes everything back by itself in so many seconds, unless confirmed."""

    seconds: float


Move = ItemMoved | StateMoved | TimerArmed


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction as its journal tells it.

    `timer` is seconds until the target undoes it, None where no timer is armed. `interrupted`: it
    was applying or undoing, and nothing on the target goes on with it. `written` values are not
    taken back. `began` is the target's uptime then, in seconds; `lasting`: a value of it outlives a
    reboot.
    """

    id: str
    state: State
    operator: str
    started: str
    steps: tuple[str, ...]
    checks: tuple[str, ...]
    boot_id: str
    epoch_ended: bool = False
    timer: float | None = None
    interrupted: bool = False
    written: int = 0
    began: float = 0.0
    lasting: bool = False

    @property
    def stands(self) -> bool:
        """Return whether something of it is on the target that an undo would take back."""
        over = {State.UNDONE, State.FAILED, State.PLANNED}
        return self.state not in over and not self.epoch_ended
