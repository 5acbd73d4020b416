"""The script's walk over a plan's items, on the simulated machine, journal line by line."""

import re
import time
from collections.abc import Generator, Iterator
from datetime import UTC, datetime

from gpudoctor.fixes.mechanism import GONE
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.journal import Line, moves, parse, refusal
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Item, Move, Plan, State, StateMoved
from gpudoctor.text import one_line
from gpudoctor.transaction_script import Places

BOOT_ID = "/proc/sys/kernel/random/boot_id"
# What the script holds in its tables, by transaction: the machine interprets single texts only.
PLANS: dict[str, Plan] = {}
# When its timer takes a transaction back, in seconds of the monotonic clock.
ARMED: dict[str, float] = {}
_OVER = frozenset({None, State.UNDONE, State.FAILED})


def names(machine: SimulatedMachine, places: Places) -> list[str]:
    """Return the ids of the transactions that the machine keeps."""
    folder, script = f"{places.home}/", places.script("").rsplit("/", 1)[-1]
    paths = [path for path in machine.files if path.startswith(folder)]
    return [path.split("/")[-2] for path in paths if path.endswith(f"/{script}")]


def journal(machine: SimulatedMachine, transaction: str, places: Places) -> bytes:
    """Return a transaction's journal as it is now."""
    raw = machine.files.get(places.journal(transaction), b"")
    return raw if isinstance(raw, bytes) else b""


