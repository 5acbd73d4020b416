"""What the target keeps, on the screens: the history, undo and confirm there, and the recovery."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpudoctor.app import GpuDoctor
from gpudoctor.model.error import Refusal, UnknownHostKey
from gpudoctor.model.plan import Plan, State
from gpudoctor.screens.apply import ApplyScreen
from gpudoctor.screens.ask import AskScreen
from gpudoctor.screens.audit import AuditScreen
from gpudoctor.screens.history import HistoryScreen
from gpudoctor.screens.recovery import RecoveryScreen
from gpudoctor.snapshots.store import note_begun, unseen
from tests.pictures import demo
from tests.screen_host import RESULT, ScriptedAudit, ScriptedTransactions, scripted_target, told
from tests.screen_pilot import ask, press, running, shown, wait_for

KEY = UnknownHostKey("gpu1 is not known", "gpu1", 22, "ssh-ed25519 AAAA", "SHA256:abcdef")


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedTransactions]:
    """Replace the audit and the target's transactions."""
    made = ScriptedTransactions()
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr("gpudoctor.audit.Audit", ScriptedAudit)
    made.replace_in(monkeypatch)
    yield made


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_the_history_undoes_the_one_under_the_cursor(
    kept: ScriptedTransactions, size: tuple[int, int]
) -> None:
    old = told(id="20261128-000000-aaaaaa", started="2026-11-28T00:00:00Z", state=State.UNDONE)
    kept.kept = [old, told()]
    app = GpuDoctor(scripted_target)
    async with running(app, size) as pilot:
        await press(pilot, "h")
        await wait_for(pilot, lambda: "confirmed; it stands" in shown(app))
        for words in ("2026-11-29 08:15:04 UTC", "ana@laptop", "vm.swappiness = 1"):
            assert words in shown(app)
        await press(pilot, "down", "u")
        await wait_for(pilot, lambda: "aaaaaa" in shown(app))
        assert isinstance(app.screen, HistoryScreen)
        await press(pilot, "up")
        await ask(pilot, "enter")
        await wait_for(pilot, lambda: isinstance(app.screen, ApplyScreen))
        await wait_for(pilot, lambda: "the values of before are back" in shown(app))
        assert kept.calls == [f"undo {told().id}"]
        await press(pilot, "escape")
        await wait_for(pilot, lambda: "it stands" not in shown(app) and "undone" in shown(app))


async def test_the_history_confirms_what_waits(kept: ScriptedTransactions) -> None:
    kept.kept = [told(State.APPLIED, timer=40.0)]
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, RecoveryScreen))
        await press(pilot, "n", "h")
        await wait_for(pilot, lambda: "not confirmed" in shown(app) and "s left" in shown(app))
        kept.kept = [told()]
        await press(pilot, "c")
        await wait_for(pilot, lambda: "confirmed; it stands" in shown(app))
        assert kept.calls == [f"confirm {told().id}"]


async def test_the_history_says_why_it_cannot_be_read(kept: ScriptedTransactions) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: app._looked)
        kept.refuses = [Refusal("reading the transactions needs root there", 1)]
        await press(pilot, "h")
        await wait_for(pilot, lambda: "needs root there" in shown(app))
        await press(pilot, "r")
        await wait_for(pilot, lambda: "changed nothing" in shown(app))


async def test_the_history_asks_about_an_unknown_key(
    kept: ScriptedTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpudoctor.hosts.known_hosts.trust", lambda *_: None)
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: app._looked)
        kept.refuses, kept.kept = [KEY], [told()]
        await press(pilot, "h")
        await wait_for(pilot, lambda: isinstance(app.screen, AskScreen))
        assert "SHA256:abcdef" in shown(app)
        await press(pilot, "y")
        await wait_for(pilot, lambda: "confirmed; it stands" in shown(app))


async def test_an_interrupted_transaction_is_offered_and_undone(kept: ScriptedTransactions) -> None:
    left = told(State.APPLYING, interrupted=True, written=3)
    kept.kept = [told(id="20261128-000000-aaaaaa"), left]
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, RecoveryScreen))
        for words in ("was interrupted", "ana@laptop", "2026-11-29 08:15", "3 values", "Leave (n)"):
            assert words in shown(app)
        assert kept.calls == []
        await press(pilot, "u")
        await wait_for(pilot, lambda: "the values of before are back" in shown(app))
        assert kept.calls == [f"undo {left.id}"]


