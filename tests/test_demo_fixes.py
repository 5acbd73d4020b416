"""The demo host lets every offered fix work: planned, applied, judged anew, and undone exactly."""

import asyncio
from collections.abc import AsyncIterator
from functools import cache

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.capture import capture_chosen
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.model import Status
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.plan import Move, Plan, State, StateMoved
from gpudoctor.plan import make_plan
from gpudoctor.transaction import apply, undo

# A way that begins with one GPU leaves the other seven at issue.
ON_ONE_GPU = {"pcie-max-read-req:2"}
OURS = "/var/lib/gpudoctor/"


@cache
def demo_result() -> AuditResult:
    return asyncio.run(run_audit(SimulatedTarget(demo_machine(), NO_WAIT)))


def offered() -> list[str]:
    """Return every alternative of every issue of the demo, as `check:number`."""
    return [
        f"{finding.id}:{number}"
        for finding in demo_result().of(Status.ISSUE)
        for number in range(1, len(finding.verdict.changes) + 1)
    ]


def planned(machine: SimulatedMachine, *names: str) -> Plan:
    target = SimulatedTarget(machine, NO_WAIT)
    captured = asyncio.run(capture_chosen(target, demo_result(), names))
    return make_plan(demo_result(), captured, names, "tester", confirm_within=0)


async def _end(moves: AsyncIterator[Move]) -> State:
    return [move.state async for move in moves if isinstance(move, StateMoved)][-1]


def state_of(machine: SimulatedMachine) -> dict[str, object]:
    return {path: raw for path, raw in machine.files.items() if not path.startswith(OURS)}


@pytest.mark.parametrize("name", offered())
def test_an_offered_fix_works_and_comes_back(name: str) -> None:
    machine = demo_machine()
    before = state_of(machine)
    plan = planned(machine, name)
    assert not plan.refused and not plan.already
    if not plan.steps:
        assert plan.by_hand and all(one.change.commands for one in plan.by_hand)
        return
    target = SimulatedTarget(machine, NO_WAIT)
    assert asyncio.run(_end(apply(target, plan))) is State.APPLIED
    check = name.partition(":")[0]
    judged = [f for f in asyncio.run(run_audit(target)).findings if f.id == check]
    left = [f for f in judged if f.status is Status.ISSUE]
    assert judged and (not left or name in ON_ONE_GPU and len(left[0].verdict.targets) == 7)
    assert asyncio.run(_end(undo(target, plan.id))) is State.UNDONE
    assert state_of(machine) == before


def test_all_at_once() -> None:
    """Every check's best way in one plan: nothing excludes another, and all come back."""
    machine = demo_machine()
    before = state_of(machine)
    plan = planned(machine, *(name.partition(":")[0] for name in offered()))
    assert not plan.refused
    target = SimulatedTarget(machine, NO_WAIT)
    assert asyncio.run(_end(apply(target, plan))) is State.APPLIED
    assert asyncio.run(_end(undo(target, plan.id))) is State.UNDONE
    assert state_of(machine) == before


def test_two_ways_to_one_end_exclude_each_other() -> None:
    both = [name for name in offered() if name.startswith("kern-cstate-exit:")][:2]
    plan = planned(demo_machine(), *both)
    assert len(plan.steps) == 1
    assert "already serves the same end" in plan.refused[0][1]
