"""Worked plans that an operator accepted, and what an audit finds of them."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What the audit says of a plan that was accepted."""

    DONE = "done"
    NOT_YET = "not yet done"
    DIFFERENTLY = "done differently"
    UNKNOWN = "cannot be told"


@dataclass(frozen=True, slots=True)
class Pending:
    """One accepted plan: what was found then, in which boot; `done` is when it was found done."""

    check: str
    what: str
    accepted: str
    boot_id: str
    observed: str
    expected: str
    needs: str
    targets: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    done: str = ""


@dataclass(frozen=True, slots=True)
class PendingTold:
    """A pending plan and what this audit found of it, in one sentence."""

    pending: Pending
    outcome: Outcome
    sentence: str
