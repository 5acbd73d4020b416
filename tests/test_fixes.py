"""Every case in tests/fixes: a change and a state in; exact texts, undo and end state out.

A case is `tests/fixes/<mechanism>/<name>.toml`:

    refused = "words of the sentence"       instead of items
    [change]       type, and the fields of the Change
    [files]        path = text              [missing] path = reason
    [[item]]       name, read, before, wanted, write, undo; none: nothing to do
    [after]        path = text once applied on the simulated machine; [files] again once undone
"""

import asyncio
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.fixes import mechanism_of
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model import (
    Class,
    Evidence,
    Finding,
    Impact,
    Panel,
    Reason,
    Sysctl,
    Unknown,
    issue,
)
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.plan import ItemMoved, Plan, State, StateMoved
from gpudoctor.plan import make_plan
from gpudoctor.transaction import apply, undo

FOLDER = Path(__file__).parent / "fixes"
CASES = sorted(FOLDER.glob("*/*.toml"))
TYPES = {"Sysctl": Sysctl}
FIELDS = ("name", "read", "before", "wanted", "write", "undo")


def planned(case: dict[str, Any]) -> Plan:
    """Plan a case's change as the fix of a check."""
    change = TYPES[case["change"].pop("type")](**case["change"])
    files: dict[str, bytes | Unknown] = {
        path: text.encode() for path, text in case.get("files", {}).items()
    }
    files |= {p: Unknown(Reason(why), p) for p, why in case.get("missing", {}).items()}
    verdict = issue("x", Class.P0, Impact.LOW, changes=((change,),))
    finding = Finding("a-check", Panel.KERNEL_KNOBS, "", "host", verdict, "", "")
    result = AuditResult(
        "a host",
        identity=Identity(boot_id="b"),
        findings=(finding,),
        evidence={"k": Evidence("k", files=files)},
    )
    return make_plan(result, ["a-check"], "somebody")


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_case(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    case = tomllib.loads(path.read_text())
    plan = planned(case)
    wanted = [{key: item[key].rstrip("\n") for key in FIELDS} for item in case.get("item", [])]
    assert [{key: getattr(item, key) for key in FIELDS} for item in plan.items] == wanted
    if "refused" in case:
        assert case["refused"] in plan.refused[0][1]
    elif not wanted:
        assert plan.already == ("a-check",) and not plan.steps
    for item in plan.items:
        assert f"\n1) {item.write};;\n" in plan.script and f"\n1) {item.undo};;\n" in plan.script
    if "after" in case:
        asyncio.run(_there_and_back(plan, case))


async def _there_and_back(plan: Plan, case: dict[str, Any]) -> None:
    before = {path: text.encode() for path, text in case["files"].items()}
    machine = SimulatedMachine(files=dict(before))
    target = SimulatedTarget(machine, NO_WAIT)
    assert await _end(apply(target, plan)) is State.APPLIED
    assert {p: machine.text(p) for p in before} == {
        p: text.rstrip("\n") for p, text in case["after"].items()
    }
    assert [text for text in machine.log if text == plan.items[0].write]
    assert await _end(undo(target, plan.id)) is State.UNDONE
    assert {p: machine.files[p] for p in before} == before


async def _end(moves: AsyncIterator[ItemMoved | StateMoved]) -> State | None:
    last = [move async for move in moves][-1]
    return last.state if isinstance(last, StateMoved) else None


def test_every_mechanism_changes_finds_nothing_to_do_and_refuses() -> None:
    for name, kind in TYPES.items():
        mine = [tomllib.loads(p.read_text()) for p in CASES]
        mine = [case for case in mine if case["change"]["type"] == name]
        assert any("after" in case for case in mine)
        assert any("item" not in case and "refused" not in case for case in mine)
        assert any("refused" in case for case in mine)
        assert mechanism_of(kind("a.b", "0"))
