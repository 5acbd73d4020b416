"""A transaction's journal: lines of `UPTIME WORD …`, each on disk before the next thing happens."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpudoctor.model.plan import ItemMoved, State, StateMoved, Transaction
from gpudoctor.text import one_line

_LINE = re.compile(rb"(\d+(?:\.\d+)?) ([a-z-]+)(?: (.*))?")
_ITEM_WORDS = frozenset("intent done ignored complaint drift undone foreign stuck".split())
FINAL = frozenset({State.APPLIED, State.UNDONE, State.FAILED, State.UNDO_FAILED})


@dataclass(frozen=True, slots=True)
class Line:
    """One line: seconds of the target's uptime, what happened, and the rest as safe text."""

    uptime: float
    word: str
    rest: str


def parse(raw: bytes) -> list[Line]:
    """Return the whole lines; what a crash tore is left out."""
    found = (_LINE.fullmatch(line) for line in raw.split(b"\n")[:-1])
    return [
        Line(float(m[1]), m[2].decode(), one_line(m[3] or b"", 400)) for m in found if m is not None
    ]


def moves(lines: Iterable[Line], start: float) -> Iterator[ItemMoved | StateMoved]:
    """Yield what the lines say of items and of the state; `start` is the uptime to count from."""
    for line in lines:
        first, _, rest = line.rest.partition(" ")
        if line.word in _ITEM_WORDS and first.isdecimal():
            yield ItemMoved(int(first), line.word, max(0.0, line.uptime - start), rest)
        elif line.word == "state" and first in set(State):
            yield StateMoved(State(first), rest)


def refusal(lines: Iterable[Line]) -> str:
    """Return the sentence with which the target refused, or an empty string."""
    return next((line.rest for line in lines if line.word == "refused"), "")


def tell(transaction: str, lines: list[Line], boot_id: str) -> Transaction:
    """Return the transaction that a journal tells of; `boot_id` is the boot of now."""
    begins = [i for i, line in enumerate(lines) if line.word == "begin"]
    run = lines[begins[-1] :] if begins else lines
    started, boot, operator = (*(run[0].rest.split(" ", 2) if begins else ()), "", "", "")[:3]
    steps = [line.rest.partition(" ") for line in run if line.word == "step"]
    states = [move.state for move in moves(run, 0.0) if isinstance(move, StateMoved)]
    state = states[-1] if states else State.FAILED if refusal(run) else State.PLANNED
    return Transaction(
        transaction,
        state,
        operator,
        started,
        tuple(title for _, _, title in steps),
        tuple(dict.fromkeys(check for check, _, _ in steps)),
        boot,
        epoch_ended=bool(boot and boot_id and boot != boot_id),
    )
