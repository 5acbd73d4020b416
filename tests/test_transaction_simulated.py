"""The simulated runner against the real script: the same journal, the same values."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.journal import parse
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Plan
from gpudoctor.transaction import apply, transactions, undo
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


def nothing(_: dict[str, str]) -> None:
    """Leave all values alone."""


def foreign(values: dict[str, str]) -> None:
    values["one"] = "7"


def put_back(values: dict[str, str]) -> None:
    values["two"] = "a b"


@pytest.mark.parametrize("items", [usual, ignored, clamped, stuck])
@pytest.mark.parametrize("between", [nothing, foreign, put_back])
@pytest.mark.parametrize("moved", [False, True])
def test_both_tell_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    items: Callable[[Rig], None],
    between: Callable[[dict[str, str]], None],
    moved: bool,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "client"))
    rig = Rig(tmp_path)
    items(rig)
    plan = rig.plan()
    if moved:
        (tmp_path / "two").write_text("elsewhere\n")
    paths = {item.name: tmp_path / item.name for item in rig.items}
    machine = SimulatedMachine(files={str(p): p.read_bytes() for p in paths.values()})
    machine.files["/proc/sys/kernel/random/boot_id"] = f"{plan.boot_id}\n".encode()

    rig.put(plan)
    rig.run(plan, "apply")
    simulated(machine, plan, rig)
    assert journal(machine.files[rig.places.journal(plan.id)]) == real(rig, plan)

    values = {name: path.read_text().rstrip("\n") for name, path in paths.items()}
    between(values)
    for name, path in paths.items():
        path.write_text(f"{values[name]}\n")
        machine.files[str(path)] = f"{values[name]}\n".encode()
    if "= applied" in rig.story(plan):
        rig.run(plan, "undo")
        simulated(machine, plan, rig, undoing=True)
    assert journal(machine.files[rig.places.journal(plan.id)]) == real(rig, plan)
    assert {str(p): p.read_bytes() for p in paths.values()} == {
        str(p): machine.files[str(p)] for p in paths.values()
    }
    (told,) = asyncio.run(transactions(SimulatedTarget(machine, NO_WAIT), rig.places))
    assert told.checks == tuple(f"check-{item.name}" for item in plan.items)


def simulated(machine: SimulatedMachine, plan: Plan, rig: Rig, undoing: bool = False) -> None:
    """Apply or undo on the machine, as far as it is not refused."""
    target = SimulatedTarget(machine, NO_WAIT)
    run = undo(target, plan.id, rig.places) if undoing else apply(target, plan, rig.places)

    async def watch() -> None:
        async for _ in run:
            pass

    try:
        asyncio.run(watch())
    except Refusal as refusal:
        assert refusal.code == 1


def journal(raw: object) -> list[str]:
    """Return a journal without times, and without the words of complaints, which are sh's own."""
    assert isinstance(raw, bytes)
    rows = [(line.word, line.rest) for line in parse(raw)]
    return [f"{w} {r.split(' ')[0] if w in {'begin', 'complaint'} else r}" for w, r in rows][1:]


def real(rig: Rig, plan: Plan) -> list[str]:
    return journal(Path(rig.places.journal(plan.id)).read_bytes())
