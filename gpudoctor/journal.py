"""A transaction's journal: lines of `UPTIME WORD …`, each on disk before the next thing happens."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpudoctor.model.plan import ItemMoved, Move, State, StateMoved, TimerArmed, Transaction
from gpudoctor.text import one_line

_LINE = re.compile(rb"(\d+(?:\.\d+)?) ([a-z-]+)(?: (.*))?")
_ITEM_WORDS = frozenset(
    "intent done ignored skipped complaint drift undone foreign held stuck".split()
)
_CLOSED = frozenset({"undone", "skipped"})
_WAITS = frozenset({State.APPLYING, State.APPLIED, State.UNDOING})
FINAL = frozenset({State.APPLIED, State.CONFIRMED, State.UNDONE, State.FAILED, State.UNDO_FAILED})


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


def moves(lines: Iterable[Line], start: float, now: float | None = None) -> Iterator[Move]:
    """Yield what the lines say of items, the state and the timer.

    `start` is the uptime in seconds to count from, `now` the target's uptime at this moment.
    """
    for line in lines:
        first, _, rest = line.rest.partition(" ")
        if line.word in _ITEM_WORDS and first.isdecimal():
            yield ItemMoved(int(first), line.word, max(0.0, line.uptime - start), rest)
        elif line.word == "state" and first in set(State):
            yield StateMoved(State(first), rest)
        elif line.word == "armed" and first.isdecimal():
            ends = line.uptime + int(first)
            yield TimerArmed(max(0.0, ends - (line.uptime if now is None else now)))


def refusal(lines: Iterable[Line], run: str = "") -> str:
    """Return the sentence with which the target refused (`@RUN SENTENCE`), or an empty string.

    With `run` it is what was said to that run: others may be refused the same transaction.
    """
    said = (line.rest.partition(" ")[::2] for line in lines if line.word == "refused")
    return next((sentence for whose, sentence in said if not run or whose == f"@{run}"), "")


def since_applied(lines: list[Line]) -> list[Line]:
    """Return the lines after the last that says `state applied`, or all of them."""
    at = [i for i, line in enumerate(lines) if (line.word, line.rest) == ("state", "applied")]
    return lines[at[-1] + 1 :] if at else lines


def steps_of(lines: list[Line]) -> tuple[tuple[str, str], ...]:
    """Return check and title of each step of the last run that a journal tells of."""
    begins = [i for i, line in enumerate(lines) if line.word == "begin"]
    run = lines[begins[-1] :] if begins else lines
    steps = (line.rest.partition(" ") for line in run if line.word == "step")
    return tuple((check, title) for check, _, title in steps)


def tell(
    transaction: str,
    lines: list[Line],
    boot_id: str,
    uptime: float = 0.0,
    alive: bool = True,
    waits: bool = True,
) -> Transaction:
    """Return the transaction that a journal tells of.

    `boot_id` and `uptime` are the target's now; `alive` says whether its runner still runs, and
    `waits` whether its timer does.
    """
    begins = [i for i, line in enumerate(lines) if line.word == "begin"]
    run = lines[begins[-1] :] if begins else lines
    started, boot, operator = (*(run[0].rest.split(" ", 2) if begins else ()), "", "", "")[:3]
    steps = steps_of(run)
    told = list(moves(run, 0.0, uptime))
    states = [move.state for move in told if isinstance(move, StateMoved)]
    state = states[-1] if states else State.FAILED if refusal(run) else State.PLANNED
    lasting = any(line.word == "lasting" for line in run)
    ended = bool(boot and boot_id and boot != boot_id) and not lasting
    armed = [move.seconds for move in told if isinstance(move, TimerArmed)]
    waits = waits and state in _WAITS and boot == boot_id
    written = {m.number for m in told if isinstance(m, ItemMoved) and m.phase == "intent"}
    back = {m.number for m in told if isinstance(m, ItemMoved) and m.phase in _CLOSED}
    return Transaction(
        transaction,
        state,
        operator,
        started,
        tuple(title for _, title in steps),
        tuple(dict.fromkeys(check for check, _ in steps)),
        boot,
        epoch_ended=ended,
        timer=armed[-1] if armed and waits else None,
        interrupted=state in {State.APPLYING, State.UNDOING} and not alive and not ended,
        written=len(written - back),
        began=run[0].uptime if begins else 0.0,
        lasting=lasting,
    )
