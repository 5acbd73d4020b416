"""Auditing, applying and leaving, seen from the screens: what happens on the target."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app import GpuDoctor
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.target import LiveTarget, Target
from gpudoctor.model.error import HostUnreachable, UnknownHostKey
from gpudoctor.model.plan import ItemMoved, Plan, State, StateMoved
from gpudoctor.screens.apply import ApplyScreen
from gpudoctor.screens.ask import AskScreen
from gpudoctor.screens.messages import PlanAsked
from gpudoctor.screens.plan import PlanScreen
from tests.pictures import demo, settle
from tests.screen_host import ScriptedAudit, nothing_captured, plan_of, scripted_target
from tests.screen_pilot import ask, press, running, shown, wait_for


@pytest.fixture(autouse=True)
def still() -> Iterator[None]:
    """Freeze animations."""
    before = os.environ.get("TEXTUAL_ANIMATIONS")
    os.environ["TEXTUAL_ANIMATIONS"] = "none"
    yield
    os.environ.pop("TEXTUAL_ANIMATIONS")
    if before is not None:
        os.environ["TEXTUAL_ANIMATIONS"] = before


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the audit, the planner and the transaction by scripted ones."""
    monkeypatch.setattr("gpudoctor.audit.Audit", ScriptedAudit)
    monkeypatch.setattr("gpudoctor.capture.capture", nothing_captured)
    monkeypatch.setattr("gpudoctor.plan.make_plan", plan_of)


def script_transaction(monkeypatch: pytest.MonkeyPatch, gate: asyncio.Event) -> list[str]:
    """Replace apply and undo; apply waits at its first item for the gate."""
    calls: list[str] = []

    async def apply(target: Target, plan: Plan) -> AsyncIterator[ItemMoved | StateMoved]:
        calls.append("apply")
        yield StateMoved(State.APPLYING)
        yield ItemMoved(1, "intent", 0.01)
        await gate.wait()
        yield ItemMoved(1, "done", 0.02, "0")
        yield StateMoved(State.APPLIED)
        calls.append("applied")

    async def undo(target: Target, transaction: str) -> AsyncIterator[ItemMoved | StateMoved]:
        calls.append(f"undo {transaction}")
        yield ItemMoved(1, "undone", 0.03, "1")
        yield StateMoved(State.UNDONE)

    monkeypatch.setattr("gpudoctor.loop.apply", apply)
    monkeypatch.setattr("gpudoctor.transaction.undo", undo)
    return calls


