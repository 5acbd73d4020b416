"""Kernel knobs on the simulated machine: found, changed, good, made to last, and all undone."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.capture import capture, changes_of
from gpudoctor.fixes import mechanism_of
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_seed import load_demo
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model import Class, Finding, Impact, Panel, Status, issue
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.plan import Move, Plan, State, StateMoved
from gpudoctor.plan import make_plan
from gpudoctor.transaction import apply, undo

THP, KSM = "/sys/kernel/mm/transparent_hugepage", "/sys/kernel/mm/ksm"
VM = "/proc/sys/vm"
CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
UNIT = "system.slice/ksmtuned.service"
# What is wrong (beside the demo's own faults), how many items put it right, and keep it so.
WRONG = [
    ("kern-nmi-watchdog", {}, 1, 1),
    ("kern-swappiness", {}, 1, 1),
    ("kern-dirty", {}, 2, 2),
    ("kern-dirty", {f"{VM}/dirty_background_ratio": "9", f"{VM}/dirty_ratio": "33"}, 2, 2),
    ("kern-zone-reclaim", {f"{VM}/zone_reclaim_mode": "3"}, 1, 1),
    ("kern-max-map-count", {f"{VM}/max_map_count": "8192"}, 1, 1),
    ("kern-timer-migration", {"/sys/devices/system/cpu/isolated": "8-15"}, 1, 1),
    ("kern-thp-enabled", {f"{THP}/enabled": "always madvise [never]"}, 1, 1),
    ("kern-thp-defrag", {f"{THP}/defrag": "[always] defer defer+madvise madvise never"}, 1, 1),
    ("kern-ksm", {f"{KSM}/run": "1", f"{KSM}/pages_sharing": "9000"}, 1, 1),
    ("kern-sched-migration-cost", {"/sys/kernel/debug/sched/migration_cost_ns": "50000"}, 1, 2),
    ("kern-clocksource", {CLOCK: "hpet"}, 1, 0),
]


def audited(machine: SimulatedMachine) -> AuditResult:
    return asyncio.run(run_audit(SimulatedTarget(machine, NO_WAIT), [Panel.KERNEL_KNOBS]))


def status(machine: SimulatedMachine, check: str) -> Status:
    (finding,) = [f for f in audited(machine).findings if f.id == check]
    return finding.status


def planned(machine: SimulatedMachine, result: AuditResult, check: str) -> Plan:
    target = SimulatedTarget(machine, NO_WAIT)
    mine = [f for f in result.findings if f.id == check]
    captured = asyncio.run(capture(target, changes_of(mine)))
    return make_plan(result, captured, [check], "tester", confirm_within=0)


def ended(moves: AsyncIterator[Move]) -> State:
    async def last() -> State:
        return [move.state async for move in moves if isinstance(move, StateMoved)][-1]

    return asyncio.run(last())


def applied(machine: SimulatedMachine, plan: Plan) -> State:
    return ended(apply(SimulatedTarget(machine, NO_WAIT), plan))


def undone(machine: SimulatedMachine, plan: Plan) -> State:
    return ended(undo(SimulatedTarget(machine, NO_WAIT), plan.id))


def state(machine: SimulatedMachine) -> Mapping[str, object]:
    ours = "/var/lib/gpudoctor/"
    return {path: data for path, data in machine.files.items() if not path.startswith(ours)}


def demo(edits: Mapping[str, str]) -> SimulatedMachine:
    machine = load_demo()
    machine.files |= {path: f"{text}\n".encode() for path, text in edits.items()}
    return machine


@pytest.mark.parametrize(("check", "edits", "items", "lasting"), WRONG)
def test_there_and_back(check: str, edits: Mapping[str, str], items: int, lasting: int) -> None:
    machine = demo(edits)
    before, result = dict(state(machine)), audited(machine)
    plan = planned(machine, result, check)
    assert len(plan.items) == items and not plan.refused, plan.refused
    assert applied(machine, plan) is State.APPLIED
    assert status(machine, check) in {Status.GOOD, Status.INFO}
    kept = made_to_last(machine, result, plan)
    assert len(kept.items) == lasting and not kept.refused, kept.refused
    if lasting:
        assert applied(machine, kept) is State.APPLIED
        assert not made_to_last(machine, result, plan).items  # already so
        assert undone(machine, kept) is State.UNDONE
    assert undone(machine, plan) is State.UNDONE
    assert dict(state(machine)) == before


def made_to_last(machine: SimulatedMachine, result: AuditResult, plan: Plan) -> Plan:
    """Plan the files that make a plan's changes last."""
    before = {item.name: item.before for item in plan.items}
    made = [mechanism_of(step.change).persist(step.change, before) for step in plan.steps]
    files = tuple(change for change in made if change is not None)
    finding = Finding(
        "x",
        Panel.KERNEL_KNOBS,
        "",
        "host",
        issue("", Class.P0, Impact.LOW, changes=(files,)),
        "",
        "",
    )
    captured = asyncio.run(capture(SimulatedTarget(machine, NO_WAIT), files))
    return make_plan(replace(result, findings=(finding,)), captured, ["x"], confirm_within=0)


def test_the_daemon_that_starts_merging_stops_first_and_starts_again_last() -> None:
    machine = demo(
        {
            f"{KSM}/run": "1",
            f"{KSM}/pages_sharing": "9000",
            "/usr/lib/systemd/system/ksmtuned.service": "[Service]",
            "/run/systemd/units/invocation:ksmtuned.service": "",
        }
    )
    path = f"/sys/fs/cgroup/{UNIT}"
    machine.listings[path] = f"drwxr-xr-x 2 0 0 0 Nov  3 10:00 {path}".encode()
    plan = planned(machine, audited(machine), "kern-ksm")
    assert [item.name for item in plan.items] == ["ksmtuned.service", f"{KSM}/run"]
    assert applied(machine, plan) is State.APPLIED
    assert machine.sh("systemctl is-active ksmtuned")[1] == "inactive\n"
    assert undone(machine, plan) is State.UNDONE
    assert machine.sh("systemctl is-active ksmtuned")[1] == "active\n"
    assert machine.text(f"{KSM}/run") == "1"


def test_more_mappings_than_the_old_limit_hold_the_undo_back() -> None:
    machine = demo({f"{VM}/max_map_count": "3"})
    plan = planned(machine, audited(machine), "kern-max-map-count")
    assert applied(machine, plan) is State.APPLIED
    machine.files["/proc/77/maps"] = b"a\n" * 4
    assert undone(machine, plan) is State.UNDO_FAILED
    assert machine.text(f"{VM}/max_map_count") == "1048576"
    del machine.files["/proc/77/maps"]
    assert undone(machine, plan) is State.UNDONE
    assert machine.text(f"{VM}/max_map_count") == "3"
