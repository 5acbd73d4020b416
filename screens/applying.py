"""A transaction as its journal tells it, while it is applied, waited for or taken back."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpudoctor.model.plan import ItemMoved, Move, Plan, State, StateMoved, TimerArmed, Transaction

if TYPE_CHECKING:
    from gpudoctor.model.audited import AuditResult

# What an operator should see even where later lines about the same item follow.
_TROUBLE = frozenset({"ignored", "complaint", "drift", "stuck", "foreign", "held", "skipped"})
_BETWEEN = frozenset({State.PLANNED, State.APPLYING, State.APPLIED})
LEFT_BEHIND = frozenset({"stuck", "foreign", "held"})


@dataclass(slots=True)
class Applying:
    """One transaction; of another client's, the plan is not known, only its steps' titles.

    `deadline` and the times are seconds of the monotonic clock. `confirmed` is the operator's word
    to keep it, which its run `hears` or not; `asked` that it was asked back; `chosen` is the
    selection that it came from. `forms` is an audit whose findings offer what would make it last,
    None where nothing would; `without` are the steps that have no such form.
    """

    id: str
    steps: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    plan: Plan | None = None
    chosen: tuple[str, ...] = ()
    moves: dict[int, ItemMoved] = field(default_factory=dict)
    latest: int = 0
    troubles: list[ItemMoved] = field(default_factory=list)
    state: State = State.PLANNED
    undoing: bool = False
    asked: bool = False
    detail: str = ""
    busy: bool = True
    refused: str = ""
    lost: bool = False
    deadline: float | None = None
    confirmed: asyncio.Event = field(default_factory=asyncio.Event)
    hears: bool = False
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    forms: "AuditResult | None" = None
    without: tuple[str, ...] = ()

    def take(self, move: Move) -> None:
        """Add one line of the journal."""
        match move:
            case ItemMoved(phase="complaint"):
                self.troubles.append(move)
            case ItemMoved(number=number, phase=phase):
                self.moves[number], self.latest = move, number
                if phase in _TROUBLE:
                    self.troubles.append(move)
            case TimerArmed(seconds=seconds):
                self.deadline = time.monotonic() + seconds
            case StateMoved(state=state, detail=detail):
                self.state, self.detail = state, detail
                self.undoing = self.undoing or state is State.UNDOING

    def begin(self, undoing: bool = False) -> None:
        """Start another run of it: what stopped the last one is history."""
        self.busy, self.refused, self.lost, self.ended = True, "", False, None
        self.started, self.hears = time.monotonic(), False
        if undoing:
            self.undoing, self.asked, self.troubles = True, True, []

    def end(self, refused: str = "") -> None:
        """Note that nothing more comes, and why where it stopped short."""
        self.busy, self.hears, self.ended = False, False, time.monotonic()
        self.refused = refused
        if refused:  # a word that did not get through can be said again
            self.confirmed = asyncio.Event()

    @property
    def left(self) -> float | None:
        """Return seconds until the target takes it back, 0 once due; None where it does not."""
        if self.deadline is None or self.state not in _BETWEEN:
            return None
        return max(0.0, self.deadline - time.monotonic())

    @property
    def waits(self) -> bool:
        """Return whether it is applied and waits for the operator's word."""
        left = self.left
        return self.state is State.APPLIED and left is not None and (self.busy or left > 0)

    @property
    def running(self) -> bool:
        """Return whether values are being written or put back now."""
        return self.busy and not self.waits

    @property
    def unsettled(self) -> bool:
        """Return whether how it ends is still open."""
        return self.busy or self.waits

    @property
    def drifted(self) -> bool:
        """Return whether the target refused since values had moved since the plan."""
        return any(move.phase == "drift" for move in self.troubles)

    @property
    def timed_out(self) -> bool:
        """Return whether the target took it back by itself, since nobody confirmed it."""
        back = self.state in {State.UNDONE, State.UNDO_FAILED}
        return back and self.deadline is not None and not self.asked

    @property
    def cut_short(self) -> bool:
        """Return whether it is applied, and its run stopped before its end was known."""
        return self.state is State.APPLIED and bool(self.refused) and not self.lost

    @property
    def kept(self) -> bool:
        """Return whether it is applied and stays: nothing of it is open."""
        waited = self.state is State.APPLIED and self.deadline is None
        stays = self.state is State.CONFIRMED or waited
        return stays and not self.unsettled and not self.refused

    @property
    def untouched(self) -> bool:
        """Return whether it was refused before anything was written."""
        return self.state is State.PLANNED and bool(self.refused) and not self.lost

    @property
    def seconds(self) -> float:
        """Return how long this run has taken so far, or took."""
        return (time.monotonic() if self.ended is None else self.ended) - self.started


def applying_plan(plan: Plan, chosen: tuple[str, ...] = ()) -> Applying:
    """Return a plan about to be applied."""
    titles = tuple(step.title for step in plan.steps)
    checks = tuple(dict.fromkeys(step.check for step in plan.steps))
    return Applying(plan.id, titles, checks, plan, chosen)


def applying_known(told: Transaction, plan: Plan | None) -> Applying:
    """Return a transaction that the target keeps, with its plan where this session made it."""
    deadline = None if told.timer is None else time.monotonic() + told.timer
    found = Applying(told.id, told.steps, told.checks, plan, state=told.state, deadline=deadline)
    found.end()
    return found
