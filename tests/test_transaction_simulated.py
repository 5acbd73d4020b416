"""The simulated runner against the real script: the same journal, the same values."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.journal import parse
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Move, Plan, State
from gpudoctor.transaction import apply, confirm, transactions, undo
from gpudoctor.transaction_simulated_run import ARMED
from tests.script_runner import Rig, is_root

pytestmark = pytest.mark.skipif(not is_root(), reason="the script runs as root only")


def usual(rig: Rig) -> None:
    rig.item("one", "1", "0")
    rig.item("two", "a b", "c d")


def ignored(rig: Rig) -> None:
    usual(rig)
    rig.item("three", "1", "0", write="cat {file}")


def clamped(rig: Rig) -> None:
    usual(rig)
    rig.item("three", "1", "100", write="echo 64 > {file}")


def stuck(rig: Rig) -> None:
    usual(rig)
    rig.item("three", "1", "0", undo="cat {file}")


def held(rig: Rig) -> None:
    rig.item("one", "1", "0", guard="echo in use")
    rig.item("two", "a b", "c d")


def tolerated(rig: Rig) -> None:
    rig.item("one", "1", "0", write="cat /nowhere", tolerates="No such|denied")
    rig.item("two", "a b", "c d")
    rig.item("three", "1", "0", write="cat /nowhere", tolerates="denied")


def lasting(rig: Rig) -> None:
    rig.item("one", "1", "0", lasting=True)
    rig.item("two", "a b", "c d")


def nothing(_: dict[str, str]) -> None:
    """Leave all values alone."""


def foreign(values: dict[str, str]) -> None:
    values["one"] = "7"


def put_back(values: dict[str, str]) -> None:
    values["two"] = "a b"


def gone(values: dict[str, str]) -> None:
    values["two"] = "gone"


ALL = [usual, ignored, clamped, stuck, held, tolerated, lasting]
Between = Callable[[dict[str, str]], None]


@pytest.mark.parametrize("items", ALL)
@pytest.mark.parametrize("between", [nothing, foreign, put_back, gone])
@pytest.mark.parametrize("moved", [False, True])
def test_both_tell_the_same(
    tmp_path: Path, items: Callable[[Rig], None], between: Between, moved: bool
) -> None:
    rig = Rig(tmp_path)
    items(rig)
    plan = rig.plan()
    if moved:
        (tmp_path / "two").write_text("elsewhere\n")
    pair = Pair(rig, plan)
    pair.apply()
    pair.change(between)
    if "= applied" in rig.story(plan):
        pair.undo()
    (told,) = asyncio.run(transactions(SimulatedTarget(pair.machine, NO_WAIT), rig.places))
    assert told.checks == tuple(f"check-{item.name}" for item in plan.items)


@pytest.mark.parametrize("items", [usual, stuck, held, tolerated, lasting])
@pytest.mark.parametrize("between", [nothing, foreign, gone])
def test_both_timers_tell_the_same(
    tmp_path: Path, items: Callable[[Rig], None], between: Between
) -> None:
    rig = Rig(tmp_path)
    items(rig)
    if items is tolerated:
        rig.items.pop()
    plan = rig.plan(confirm=3600)
    pair = Pair(rig, plan)
    pair.apply()
    pair.change(between)
    pair.fire()
    assert rig.story(plan)[-1] in {"= undone", "= undo-failed"}


@pytest.mark.parametrize("then", ["fire", "undo"])
def test_both_confirm_the_same(tmp_path: Path, then: str) -> None:
    rig = Rig(tmp_path)
    usual(rig)
    plan = rig.plan(confirm=3600)
    pair = Pair(rig, plan)
    pair.apply()
    pair.confirm()
    pair.confirm()
    if then == "fire":
        pair.fire()
        assert rig.story(plan)[-1] == "= confirmed"
    else:
        pair.undo()
        with pytest.raises(Refusal, match="this transaction is undone, not applied"):
            asyncio.run(confirm(SimulatedTarget(pair.machine, NO_WAIT), plan.id, rig.places))
        assert "this transaction is undone, not applied" in rig.run(plan, "confirm").stderr


def test_both_refuse_what_stands_in_the_way(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    usual(rig)
    first = Pair(rig, rig.plan(1, confirm=3600))
    first.apply()
    rig.items = rig.items[1:]
    rig.items[0] = replace(
        rig.items[0],
        before="c d",
        wanted="e f",
        write=f"echo e f > {tmp_path}/two",
        undo=f"echo c d > {tmp_path}/two",
    )
    second = Pair(rig, rig.plan(2, "bob"), first.machine)
    second.apply()
    assert "of alice@desk still waits to be confirmed" in real(rig, second.plan)[-1]
    first.confirm()
    second.apply()
    first.undo()
    assert f"transaction {second.plan.id} is newer" in real(rig, first.plan)[-1]
    second.undo()
    first.undo()
    assert rig.story(first.plan)[-1] == "= undone"


class Pair:
    """The same plan on a rig and on a simulated machine; both tell the same after each step."""

    def __init__(self, rig: Rig, plan: Plan, machine: SimulatedMachine | None = None) -> None:
        self.rig, self.plan = rig, plan
        self.paths = {item.name: rig.root / item.name for item in plan.items}
        self.machine = machine or SimulatedMachine(
            files={str(p): p.read_bytes() for p in self.paths.values()}
        )
        self.machine.files["/proc/sys/kernel/random/boot_id"] = f"{plan.boot_id}\n".encode()
        rig.put(plan)

    def apply(self) -> None:
        self.rig.run(self.plan, "apply")
        self._watch(apply(self._target, self.plan, self.rig.places))

    def undo(self) -> None:
        self.rig.run(self.plan, "undo")
        self._watch(undo(self._target, self.plan.id, self.rig.places))

    def confirm(self) -> None:
        assert self.rig.run(self.plan, "confirm").returncode == 0
        told = asyncio.run(confirm(self._target, self.plan.id, self.rig.places))
        assert told.state is State.CONFIRMED
        self._same()

    def fire(self) -> None:
        """Let both timers end now."""
        self.rig.run(self.plan, "fire")
        if self.plan.id in ARMED:
            ARMED[self.plan.id] = 0.0
        asyncio.run(transactions(self._target, self.rig.places))
        self._same()

    def change(self, between: Between) -> None:
        """Let somebody else change values on both."""
        values = {name: path.read_text().rstrip("\n") for name, path in self.paths.items()}
        between(values)
        for name, path in self.paths.items():
            path.write_text(f"{values[name]}\n")
            self.machine.files[str(path)] = f"{values[name]}\n".encode()

    @property
    def _target(self) -> SimulatedTarget:
        return SimulatedTarget(self.machine, NO_WAIT)

    def _watch(self, run: AsyncIterator[Move]) -> None:
        async def watch() -> None:
            async for _ in run:
                pass

        try:
            asyncio.run(watch())
        except Refusal as refusal:
            assert refusal.code == 1
        self._same()

    def _same(self) -> None:
        there = journal(self.machine.files[self.rig.places.journal(self.plan.id)])
        assert there == real(self.rig, self.plan)
        for path in self.paths.values():
            assert path.read_bytes() == self.machine.files[str(path)]


def journal(raw: object) -> list[str]:
    """Return a journal without times, and without the words of complaints, which are sh's own."""
    assert isinstance(raw, bytes)
    rows = [(line.word, line.rest) for line in parse(raw)]
    return [f"{w} {r.split(' ')[0] if w in {'begin', 'complaint'} else r}" for w, r in rows][1:]


def real(rig: Rig, plan: Plan) -> list[str]:
    return journal(Path(rig.places.journal(plan.id)).read_bytes())