async def test_apply_asks_once_shows_steps_and_undoes(
    scripted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    calls = script_transaction(monkeypatch, gate)
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await press(pilot, "2", "down", "down", "space")
        await wait_for(pilot, lambda: app.board.plan is not None)
        await press(pilot, "a")
        await wait_for(pilot, lambda: isinstance(app.screen, AskScreen))
        await press(pilot, "n")
        assert calls == []
        await ask(pilot, "a")
        await wait_for(pilot, lambda: isinstance(app.screen, ApplyScreen))
        await wait_for(pilot, lambda: "writing" in shown(app))
        await press(pilot, "escape", "1")  # leaving the screen stops nothing
        gate.set()
        await wait_for(pilot, lambda: calls == ["apply", "applied"])
        await press(pilot, "2", "t")
        await wait_for(pilot, lambda: "read back" in shown(app))
        await ask(pilot, "u")
        await wait_for(pilot, lambda: "put back" in shown(app))
        assert calls[-1] == "undo 20261130-1"


async def test_quitting_while_applying_says_the_target_finishes(
    scripted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    script_transaction(monkeypatch, gate)
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await press(pilot, "2", "down", "down", "space")
        await wait_for(pilot, lambda: app.board.plan is not None)
        await ask(pilot, "a")
        await wait_for(pilot, lambda: "writing" in shown(app))
        await press(pilot, "q")
        await wait_for(pilot, lambda: "with or without" in shown(app))
        await press(pilot, "n")
        assert isinstance(app.screen, ApplyScreen)
        gate.set()


async def test_read_only_writes_nothing(scripted: None) -> None:
    app = GpuDoctor(scripted_target, read_only=True)
    async with running(app) as pilot:
        await press(pilot, "2", "down", "down", "space")
        await wait_for(pilot, lambda: app.board.plan is not None)
        await press(pilot, "a")
        assert isinstance(app.screen, PlanScreen)
        assert "Apply" not in shown(app) and "read-only" in shown(app)


async def test_unreachable_host_is_a_sentence_and_r_retries(
    scripted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = [HostUnreachable("gpu1: connection refused; is sshd running there?")]

    async def run(self: ScriptedAudit) -> AsyncIterator[Any]:
        if fails:
            raise fails.pop()
        async for event in original(self):
            yield event

    original = ScriptedAudit.run
    monkeypatch.setattr(ScriptedAudit, "run", run)
    app = GpuDoctor(scripted_target)
    async with running(app, wait=False) as pilot:
        await wait_for(pilot, lambda: "connection refused" in shown(app))
        await press(pilot, "r")
        await wait_for(pilot, lambda: "MaxReadReq is 512" in shown(app))
        assert "connection refused" not in shown(app)


async def test_unknown_host_key_asks_and_trusts(
    scripted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = UnknownHostKey("gpu1 is not known", "gpu1", 22, "ssh-ed25519 AAAA", "SHA256:abcdef")
    fails: list[UnknownHostKey] = [error]
    trusted: list[UnknownHostKey] = []

    async def run(self: ScriptedAudit) -> AsyncIterator[Any]:
        if fails:
            raise fails.pop()
        async for event in original(self):
            yield event

    original = ScriptedAudit.run
    monkeypatch.setattr(ScriptedAudit, "run", run)
    monkeypatch.setattr("gpudoctor.hosts.known_hosts.trust", lambda e, _: trusted.append(e))
    app = GpuDoctor(scripted_target)
    async with running(app, wait=False) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, AskScreen))
        assert "SHA256:abcdef" in shown(app)
        await press(pilot, "y")
        await wait_for(pilot, lambda: app.board.result is not None)
        assert trusted == [error]


async def test_quitting_amid_an_audit_leaves_nothing_behind(tmp_path: Any) -> None:
    transports: list[LocalTransport] = []

    class Watched(LocalTransport):
        def __init__(self) -> None:
            super().__init__()
            self.channels: list[Any] = []
            transports.append(self)

        async def open(self, command: str) -> Any:
            channel = await super().open(command)
            self.channels.append(channel)
            return channel

    app = GpuDoctor(lambda: LiveTarget(Watched()))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: bool(transports and getattr(transports[0], "channels", [])))
        await pilot.press("q")
        await pilot.pause()
    for transport in transports:
        for channel in getattr(transport, "channels", []):
            assert channel._process.returncode is not None


@pytest.mark.parametrize("keys", [("q", "question_mark"), ("q", "2"), ("r", "q", "enter")])
async def test_keys_after_quit_are_nobodys(keys: tuple[str, ...]) -> None:
    app = demo()
    async with running(app) as pilot:
        for key in keys:
            app.simulate_key(key)
        await pilot.pause()
    assert app.fault is None and app.return_code == 0


async def test_demo_host_is_fixed_and_put_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    app = demo()
    async with running(app) as pilot:
        fixable = [f.id for f in app.board.findings if app.board.fixable(f)]
        assert "kern-numa-balancing" in fixable
        app.post_message(PlanAsked("kern-numa-balancing", choose=True))
        await wait_for(pilot, lambda: bool(app.board.plan and app.board.plan.steps))
        await wait_for(pilot, lambda: isinstance(app.screen, PlanScreen))
        await ask(pilot, "a")
        await wait_for(pilot, lambda: status_of(app, "kern-numa-balancing") == "good")
        assert app.board.applying and app.board.applying.state is State.APPLIED
        await ask(pilot, "u")
        await wait_for(pilot, lambda: status_of(app, "kern-numa-balancing") == "issue")
        assert str(app.board.applying.state) == "undone"
        assert app.board.simulated and "SIMULATED" in shown(app)


def status_of(app: GpuDoctor, id: str) -> str:
    return next((str(f.status) for f in app.board.findings if f.id == id), "")
