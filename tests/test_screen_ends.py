"""How a transaction ends on the screen: words that are refused, late or lost, and plans by hand."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from gpudoctor.app import GpuDoctor
from gpudoctor.model import Worked
from gpudoctor.model.error import HostUnreachable, Refusal
from gpudoctor.model.finding import Panel
from gpudoctor.model.pending import Outcome, Pending, PendingTold
from gpudoctor.model.plan import ByHand, Item, ItemMoved, Move, Plan, State, StateMoved, Step
from gpudoctor.screens.board import merged
from gpudoctor.screens.plan import PlanScreen
from tests.screen_change import Host, over, planned, scripted_host, timed, waiting
from tests.screen_host import FINDINGS, HOSTILE, RESULT, ScriptedAudit, scripted_target
from tests.screen_pilot import ask, press, running, shown, wait_for, wait_until_shown

__all__ = ["scripted_host"]
WORKED = ByHand("fw-iommu", Worked("iommu=pt on the command line", ("edit it",), ("edit back",)))


async def test_a_refused_undo_can_be_asked_again(host: Host) -> None:
    host.change = timed
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await waiting(pilot, app)
        host.kept.refuses = [Refusal("busy: another transaction is being applied", 1)]
        await press(pilot, "u")
        await wait_for(pilot, lambda: "another transaction is being applied" in shown(app))
        await wait_for(pilot, lambda: "takes it back at once" in shown(app))
        await press(pilot, "u")
        assert await over(pilot, app) is State.UNDONE
        assert host.kept.calls[-1] == "undo 20261130-1"


async def test_an_undo_shows_each_line_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[Move] = [ItemMoved(1, "held", 0.1, "in use"), StateMoved(State.UNDO_FAILED)]
    back = asyncio.Event()

    async def undo(target: object, transaction: str) -> AsyncGenerator[Move, None]:
        for line in lines:
            yield line
        back.set()

    async def watch(target: object, transaction: str) -> AsyncGenerator[Move, None]:
        await back.wait()
        for line in lines:
            yield line

    monkeypatch.setattr("gpudoctor.transaction.undo", undo)
    monkeypatch.setattr("gpudoctor.loop.watch", watch)
    host.change = timed
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await waiting(pilot, app)
        await press(pilot, "u")
        assert await over(pilot, app) is State.UNDO_FAILED
        assert app.board.applying and app.board.applying.troubles == [lines[0]]


async def test_a_word_too_late_is_followed_to_the_undo(host: Host) -> None:
    host.change = timed
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await waiting(pilot, app)
        host.kept.refuses = [Refusal("too late: it is being taken back", 1)]
        await press(pilot, "c")
        await wait_for(pilot, lambda: "too late: it is being taken back" in shown(app))
        assert app.board.applying and app.board.applying.busy
        host.kept.fires.set()
        assert await over(pilot, app) is State.UNDONE
        await wait_for(pilot, lambda: "so the target took it back" in shown(app))
        assert "too late" not in shown(app)


async def test_a_word_whose_line_broke_can_be_said_again(host: Host) -> None:
    host.change = timed
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await waiting(pilot, app)
        for line in ("one", "two"):  # first through the run that waits, then beside it
            host.kept.refuses = [HostUnreachable(f"line {line} broke")]
            await press(pilot, "c")
            await wait_until_shown(pilot, app, f"line {line} broke")
            await wait_for(pilot, lambda: "keeps it, over a new login" in shown(app))
        await press(pilot, "c")
        await wait_for(pilot, lambda: "confirm 20261130-1" in host.kept.calls)
        await wait_for(pilot, lambda: "it stays" in shown(app))


async def test_a_run_out_of_sight_is_not_called_untouched(host: Host) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await planned(pilot, app)
        host.kept.refuses = [Refusal("it ended on the target without a last word", 5)]
        await ask(pilot, "a")
        await wait_for(pilot, lambda: "no longer watched: h shows how it ended" in shown(app))
        assert "without a last word" in shown(app) and "nothing was changed" not in shown(app)
        assert app.board.applying and not app.board.applying.untouched and not app.board.chosen


@pytest.mark.parametrize("fails", [False, True])
async def test_plans_by_hand_are_pending_only_once_the_steps_stand(
    host: Host, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    accepted: list[Any] = []
    monkeypatch.setattr("gpudoctor.snapshots.pending.accept", lambda *a: accepted.append(a[2]))
    host.change = lambda plan: replace(plan, by_hand=(WORKED,))
    host.kept.gate.clear()
    if fails:
        host.kept.moves = [StateMoved(State.FAILED)]
    app = GpuDoctor(scripted_target)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        await planned(pilot, app)
        await ask(pilot, "a")
        await wait_for(pilot, lambda: "writing" in shown(app))
        assert accepted == []
        host.kept.gate.set()
        await over(pilot, app)
        words = "not kept as pending" if fails else "kept as pending: the next audit"
        await wait_for(pilot, lambda: words in shown(app))
        assert accepted == ([] if fails else [(WORKED,)])


async def test_a_word_said_after_all_keeps_the_plans_by_hand(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(target: object, transaction: str) -> AsyncGenerator[Move, None]:
        raise HostUnreachable("the line to gpu1 is lost")
        yield

    accepted: list[Any] = []
    monkeypatch.setattr("gpudoctor.snapshots.pending.accept", lambda *a: accepted.append(a[2]))
    monkeypatch.setattr("gpudoctor.loop.watch", lost)
    host.change = lambda plan: replace(timed(plan), by_hand=(WORKED,))
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await planned(pilot, app)
        await ask(pilot, "a")
        await wait_for(pilot, lambda: "the line to gpu1 is lost" in shown(app))
        assert accepted == []
        await press(pilot, "c")
        assert await over(pilot, app) is State.CONFIRMED
        await wait_for(pilot, lambda: accepted == [(WORKED,)])


def governors(plan: Plan) -> Plan:
    """Return a plan whose six values were three different ones before."""
    old = ("powersave", "powersave", "ondemand", "ondemand", "schedutil", "schedutil")
    items = tuple(
        Item(f"policy{n}", f"cat {n}", was, "performance", f"do {n}", f"put {was} {n}")
        for n, was in enumerate(old)
    )
    return replace(plan, steps=(Step("kern-numa-balancing", plan.steps[0].change, items),))


async def test_values_that_were_different_are_not_called_alike(host: Host) -> None:
    host.change = governors
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await planned(pilot, app)
        for was in ("powersave", "ondemand", "schedutil"):
            await wait_until_shown(pilot, app, f"put {was} ")
        assert "more like it" not in shown(app)


def pending_told(outcome: Outcome, what: str, sentence: str) -> PendingTold:
    """Return one plan by hand and what an audit found of it."""
    one = Pending("fw-iommu", what, "2026-11-29T08:00:00+00:00", "b0", "lazy", "pt", "reboot")
    return PendingTold(one, outcome, sentence)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_the_plan_screen_tells_of_what_is_pending(
    host: Host, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    told = (
        pending_told(Outcome.NOT_YET, "iommu=pt", "not done: still lazy"),
        pending_told(Outcome.DONE, "ACS off", f"done: {HOSTILE}"),
    )
    monkeypatch.setattr(ScriptedAudit, "result", replace(RESULT, pending=told))
    app = GpuDoctor(scripted_target)
    async with running(app, size) as pilot:
        await press(pilot, "2")
        for words in ("to be done by hand", "iommu=pt", "still lazy", "[madvise]", "Issues"):
            await wait_until_shown(pilot, app, words)
        await planned(pilot, app)  # the cursor begins at the first issue
        assert app.board.chosen == ("kern-numa-balancing",) and isinstance(app.screen, PlanScreen)
        assert not any(raw in shown(app) for raw in ("\x1b", "\x07", "\u202e"))
        await press(pilot, "s")
        await wait_for(pilot, lambda: "still lazy" not in shown(app))


def test_a_partial_audit_keeps_what_was_told_of_other_panels() -> None:
    old = replace(RESULT, pending=(pending_told(Outcome.DONE, "iommu=pt", "done"),))
    unread = replace(
        RESULT,
        panels=(Panel.KERNEL_KNOBS,),
        findings=tuple(f for f in FINDINGS if f.panel is Panel.KERNEL_KNOBS),
        pending=(
            pending_told(Outcome.UNKNOWN, "iommu=pt", "its panel was not read"),
            pending_told(Outcome.UNKNOWN, "new", "its panel was not read"),
        ),
    )
    assert merged(old, unread).pending == (old.pending[0], unread.pending[1])