class SimulatedRun:
    """One run over a plan's items; every method yields journal lines as they are written."""

    def __init__(self, machine: SimulatedMachine, plan: Plan, places: Places) -> None:
        self._machine = machine
        self._plan = plan
        self._places = places
        self._journal = places.journal(plan.id)

    def watch(self, lines: Iterator[bytes]) -> Iterator[Move]:
        """Journal the lines and yield what they say."""
        start: float | None = None
        for raw in lines:
            before = journal(self._machine, self._plan.id, self._places)
            self._machine.files[self._journal] = before + raw
            parsed = parse(raw)
            start = parsed[0].uptime if start is None else start
            yield from moves(parsed, start, time.monotonic())
            if sentence := refusal(parsed):
                raise Refusal(sentence, 1)

    def apply(self) -> Iterator[bytes]:
        """Walk the items as the script's apply does."""
        plan = self._plan
        state = self._state()
        if state not in _OVER:
            yield _refused(f"this transaction is already {state}")
        yield entry(f"begin {utc()} {plan.boot_id} {plan.operator}")
        for step in plan.steps:
            yield entry(f"step {step.check} {one_line(step.title)}")
        if any(item.lasting for item in plan.items):
            yield entry("lasting")
        if not self._same_boot():
            yield _refused("the machine has rebooted since this was planned: plan again")
        yield from self._waiting()
        for number, item in enumerate(plan.items, 1):
            now = self._value(item)
            if now != item.before:
                yield entry(f"drift {number} {_flat(now)}")
                yield _refused(
                    f"{item.name} is now {now}, and was {item.before} when this was planned: plan "
                    "again"
                )
        if plan.confirm_within:
            ARMED[plan.id] = time.monotonic() + plan.confirm_within
            yield entry(f"armed {plan.confirm_within} session")
        yield entry("state applying")
        for number, item in enumerate(plan.items, 1):
            if not (yield from self._apply_item(number, item)):
                yield from self._take_back(State.FAILED)
                return
        if not self._written():  # every write was skipped
            yield from self._take_back(State.FAILED)
            return
        yield entry("state applied")

    def undo(self) -> Iterator[bytes]:
        """Walk the items as the script's undo does."""
        lasting = any(self._plan.items[n - 1].lasting for n in self._written())
        if not self._same_boot() and not lasting:
            yield entry(f"state {State.UNDONE} the reboot since then already undid it")
            return
        if newer := self._newer():
            yield _refused(f"transaction {newer} is newer and stands on this value: undo it first")
        yield from self._take_back(State.UNDONE)

    def fire(self) -> Iterator[bytes]:
        """Walk the items as the script's timer does."""
        yield entry("fired")
        yield from self._take_back(
            State.UNDONE, f"nobody confirmed within {self._plan.confirm_within} s"
        )

    def _waiting(self) -> Iterator[bytes]:
        """Refuse while another transaction waits to be confirmed."""
        for other in names(self._machine, self._places):
            if other in ARMED and other != self._plan.id:
                who = PLANS[other].operator
                yield _refused(
                    f"transaction {other} of {who} still waits to be confirmed: confirm it, or "
                    "roll it back"
                )

    def _apply_item(self, number: int, item: Item) -> Generator[bytes, None, bool]:
        """Write one item and read it back; return whether the batch may go on."""
        now = self._value(item)
        if now != item.before:
            yield entry(f"drift {number} {_flat(now)}")
            return False
        yield entry(f"intent {number}")
        code, _, complaint = self._machine.sh(item.write)
        now = self._value(item)
        if now == item.wanted:
            yield entry(f"done {number}")
        elif now == item.before and item.tolerates and re.search(item.tolerates, complaint):
            yield entry(f"skipped {number} {_flat(complaint.strip())}")
        else:
            yield entry(f"ignored {number} {_flat(now)}")
            yield entry(f"complaint {number} exit {code}: {_flat(complaint.strip())}")
            return False
        return True

    def _take_back(self, end: State, why: str = "") -> Generator[bytes, None, None]:
        """Put back what is ours, newest first, and end as that state, or as undo-failed."""
        yield entry(f"state undoing {why}".rstrip())
        stuck = False
        for number in reversed(self._written()):
            if not (yield from self._undo_item(number, self._plan.items[number - 1])):
                stuck = True
        ARMED.pop(self._plan.id, None)
        yield entry(f"state {State.UNDO_FAILED}" if stuck else f"state {end} {why}".rstrip())

    def _undo_item(self, number: int, item: Item) -> Generator[bytes, None, bool]:
        """Put one item back; return whether nothing of it is left."""
        now = self._value(item)
        if now in {item.before, GONE}:
            yield entry(f"undone {number}")
            return True
        if not item.lasting and not self._same_boot():
            yield entry(f"undone {number} by the reboot")
            return True
        if now != item.wanted and _flat(now) != self._ignored(number):
            yield entry(f"foreign {number} {_flat(now)}")
            return False
        if why := self._machine.sh(item.guard)[1].strip() if item.guard else "":
            yield entry(f"held {number} {_flat(why)}")
            return False
        code, _, complaint = self._machine.sh(item.undo)
        now = self._value(item)
        if now in {item.before, GONE}:
            yield entry(f"undone {number}")
            return True
        yield entry(f"stuck {number} {_flat(now)}")
        yield entry(f"complaint {number} exit {code}: {_flat(complaint.strip())}")
        return False

    def _lines(self) -> list[Line]:
        return parse(journal(self._machine, self._plan.id, self._places))

    def _state(self) -> State | None:
        """Return the last state of all runs, None where nothing was written yet."""
        told = [move.state for move in moves(self._lines(), 0.0) if isinstance(move, StateMoved)]
        return told[-1] if told else None

    def _same_boot(self) -> bool:
        return self._machine.text(BOOT_ID) in {None, self._plan.boot_id}

    def _ignored(self, number: int) -> str | None:
        """Return what the machine made of the last write or undo that it did not take as it was."""
        made = None
        for line in self._lines():
            item, _, value = line.rest.partition(" ")
            if line.word == "begin" or (line.word == "done" and item == str(number)):
                made = None
            elif line.word in {"ignored", "stuck"} and item == str(number):
                made = value
        return made

    def _newer(self) -> str:
        """Return a later transaction that stands on an item of ours."""
        ours = {self._plan.items[number - 1].name for number in self._written()}
        begun = self._begun(self._plan.id)
        for other in names(self._machine, self._places):
            stands = SimulatedRun(self._machine, PLANS[other], self._places)._state() not in _OVER
            if (
                stands
                and self._begun(other) > begun
                and ours & {i.name for i in PLANS[other].items}
            ):
                return other
        return ""

    def _begun(self, transaction: str) -> float:
        """Return when its last run began, in seconds of uptime."""
        lines = parse(journal(self._machine, transaction, self._places))
        return max((one.uptime for one in lines if one.word == "begin"), default=0.0)

    def _written(self) -> list[int]:
        """Return the numbers of the items written and not taken back, in the script's order."""
        found: set[int] = set()
        for line in self._lines():
            if line.word == "intent":
                found.add(int(line.rest))
            elif line.word in {"undone", "skipped"}:
                found.discard(int(line.rest.split(" ")[0]))
        return sorted(found)

    def _value(self, item: Item) -> str:
        code, out, _ = self._machine.sh(item.read)
        return "(unreadable)" if code else out.rstrip("\n")


def utc() -> str:
    """Return the time now, as the script writes it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _flat(value: str) -> str:
    """Return a value as the script journals it: one line of ASCII, at most 200 characters."""
    return "".join(c if " " <= c <= "~" else " " for c in value)[:200]


def _refused(sentence: str) -> bytes:
    return entry(f"refused @hand {_flat(sentence)}")


def entry(text: str) -> bytes:
    """Return a line of the journal."""
    return f"{time.monotonic():.2f} {text}\n".encode()
