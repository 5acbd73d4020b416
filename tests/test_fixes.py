"""Every case in tests/fixes: a change and a state in; exact texts, undo and end state out.

A case is `tests/fixes/<mechanism>/<name>.toml`:

    refused = "words of the sentence"       instead of items
    [change]       type, and the fields of the Change
    [files]        path = text              [missing] path = reason
    [[item]]       name, read, before, wanted, write, undo (guard, tolerates, lasting where set);
                   none: nothing to do
    [after]        path = text once applied on the simulated machine; [files] again once undone
    [files-hex], [after-hex]  the same, as bytes
"""

import asyncio
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import model
from gpudoctor.capture import capture
from gpudoctor.fixes import known_types, mechanism_of
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model import Change, Class, Finding, Impact, Panel, Reason, Unknown, issue
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.plan import Move, Plan, State, StateMoved
from gpudoctor.plan import make_plan
from gpudoctor.transaction import apply, undo

FOLDER = Path(__file__).parent / "fixes"
CASES = sorted(FOLDER.glob("*/*.toml"))
FIELDS = ("name", "read", "before", "wanted", "write", "undo")
OPTIONAL = ("guard", "tolerates", "lasting")


def change_of(table: dict[str, Any]) -> Change:
    """Return the Change that a case's table describes; arrays are tuples."""
    kind = getattr(model, table["type"])
    values = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in table.items()
        if key != "type"
    }
    made = kind(**values)
    assert isinstance(made, Change)
    return made


def machine_of(case: dict[str, Any]) -> SimulatedMachine:
    """Return the machine that a case describes."""
    files: dict[str, bytes | Unknown] = {
        path: text.encode() for path, text in case.get("files", {}).items()
    }
    files |= {path: bytes.fromhex(text) for path, text in case.get("files-hex", {}).items()}
    missing = {p: Unknown(Reason(why), p) for p, why in case.get("missing", {}).items()}
    files |= {p: why for p, why in missing.items() if why.reason is not Reason.NOT_PRESENT}
    return SimulatedMachine(files=files)


def planned(case: dict[str, Any], machine: SimulatedMachine) -> Plan:
    """Plan a case's change as the fix of a check."""
    change = change_of(case["change"])
    verdict = issue("x", Class.P0, Impact.LOW, changes=((change,),))
    finding = Finding("a-check", Panel.KERNEL_KNOBS, "", "host", verdict, "", "")
    result = AuditResult("a host", identity=Identity(boot_id="b"), findings=(finding,))
    captured = asyncio.run(capture(SimulatedTarget(machine, NO_WAIT), [change]))
    return make_plan(result, captured, ["a-check"], "somebody", confirm_within=0)


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_case(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    case = tomllib.loads(path.read_text())
    machine = machine_of(case)
    plan = planned(case, machine)
    wanted = [{key: item[key].rstrip("\n") for key in FIELDS} for item in case.get("item", [])]
    assert [{key: getattr(item, key) for key in FIELDS} for item in plan.items] == wanted
    for item, told in zip(plan.items, case.get("item", []), strict=True):
        assert {key: getattr(item, key) for key in OPTIONAL if key in told} == {
            key: told[key] for key in OPTIONAL if key in told
        }
    if "refused" in case:
        assert plan.refused and case["refused"] in plan.refused[0][1]
    elif not wanted:
        assert plan.already == ("a-check",) and not plan.steps
    for number, item in enumerate(plan.items, 1):
        for text in filter(None, (item.write, item.undo, item.guard)):
            assert f"\n{number}) {text};;\n" in plan.script or f"\n*) {text};;\n" in plan.script
    if "after" in case:
        asyncio.run(_there_and_back(plan, machine, case))


async def _there_and_back(plan: Plan, machine: SimulatedMachine, case: dict[str, Any]) -> None:
    before = dict(machine.files)
    target = SimulatedTarget(machine, NO_WAIT)
    assert await _end(apply(target, plan)) is State.APPLIED
    for path, text in case["after"].items():
        assert machine.text(path) == text.rstrip("\n"), path
    for path, digits in case.get("after-hex", {}).items():
        assert machine.files[path] == bytes.fromhex(digits), path
    assert all(item.write in machine.log for item in plan.items)
    assert await _end(undo(target, plan.id)) is State.UNDONE
    ours = "/var/lib/gpudoctor/"
    assert {p: raw for p, raw in machine.files.items() if not p.startswith(ours)} == before


async def _end(moves: AsyncIterator[Move]) -> State | None:
    last = [move async for move in moves][-1]
    return last.state if isinstance(last, StateMoved) else None


@pytest.mark.parametrize("kind", known_types(), ids=lambda kind: kind.__name__)
def test_every_mechanism_changes_finds_nothing_to_do_and_refuses(kind: type[Change]) -> None:
    cases = [tomllib.loads(p.read_text()) for p in CASES]
    mine = [case for case in cases if case["change"]["type"] == kind.__name__]
    assert any("after" in case for case in mine)
    assert any("item" not in case and "refused" not in case for case in mine)
    assert any("refused" in case for case in mine)
    assert mechanism_of(change_of(mine[0]["change"]))
