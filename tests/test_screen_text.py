"""Hostile text on every screen: nothing crashes, is read as markup, or reaches the terminal raw."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from gpudoctor.app import GpuDoctor
from gpudoctor.hosts.target import Target
from gpudoctor.model.audited import AuditResult, Connected, Event
from gpudoctor.model.change import Worked
from gpudoctor.model.error import HostUnreachable, UnknownHostKey
from gpudoctor.model.finding import Panel
from gpudoctor.model.plan import ByHand, ItemMoved, Plan, State, StateMoved, Transaction
from gpudoctor.screens.recovery import RecoveryScreen
from tests.pictures import settle
from tests.screen_host import (
    FINDINGS,
    HOSTILE,
    RESULT,
    ScriptedAudit,
    nothing_captured,
    plan_of,
    poisoned,
    scripted_target,
    told,
)

POISON: AuditResult = replace(poisoned(RESULT), user="root")
RAW = ("\x1b", "\x07", "\u202e", "\x9b", "\x7f")


class HostileAudit(ScriptedAudit):
    """The scripted result with every string hostile."""

    result = POISON


class LostAudit(ScriptedAudit):
    """An audit refused with a hostile sentence."""

    async def run(self) -> AsyncIterator[Event]:
        """Say who it is, then fail."""
        yield Connected(HOSTILE, HOSTILE)
        raise HostUnreachable(HOSTILE)


class StrangeAudit(ScriptedAudit):
    """An audit that meets an unknown key with hostile words."""

    async def run(self) -> AsyncIterator[Event]:
        """Fail at once."""
        raise UnknownHostKey(HOSTILE, HOSTILE, 22, HOSTILE, HOSTILE)
        yield


def hostile_plan(result: AuditResult, captured: object, chosen: object) -> Plan:
    """Return a plan whose every string is hostile, with everything in it that a plan may have."""
    plan: Plan = poisoned(plan_of(RESULT, {}, ("kern-numa-balancing", "kern-swappiness")))
    words = ((HOSTILE, HOSTILE),)
    steps = tuple(replace(step, unproven=True) for step in plan.steps)
    by_hand = (ByHand(HOSTILE, Worked(HOSTILE, (HOSTILE,), (HOSTILE,), caution=HOSTILE)),)
    return Plan(*(HOSTILE,) * 5, steps, HOSTILE, HOSTILE, words, (HOSTILE,), by_hand)


async def hostile_apply(target: Target, plan: Plan) -> AsyncIterator[ItemMoved | StateMoved]:
    """Move with hostile details, and end applied."""
    yield StateMoved(State.APPLYING, HOSTILE)
    yield ItemMoved(1, HOSTILE, 0.1, HOSTILE)
    yield ItemMoved(2, "stuck", 0.1, HOSTILE)
    yield StateMoved(State.UNDO_FAILED, HOSTILE)


async def hostile_transactions(target: Target) -> list[Transaction]:
    """Keep one that was interrupted."""
    found: Transaction = replace(poisoned(told(State.APPLYING)), interrupted=True, written=2)
    return [found]


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make everything that a host or the engine says hostile."""
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr("gpudoctor.audit.Audit", HostileAudit)
    monkeypatch.setattr("gpudoctor.capture.capture", nothing_captured)
    monkeypatch.setattr("gpudoctor.plan.make_plan", hostile_plan)
    monkeypatch.setattr("gpudoctor.loop.apply", hostile_apply)
    monkeypatch.setattr("gpudoctor.transaction.undo", hostile_apply)
    monkeypatch.setattr("gpudoctor.transaction.transactions", hostile_transactions)
    monkeypatch.setattr("gpudoctor.snapshots.pending.accept", lambda *_: None)


async def clean_and_whole(pilot: Pilot[None], *, says: str = "[madvise]") -> None:
    """Assert that the screen shows the words as they are, and nothing raw."""
    app = pilot.app
    text = ""

    def there() -> bool:
        nonlocal text
        strips = app.screen._compositor.render_strips()
        text = "\n".join(strip.text for strip in strips)
        return says in text

    await settle(pilot, there, 10.0)
    assert not [line for line in text.split("\n") if any(raw in line for raw in RAW)]
    titles = [str(w.border_title) + str(w.border_subtitle) for w in app.screen.query("*")]
    assert not any(raw in title for title in titles for raw in RAW)


async def ready(pilot: Pilot[None], app: GpuDoctor) -> None:
    await settle(pilot, lambda: bool(app.board.result) and not app.board.running)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_grid_and_every_panel(hostile: None, size: tuple[int, int]) -> None:
    app = GpuDoctor(scripted_target)
    async with app.run_test(size=size, notifications=True) as pilot:
        await ready(pilot, app)
        await settle(pilot, lambda: isinstance(app.screen, RecoveryScreen))
        await pilot.press("n")
        await clean_and_whole(pilot)
        await pilot.press("enter")
        for panel in Panel:
            await pilot.press("right")
            if any(finding.panel is panel for finding in FINDINGS):
                await clean_and_whole(pilot)
            await pilot.press("e")
        await pilot.press("f")
        await clean_and_whole(pilot)


async def test_plan_script_apply_and_undo(hostile: None) -> None:
    app = GpuDoctor(scripted_target)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await ready(pilot, app)
        await settle(pilot, lambda: isinstance(app.screen, RecoveryScreen))
        await clean_and_whole(pilot)
        await pilot.press("n", "h")
        await clean_and_whole(pilot)
        await pilot.press("escape", "2")
        await pilot.press("down", "down", "space", "space", "space")
        await settle(pilot, lambda: app.board.plan is not None)
        await clean_and_whole(pilot)
        await pilot.press("v")
        await clean_and_whole(pilot)
        await pilot.press("escape", "a")
        await clean_and_whole(pilot, says="Apply?")
        await pilot.press("y")
        await clean_and_whole(pilot, says="Sure?")
        await pilot.press("y")
        await settle(pilot, lambda: bool(app.board.applying) and not app.board.applying.busy)  # type: ignore[union-attr]
        await clean_and_whole(pilot)
        await pilot.press("u")
        await asyncio.sleep(0)
        await clean_and_whole(pilot)
        await pilot.press("question_mark", "escape", "slash")
        await pilot.press("ctrl+p", *"madvise")
        await clean_and_whole(pilot)


@pytest.mark.parametrize("audit", [LostAudit, StrangeAudit])
async def test_refusals(
    hostile: None, audit: type[ScriptedAudit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpudoctor.audit.Audit", audit)
    app = GpuDoctor(scripted_target)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: bool(app.board.refusal))
        await clean_and_whole(pilot)
