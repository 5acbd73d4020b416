"""A plan between two snapshots, and the countdown in which it is kept or taken back."""

import asyncio
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.loop import apply_between_snapshots
from gpudoctor.model import Sysctl
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Item, Move, Plan, State, StateMoved, Step, TimerArmed
from gpudoctor.model.snapshot import Kind
from gpudoctor.plan import values_hash
from gpudoctor.transaction import confirm, transactions, undo
from gpudoctor.transaction_script import Header, render
from gpudoctor.transaction_simulated_run import ARMED

PATH = "/proc/sys/vm/swappiness"


@dataclass
class Loop:
    """A simulated host, told to be a live one, so that snapshots are kept."""

    machine: SimulatedMachine
    saved: list[Kind]
    word: asyncio.Event

    def plan(self, confirm_within: int = 0, write: str = f"echo 10 > {PATH}") -> Plan:
        item = Item("vm.swappiness", f"cat {PATH}", "60", "10", write, f"echo 60 > {PATH}")
        steps = (Step("a-check", Sysctl("vm.swappiness", "10"), (item,)),)
        name = f"20260101-000000-{len(self.machine.log):06x}"
        header = Header(name, "rig", "alice", "b", values_hash(steps), confirm_within)
        script = render(header, steps)
        return Plan(
            name, "rig", "alice", "m", "b", steps, script, "", confirm_within=confirm_within
        )

    def target(self) -> SimulatedTarget:
        return SimulatedTarget(self.machine, NO_WAIT)

    async def run(self, plan: Plan, waiting: bool = True) -> list[Move]:
        before = AuditResult("rig", "root", Identity("rig", "m", "b"))
        word = self.word if waiting else None
        return [m async for m in apply_between_snapshots(self.target, plan, before, word)]

    @property
    def value(self) -> str | None:
        return self.machine.text(PATH)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    machine = SimulatedMachine(files={PATH: b"60\n"})
    made = Loop(machine, [], asyncio.Event())
    monkeypatch.setattr("gpudoctor.loop.save", lambda result, kind, name: made.saved.append(kind))
    ARMED.clear()
    return made


def states(moves: list[Move]) -> list[State]:
    return [move.state for move in moves if isinstance(move, StateMoved)]


async def armed() -> None:
    """Wait until a timer runs."""
    end = time.monotonic() + 10
    while not ARMED:
        assert time.monotonic() < end
        await asyncio.sleep(0)


def end_timers() -> None:
    """Let the time of all timers be over."""
    ARMED.update(dict.fromkeys(ARMED, 0.0))


async def test_without_a_timer(loop: Loop) -> None:
    assert states(await loop.run(loop.plan())) == [State.APPLYING, State.APPLIED]
    assert loop.saved == [Kind.BEFORE, Kind.AFTER] and loop.value == "10"


async def test_a_failed_plan_has_no_after(loop: Loop) -> None:
    assert states(await loop.run(loop.plan(60, "true")))[-1] is State.FAILED
    assert loop.saved == [Kind.BEFORE] and loop.value == "60" and not ARMED


async def test_confirmed(loop: Loop) -> None:
    loop.word.set()
    moves = await loop.run(loop.plan(60))
    assert states(moves) == [State.APPLYING, State.APPLIED, State.CONFIRMED]
    assert [round(m.seconds) for m in moves if isinstance(m, TimerArmed)] == [60]
    assert loop.saved == [Kind.BEFORE, Kind.AFTER] and loop.value == "10" and not ARMED


async def test_nobody_confirms(loop: Loop) -> None:
    running = asyncio.ensure_future(loop.run(loop.plan(60)))
    await armed()
    end_timers()
    assert states(await running)[-2:] == [State.UNDOING, State.UNDONE]
    assert loop.saved == [Kind.BEFORE] and loop.value == "60"


