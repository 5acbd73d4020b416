"""A scripted host for the screens' changes: what it captures and plans, and how it is driven."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot

from gpudoctor.app import GpuDoctor
from gpudoctor.capture import Captured
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.plan import Plan, State
from tests.screen_host import ScriptedAudit, ScriptedTransactions, plan_of
from tests.screen_pilot import ask, press, shown, wait_for

Change = Callable[[Plan], Plan]


class Host:
    """A scripted host: what it captures, how its plans look, and its transactions."""

    def __init__(self) -> None:
        """Begin with plans as the planner would make them."""
        self.captures: list[Any] = []
        self.change: Change = lambda plan: plan
        self.planned: list[tuple[str, ...]] = []
        self.kept = ScriptedTransactions()

    async def capture(self, target: object, changes: list[Any]) -> Captured:
        """Note what is read."""
        self.captures.append(changes)
        return {}

    def plan(self, result: AuditResult, captured: Captured, chosen: tuple[str, ...]) -> Plan:
        """Plan the selection, changed as the test wants it."""
        self.planned.append(chosen)
        names = [entry.partition(":")[0] for entry in chosen]
        return self.change(plan_of(result, captured, names))


@pytest.fixture(name="host")
def scripted_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Replace all that asks a host."""
    made = Host()
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr("gpudoctor.audit.Audit", ScriptedAudit)
    monkeypatch.setattr("gpudoctor.capture.capture", made.capture)
    monkeypatch.setattr("gpudoctor.plan.make_plan", made.plan)
    made.kept.replace_in(monkeypatch)
    yield made


def timed(plan: Plan) -> Plan:
    """Return the plan with a timer."""
    return replace(plan, confirm_within=60)


async def planned(pilot: Pilot[None], app: GpuDoctor) -> None:
    """Select the finding about NUMA balancing."""
    await press(pilot, "2", "down", "down", "space")
    await wait_for(pilot, lambda: app.board.plan is not None)


async def waiting(pilot: Pilot[None], app: GpuDoctor) -> None:
    """Apply a plan with a timer, until it waits to be confirmed."""
    await planned(pilot, app)
    await ask(pilot, "a")
    await wait_for(pilot, lambda: bool(app.board.applying and app.board.applying.waits))
    await wait_for(pilot, lambda: "takes it all back by itself" in shown(app))


async def over(pilot: Pilot[None], app: GpuDoctor) -> State:
    """Wait until nothing of the transaction is open, and return its state."""
    applying = app.board.applying
    assert applying is not None
    await wait_for(pilot, lambda: not applying.unsettled and not app.board.running)
    return applying.state
