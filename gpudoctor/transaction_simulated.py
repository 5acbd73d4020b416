"""A transaction on the simulated machine: the script's walk over the same items and texts."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Generator, Iterator
from datetime import UTC, datetime

from gpudoctor.fixes.mechanism import GONE
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.journal import FINAL, moves, parse, refusal, tell
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Item, Move, Plan, State, StateMoved, Transaction
from gpudoctor.text import one_line
from gpudoctor.transaction_script import Places

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
# What the script holds in its tables, by transaction: the machine interprets single texts only.
_PLANS: dict[str, Plan] = {}
# When its timer takes a transaction back, in seconds of the monotonic clock.
_ARMED: dict[str, float] = {}
_LOOK_SECONDS = 0.1


async def apply_simulated(
    machine: SimulatedMachine, plan: Plan, places: Places
) -> AsyncIterator[Move]:
    """Yield what the script would journal while applying. Raises Refusal as it would."""
    _PLANS[plan.id] = plan
    machine.files[places.script(plan.id)] = plan.script.encode()
    run = _Run(machine, plan, places.journal(plan.id))
    for move in run.watch(run.apply()):
        yield move


async def undo_simulated(
    machine: SimulatedMachine, transaction: str, places: Places
) -> AsyncIterator[Move]:
    """Yield what the script would journal while undoing. Raises Refusal as it would."""
    _ARMED.pop(transaction, None)
    run = _Run(machine, _PLANS[transaction], places.journal(transaction))
    for move in run.watch(run.undo()):
        yield move


async def watch_simulated(
    machine: SimulatedMachine, transaction: str, places: Places
) -> AsyncIterator[Move]:
    """Yield the end of a transaction that waits to be confirmed."""
    while True:
        _expire(machine, places)
        raw = machine.files.get(places.journal(transaction), b"")
        told = list(moves(parse(raw if isinstance(raw, bytes) else b""), 0.0))
        last = [move for move in told if isinstance(move, StateMoved)][-1:]
        if last and last[0].state in FINAL - {State.APPLIED}:
            yield last[0]
            return
        await asyncio.sleep(_LOOK_SECONDS)


def confirm_simulated(machine: SimulatedMachine, transaction: str, places: Places) -> StateMoved:
    """Keep a transaction, as the script does. Raises Refusal."""
    _expire(machine, places)
    known = {t.id: t for t in told_simulated(machine, places)}
    if known[transaction].state is State.CONFIRMED:
        return StateMoved(State.CONFIRMED)
    if known[transaction].state is not State.APPLIED:
        state = known[transaction].state
        raise Refusal(f"this transaction is {state}, not applied: there is nothing to confirm", 1)
    _ARMED.pop(transaction, None)
    run = _Run(machine, _PLANS[transaction], places.journal(transaction))
    when = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    list(run.watch(iter([_line(f"state {State.CONFIRMED} {when}")])))
    return StateMoved(State.CONFIRMED, when)


def clean_simulated(machine: SimulatedMachine, transactions: list[str], places: Places) -> None:
    """Remove the folders of these transactions."""
    for transaction in transactions:
        folder = f"{places.folder(transaction)}/"
        for path in [path for path in machine.files if path.startswith(folder)]:
            del machine.files[path]
        _PLANS.pop(transaction, None)


def _expire(machine: SimulatedMachine, places: Places) -> None:
    """Do what a timer on a real target does, once its time has come."""
    for transaction, end in list(_ARMED.items()):
        if time.monotonic() >= end and places.journal(transaction) in machine.files:
            del _ARMED[transaction]
            run = _Run(machine, _PLANS[transaction], places.journal(transaction))
            list(run.watch(run.fire()))


def told_simulated(machine: SimulatedMachine, places: Places) -> list[Transaction]:
    """Return the transactions that the machine keeps."""
    _expire(machine, places)
    boot = machine.text(_BOOT_ID) or ""
    return [
        tell(path.split("/")[-2], parse(raw), boot, time.monotonic())
        for path, raw in machine.files.items()
        if path.startswith(f"{places.home}/") and path.endswith("/journal")
        if isinstance(raw, bytes)
    ]


class _Run:
    """One run over a plan's items; every method yields journal lines as they are written."""

    def __init__(self, machine: SimulatedMachine, plan: Plan, journal: str) -> None:
        self._machine = machine
        self._plan = plan
        self._journal = journal
        self._open: list[int] = []

    def watch(self, lines: Iterator[bytes]) -> Iterator[Move]:
        """Journal the lines and yield what they say."""
        start: float | None = None
        for raw in lines:
            before = self._machine.files.get(self._journal, b"")
            self._machine.files[self._journal] = (
                before if isinstance(before, bytes) else b""
            ) + raw
            parsed = parse(raw)
            start = parsed[0].uptime if start is None else start
            yield from moves(parsed, start, time.monotonic())
            if sentence := refusal(parsed):
                raise Refusal(sentence, 1)

    def apply(self) -> Iterator[bytes]:
        """Walk the items as the script's apply does."""
        plan = self._plan
        yield _line(f"begin {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {plan.boot_id} {plan.operator}")
        for step in plan.steps:
            yield _line(f"step {step.check} {one_line(step.title)}")
        if any(item.lasting for item in plan.items):
            yield _line("lasting")
        for number, item in enumerate(plan.items, 1):
            now = self._value(item)
            if now != item.before:
                yield _line(f"drift {number} {now}")
                yield _line(
                    f"refused {item.name} is now {now}, and was {item.before} when this was "
                    "planned: plan again"
                )
        if plan.confirm_within:
            _ARMED[plan.id] = time.monotonic() + plan.confirm_within
            yield _line(f"armed {plan.confirm_within} session")
        yield _line("state applying")
        for number, item in enumerate(plan.items, 1):
            self._open.append(number)
            yield _line(f"intent {number}")
            code, _, complaint = self._machine.sh(item.write)
            now = self._value(item)
            if now == item.before and item.tolerates and re.search(item.tolerates, complaint):
                self._open.remove(number)
                yield _line(f"skipped {number} {one_line(complaint)}")
                continue
            if now != item.wanted:
                _ARMED.pop(plan.id, None)
                yield _line(f"ignored {number} {now}")
                yield _line(f"complaint {number} exit {code}: {one_line(complaint)}")
                yield _line("state undoing")
                stuck = yield from self._undo_items(clamped=(number, now))
                yield _line(f"state {State.UNDO_FAILED if stuck else State.FAILED}")
                return
            yield _line(f"done {number}")
        yield _line("state applied")

    def undo(self, why: str = "") -> Iterator[bytes]:
        """Walk the items as the script's undo does."""
        self._open = self._written()
        yield _line(f"state undoing {why}".rstrip())
        stuck = yield from self._undo_items()
        state = State.UNDO_FAILED if stuck else State.UNDONE
        yield _line(f"state {state} {'' if stuck else why}".rstrip())

    def fire(self) -> Iterator[bytes]:
        """Walk the items as the script's timer does."""
        return self.undo(f"nobody confirmed within {self._plan.confirm_within} s")

    def _undo_items(self, clamped: tuple[int, str] = (0, "")) -> Generator[bytes, None, int]:
        """Put back what is ours, newest first; return how many items stay as they are."""
        stuck = 0
        for number in reversed(self._open):
            item = self._plan.items[number - 1]
            now = self._value(item)
            if now == GONE:
                yield _line(f"undone {number}")
                continue
            if now not in {item.before, item.wanted} and (number, now) != clamped:
                yield _line(f"foreign {number} {now}")
                stuck += 1
                continue
            why = self._machine.sh(item.guard)[1].strip() if item.guard else ""
            if why and now != item.before:
                yield _line(f"held {number} {one_line(why)}")
                stuck += 1
                continue
            code, complaint = 0, ""
            if now != item.before:
                code, _, complaint = self._machine.sh(item.undo)
                now = self._value(item)
            if now == item.before:
                yield _line(f"undone {number}")
                continue
            yield _line(f"stuck {number} {now}")
            yield _line(f"complaint {number} exit {code}: {one_line(complaint)}")
            stuck += 1
        return stuck

    def _written(self) -> list[int]:
        """Return the numbers of the items written and not taken back, oldest first."""
        raw = self._machine.files[self._journal]
        found: dict[int, None] = {}
        for line in parse(raw if isinstance(raw, bytes) else b""):
            if line.word == "intent":
                found[int(line.rest)] = None
            elif line.word in {"undone", "skipped"}:
                found.pop(int(line.rest), None)
        return list(found)

    def _value(self, item: Item) -> str:
        code, out, _ = self._machine.sh(item.read)
        return "(unreadable)" if code else out.rstrip("\n")


def _line(text: str) -> bytes:
    return f"{time.monotonic():.2f} {text}\n".encode()
