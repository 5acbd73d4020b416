"""A transaction on the simulated machine: the script's walk over the same items and texts."""

import time
from collections.abc import AsyncIterator, Generator, Iterator
from datetime import UTC, datetime

from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.journal import moves, parse, refusal, tell
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Item, ItemMoved, Plan, State, StateMoved, Transaction
from gpudoctor.text import one_line
from gpudoctor.transaction_script import Places

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
# What the script holds in its tables, by transaction: the machine interprets single texts only.
_PLANS: dict[str, Plan] = {}


async def apply_simulated(
    machine: SimulatedMachine, plan: Plan, places: Places
) -> AsyncIterator[ItemMoved | StateMoved]:
    """Yield what the script would journal while applying. Raises Refusal as it would."""
    _PLANS[plan.id] = plan
    machine.files[places.script(plan.id)] = plan.script.encode()
    run = _Run(machine, plan, places.journal(plan.id))
    for move in run.watch(run.apply()):
        yield move


async def undo_simulated(
    machine: SimulatedMachine, transaction: str, places: Places
) -> AsyncIterator[ItemMoved | StateMoved]:
    """Yield what the script would journal while undoing. Raises Refusal as it would."""
    run = _Run(machine, _PLANS[transaction], places.journal(transaction))
    for move in run.watch(run.undo()):
        yield move


def told_simulated(machine: SimulatedMachine, places: Places) -> list[Transaction]:
    """Return the transactions that the machine keeps."""
    boot = machine.text(_BOOT_ID) or ""
    return [
        tell(path.split("/")[-2], parse(raw), boot)
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

    def watch(self, lines: Iterator[bytes]) -> Iterator[ItemMoved | StateMoved]:
        """Journal the lines and yield what they say."""
        start: float | None = None
        for raw in lines:
            before = self._machine.files.get(self._journal, b"")
            self._machine.files[self._journal] = (
                before if isinstance(before, bytes) else b""
            ) + raw
            parsed = parse(raw)
            start = parsed[0].uptime if start is None else start
            yield from moves(parsed, start)
            if sentence := refusal(parsed):
                raise Refusal(sentence, 1)

    def apply(self) -> Iterator[bytes]:
        """Walk the items as the script's apply does."""
        plan = self._plan
        yield _line(f"begin {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {plan.boot_id} {plan.operator}")
        for step in plan.steps:
            yield _line(f"step {step.check} {one_line(step.title)}")
        for number, item in enumerate(plan.items, 1):
            now = self._value(item)
            if now != item.before:
                yield _line(f"drift {number} {now}")
                yield _line(
                    f"refused {item.name} is now {now}, and was {item.before} when this was "
                    "planned: plan again"
                )
        yield _line("state applying")
        for number, item in enumerate(plan.items, 1):
            self._open.append(number)
            yield _line(f"intent {number}")
            code, _, complaint = self._machine.sh(item.write)
            now = self._value(item)
            if now != item.wanted:
                yield _line(f"ignored {number} {now}")
                yield _line(f"complaint {number} exit {code}: {one_line(complaint)}")
                yield _line("state undoing")
                stuck = yield from self._undo_items(clamped=(number, now))
                yield _line(f"state {State.UNDO_FAILED if stuck else State.FAILED}")
                return
            yield _line(f"done {number}")
        yield _line("state applied")

    def undo(self) -> Iterator[bytes]:
        """Walk the items as the script's undo does."""
        self._open = self._written()
        yield _line("state undoing")
        stuck = yield from self._undo_items()
        yield _line(f"state {State.UNDO_FAILED if stuck else State.UNDONE}")

    def _undo_items(self, clamped: tuple[int, str] = (0, "")) -> Generator[bytes, None, int]:
        """Put back what is ours, newest first; return how many items stay as they are."""
        stuck = 0
        for number in reversed(self._open):
            item = self._plan.items[number - 1]
            now = self._value(item)
            if now not in {item.before, item.wanted} and (number, now) != clamped:
                yield _line(f"foreign {number} {now}")
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
            elif line.word == "undone":
                found.pop(int(line.rest), None)
        return list(found)

    def _value(self, item: Item) -> str:
        code, out, _ = self._machine.sh(item.read)
        return "(unreadable)" if code else out.rstrip("\n")


def _line(text: str) -> bytes:
    return f"{time.monotonic():.2f} {text}\n".encode()