async def test_the_countdown_blocks_nothing(loop: Loop) -> None:
    running = asyncio.ensure_future(loop.run(loop.plan(1)))
    await armed()
    longest, last = 0.0, time.monotonic()
    while not running.done():
        await asyncio.sleep(0.01)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert longest < 0.5
    assert states(running.result())[-1] is State.UNDONE and loop.value == "60"


async def test_a_word_that_comes_too_late(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer ends it just when the operator says yes."""

    async def late(target: SimulatedTarget, transaction: str) -> StateMoved:
        end_timers()
        return await confirm(target, transaction)

    monkeypatch.setattr("gpudoctor.loop.confirm", late)
    loop.word.set()
    with pytest.raises(Refusal, match="undone, not applied") as refused:
        await loop.run(loop.plan(60))
    assert refused.value.code == 1
    assert loop.saved == [Kind.BEFORE] and loop.value == "60"


async def test_a_word_after_the_end_asks_nothing_more(loop: Loop) -> None:
    """The end and the word come together: the end is told, and no confirmation is tried."""
    running = asyncio.ensure_future(loop.run(loop.plan(60)))
    await armed()
    end_timers()
    while ARMED:
        await asyncio.sleep(0)
        if not running.done():
            await transactions(loop.target())
    loop.word.set()
    assert states(await running)[-1] is State.UNDONE


async def test_quitting_in_the_countdown_leaves_it_to_the_target(loop: Loop) -> None:
    plan = loop.plan(60)
    running = asyncio.ensure_future(loop.run(plan))
    await armed()
    await asyncio.sleep(0.2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert loop.value == "10" and ARMED  # law 7: quitting undoes nothing
    end_timers()
    (told,) = await transactions(loop.target())
    assert told.state is State.UNDONE and loop.value == "60"
    assert loop.saved == [Kind.BEFORE]


async def test_an_undo_in_the_countdown_ends_it(loop: Loop) -> None:
    plan = loop.plan(60)
    running = asyncio.ensure_future(loop.run(plan))
    await armed()
    assert [m async for m in undo(loop.target(), plan.id)]
    assert states(await running)[-1] is State.UNDONE
    assert loop.value == "60" and not ARMED and loop.saved == [Kind.BEFORE]


async def test_nobody_waits_where_nobody_can_confirm(loop: Loop) -> None:
    assert states(await loop.run(loop.plan(60), waiting=False))[-1] is State.APPLIED
    assert ARMED


async def test_no_snapshot_no_write(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Path:
        raise Refusal("the disk is full", 1)

    monkeypatch.setattr("gpudoctor.loop.save", full)
    with pytest.raises(Refusal, match="nothing was changed: the disk is full"):
        await loop.run(loop.plan())
    assert loop.value == "60"


class NotLabelled(SimulatedTarget):
    """A simulated host whose snapshots are kept and compared as a live one's."""

    simulated = False


async def test_error_counters_that_grew_meanwhile_are_told(loop: Loop) -> None:
    """A root port counts corrected errors while the fix is written."""
    loop.machine = demo_machine()
    counter = "/sys/bus/pci/devices/0000:00:01.1/aer_dev_correctable"
    raw = loop.machine.files[counter]
    assert isinstance(raw, bytes) and b"BadTLP 0\n" in raw
    before = await run_audit(NotLabelled(loop.machine, NO_WAIT))
    plan = replace(loop.plan(), boot_id=before.identity.boot_id)
    told = []
    target = partial(NotLabelled, loop.machine, NO_WAIT)
    async for move in apply_between_snapshots(target, plan, before):
        told.append(move)
        loop.machine.files[counter] = raw.replace(b"BadTLP 0\n", b"BadTLP 3\n")
    last = told[-1]
    assert isinstance(last, StateMoved) and last.state is State.APPLIED
    assert last.detail.startswith("error counters grew meanwhile: ") and "0 -> 3" in last.detail
    assert "PCI 0000:00:01.1 AER correctable errors" in last.detail
