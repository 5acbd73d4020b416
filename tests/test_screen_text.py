"""Hostile text on every screen: nothing crashes, is read as markup, or reaches the terminal raw."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from textual.pilot import Pilot

from gpudoctor.app import GpuDoctor
from gpudoctor.hosts.target import Target
from gpudoctor.model.audited import AuditResult, Connected, Event
from gpudoctor.model.error import HostUnreachable, UnknownHostKey
from gpudoctor.model.finding import Panel
from gpudoctor.model.plan import ItemMoved, Plan, State, StateMoved
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
)

POISON: AuditResult = poisoned(RESULT)
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
    return Plan(*(HOSTILE,) * 5, plan.steps, HOSTILE, HOSTILE, words, (HOSTILE,))


async def hostile_apply(target: Target, plan: Plan) -> AsyncIterator[ItemMoved | StateMoved]:
    """Move with hostile details, and end applied."""
    yield StateMoved(State.APPLYING, HOSTILE)
    yield ItemMoved(1, HOSTILE, 0.1, HOSTILE)
    yield ItemMoved(2, "done", 0.1, HOSTILE)
    yield StateMoved(State.APPLIED, HOSTILE)


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make everything that a host or the engine says hostile."""
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr("gpudoctor.audit.Audit", HostileAudit)
    monkeypatch.setattr("gpudoctor.capture.capture_chosen", nothing_captured)
    monkeypatch.setattr("gpudoctor.plan.make_plan", hostile_plan)
    monkeypatch.setattr("gpudoctor.loop.apply", hostile_apply)
    monkeypatch.setattr("gpudoctor.transaction.undo", hostile_apply)


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
        await pilot.press("2")
        await pilot.press("down", "down", "space", "space", "space")
        await settle(pilot, lambda: app.board.plan is not None)
        await clean_and_whole(pilot)
        await pilot.press("v")
        await clean_and_whole(pilot)
        await pilot.press("escape", "a")
        await clean_and_whole(pilot, says="Apply?")
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