async def test_leaving_what_was_left_behind_leaves_it(kept: ScriptedTransactions) -> None:
    kept.kept = [told(State.UNDO_FAILED, written=1), told(State.APPLIED, timer=30.0)]
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: "Keep it (c)" in shown(app))
        await press(pilot, "enter")
        await wait_for(pilot, lambda: "could not be undone whole" in shown(app))
        assert "Keep it" not in shown(app)
        await press(pilot, "escape")
        await wait_for(pilot, lambda: isinstance(app.screen, AuditScreen))
        await press(pilot, "r")
        await wait_for(pilot, lambda: not app.board.running)
        assert kept.calls == [] and isinstance(app.screen, AuditScreen)


def note(transaction: str) -> None:
    """Leave a note that a transaction began from here, and that nobody saw its end."""
    note_begun(Plan(transaction, "gpu1", "root", "m1", "b1", (), "", ""))


async def test_what_went_on_without_its_session_is_offered_once(kept: ScriptedTransactions) -> None:
    kept.kept = [told(State.APPLIED, written=1), told(id="20261128-000000-aaaaaa")]
    for one in kept.kept:  # the second was confirmed: somebody knows of it
        note(one.id)
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, RecoveryScreen))
        for words in ("had ended: it is applied", "Leave (n)", "Undo now (u)", "1 value"):
            assert words in shown(app)
        assert "Keep it" not in shown(app) and "takes it back by itself" not in shown(app)
        assert "more transaction" not in shown(app)
        await press(pilot, "n")
        await wait_for(pilot, lambda: isinstance(app.screen, AuditScreen))
    assert kept.calls == [] and not unseen("m1", "gpu1")
    again = GpuDoctor(scripted_target)
    async with running(again) as pilot:
        await wait_for(pilot, lambda: again._looked and not again.workers._workers)
        assert isinstance(again.screen, AuditScreen)


async def test_what_went_on_can_be_undone(kept: ScriptedTransactions) -> None:
    kept.kept = [told(State.APPLIED, written=1)]
    note(told().id)
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, RecoveryScreen))
        await press(pilot, "u")
        await wait_for(pilot, lambda: "the values of before are back" in shown(app))
        assert kept.calls == [f"undo {told().id}"]


@pytest.mark.parametrize("how", ["read-only", "unreadable", "running"])
async def test_a_note_stays_until_it_was_told_of(kept: ScriptedTransactions, how: str) -> None:
    state = State.APPLYING if how == "running" else State.APPLIED
    kept.kept = [told(state)]
    note(told().id)
    if how == "unreadable":
        kept.refuses = [Refusal("the line is lost", 3)]
    app = GpuDoctor(scripted_target, read_only=how == "read-only")
    async with running(app) as pilot:
        if how == "read-only":
            await wait_for(pilot, lambda: isinstance(app.screen, RecoveryScreen))
            assert "Undo now" not in shown(app)
            await press(pilot, "n")
        await wait_for(pilot, lambda: app._looked and not app.workers._workers)
        assert isinstance(app.screen, AuditScreen)
    assert unseen("m1", "gpu1") == {told().id}


async def test_what_is_not_wholly_applied_cannot_be_kept(kept: ScriptedTransactions) -> None:
    kept.kept = [told(State.APPLYING, interrupted=True, timer=40.0, written=1)]
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, RecoveryScreen))
        assert "takes it back by itself in" in shown(app) and "Undo now" in shown(app)
        assert "Keep it" not in shown(app) and "unless it is confirmed" not in shown(app)
        await press(pilot, "c")
        assert isinstance(app.screen, RecoveryScreen) and kept.calls == []


@pytest.mark.parametrize("user", ["", "ana"])
async def test_nothing_is_looked_for_without_root(
    kept: ScriptedTransactions, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    kept.kept = [told(State.APPLYING, interrupted=True)]
    monkeypatch.setattr(ScriptedAudit, "result", replace(RESULT, user=user))
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await pilot.pause()
        assert not app._looked and isinstance(app.screen, AuditScreen)


async def test_a_failing_look_disturbs_nothing(
    kept: ScriptedTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []

    async def broken(target: object) -> None:
        looked.append(target)
        raise RuntimeError("a fault")

    monkeypatch.setattr("gpudoctor.transaction.transactions", broken)
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: bool(looked))
        assert isinstance(app.screen, AuditScreen) and not app.board.refusal
    assert app.fault is None


async def test_the_demo_keeps_a_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    app = demo()
    async with running(app) as pilot:
        app.board.chosen = ("kern-numa-balancing",)
        await press(pilot, "2", "down")
        app._replan()
        await wait_for(pilot, lambda: app.board.plan is not None)
        await ask(pilot, "a")
        await wait_for(pilot, lambda: bool(app.board.applying) and not app.board.moving)
        await press(pilot, "h")
        await wait_for(pilot, lambda: "applied; it stands" in shown(app))
        await ask(pilot, "u")
        await wait_for(pilot, lambda: "the values of before are back" in shown(app))
