"""The CPU changes on the demo host: each alternative there, seen by the next audit, and back."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.capture import capture_chosen
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.model import Panel, Status, Unknown
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.plan import Move, Plan, State, StateMoved
from gpudoctor.plan import make_plan
from gpudoctor.transaction import apply, undo

CPUFREQ = "/sys/devices/system/cpu/cpufreq"
GOVERNOR = f"{CPUFREQ}/policy{{}}/scaling_governor"
PREFERENCE = f"{CPUFREQ}/policy{{}}/energy_performance_preference"
OURS = "/var/lib/gpudoctor/"


@pytest.fixture(autouse=True)
def _state_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def demo(**policies: tuple[int, str]) -> SimulatedMachine:
    """Return the demo host with files of some policies set: name = (policy, value)."""
    machine = demo_machine()
    for file, (policy, value) in policies.items():
        machine.files[f"{CPUFREQ}/policy{policy}/{file}"] = f"{value}\n".encode()
    return machine


def audited(machine: SimulatedMachine) -> AuditResult:
    return asyncio.run(run_audit(SimulatedTarget(machine, NO_WAIT), panels=[Panel.KERNEL_KNOBS]))


def status(machine: SimulatedMachine, check: str) -> list[Status]:
    return [finding.status for finding in audited(machine).findings if finding.id == check]


def planned(machine: SimulatedMachine, *checks: str) -> Plan:
    result = audited(machine)
    captured = asyncio.run(capture_chosen(SimulatedTarget(machine, NO_WAIT), result, checks))
    return make_plan(result, captured, checks, "tester", confirm_within=0)


def ended(moves: AsyncIterator[Move]) -> State:
    async def last() -> State:
        return [move.state async for move in moves if isinstance(move, StateMoved)][-1]

    return asyncio.run(last())


def kept(machine: SimulatedMachine) -> dict[str, bytes | Unknown]:
    return {path: raw for path, raw in machine.files.items() if not path.startswith(OURS)}


def there_and_back(machine: SimulatedMachine, check: str) -> Plan:
    before = kept(machine)
    plan = planned(machine, check)
    assert plan.steps and not plan.refused, plan.refused
    target = SimulatedTarget(machine, NO_WAIT)
    assert ended(apply(target, plan)) is State.APPLIED
    assert status(machine, check.partition(":")[0]) == [Status.GOOD]
    assert kept(machine) != before
    assert ended(undo(target, plan.id)) is State.UNDONE
    assert kept(machine) == before
    return plan


@pytest.mark.parametrize(("number", "items"), [(1, 1), (2, 256), (3, 256)])
def test_idle_states(number: int, items: int) -> None:
    plan = there_and_back(demo_machine(), f"kern-cstate-exit:{number}")
    assert len(plan.items) == items


def test_one_governor() -> None:
    machine = demo(scaling_governor=(7, "schedutil"))
    plan = there_and_back(machine, "kern-governor")
    assert [item.name for item in plan.items] == [GOVERNOR.format(7)]


def test_boost() -> None:
    machine = demo_machine()
    machine.files[f"{CPUFREQ}/boost"] = b"0\n"
    there_and_back(machine, "kern-boost")


def test_governor_and_preference_serve_the_same_end() -> None:
    machine = demo(
        scaling_governor=(7, "powersave"),
        energy_performance_preference=(7, "balance_power"),
        energy_performance_available_preferences=(7, "performance balance_power"),
    )
    plan = planned(machine, "kern-governor", "kern-epp")
    assert [step.check for step in plan.steps] == ["kern-governor"]
    assert plan.refused[0][0] == "kern-epp" and "same end" in plan.refused[0][1]
    there_and_back(machine, "kern-governor")
    there_and_back(machine, "kern-epp")


def test_the_second_alternative_where_no_systemd_runs() -> None:
    machine = demo_machine()
    del machine.files["/run/systemd/private"]
    plan = planned(machine, "kern-cstate-exit")
    assert [step.title for step in plan.steps] == ["pm_qos_resume_latency_us = 20 (256 CPUs)"]
