"""Changing a host from the screens: ways, questions, the countdown, undo, and what went wrong."""

from dataclasses import replace
from typing import Any

import pytest

from gpudoctor.app import GpuDoctor
from gpudoctor.capture import Captured
from gpudoctor.model import Evidence, Sysctl, Worked
from gpudoctor.model.error import HostUnreachable, Refusal, UnknownHostKey
from gpudoctor.model.plan import ByHand, Item, ItemMoved, Plan, State, StateMoved, Step
from gpudoctor.screens.apply import ApplyScreen
from gpudoctor.screens.ask import AskScreen
from gpudoctor.screens.plan import PlanScreen
from tests.screen_change import Host, over, planned, scripted_host, timed, waiting
from tests.screen_host import FINDINGS, RESULT, ScriptedAudit, scripted_target
from tests.screen_pilot import ask, press, running, shown, wait_for

KEY = UnknownHostKey("gpu1 is not known", "gpu1", 22, "ssh-ed25519 AAAA", "SHA256:abcdef")
__all__ = ["scripted_host"]


async def test_values_are_read_once_for_every_selection(host: Host) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await planned(pilot, app)
        await press(pilot, "down", "space")
        await wait_for(pilot, lambda: len(host.planned) == 2 and app.board.plan is not None)
        assert len(host.captures) == 1 and len(host.captures[0]) == 2
        await press(pilot, "r")
        await wait_for(pilot, lambda: len(host.planned) == 3 and app.board.plan is not None)
        assert len(host.captures) == 2


async def test_reading_is_said_while_it_lasts(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = host.kept.gate
    gate.clear()

    async def slow(target: object, changes: list[Any]) -> Captured:
        await gate.wait()
        return {}

    monkeypatch.setattr("gpudoctor.capture.capture", slow)
    monkeypatch.setattr("gpudoctor.screens.follow.Follower._capture", lambda *_: slow("", []))
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await press(pilot, "2", "down", "down", "space")
        await wait_for(pilot, lambda: "reading the values now" in shown(app))
        gate.set()
        await wait_for(pilot, lambda: "numa_balancing = 0" in shown(app))


async def test_o_turns_through_the_ways(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    two = ((Sysctl("vm.swappiness", "1"),), (Sysctl("vm.swappiness", "10"),))
    findings = tuple(
        replace(f, verdict=replace(f.verdict, changes=two)) if f.id == "kern-swappiness" else f
        for f in FINDINGS
    )
    monkeypatch.setattr(ScriptedAudit, "result", replace(RESULT, findings=findings))
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await press(pilot, "2", "down", "down", "down", "o")
        await wait_for(pilot, lambda: "way 2 of 2: " in shown(app) and "[2]" in shown(app))
        assert app.board.chosen == ("kern-swappiness:2",)
        await press(pilot, "r")
        await wait_for(pilot, lambda: host.planned[-1:] == [("kern-swappiness:2",)])
        await press(pilot, "o")
        await wait_for(pilot, lambda: "way 1 of 2: " in shown(app) and "[x]" in shown(app))
        await press(pilot, "space")
        assert not app.board.chosen


def many(plan: Plan) -> Plan:
    """Return a plan with one step of 40 items."""
    items = tuple(
        Item(f"cpu{n}", f"cat {n}", "0", "1", f"echo 1 > {n}", f"echo 0 > {n}") for n in range(40)
    )
    return replace(plan, steps=(Step("kern-numa-balancing", plan.steps[0].change, items),))


async def test_many_items_are_folded(host: Host) -> None:
    host.change = many
    host.kept.moves = [ItemMoved(n, "done", 0.1) for n in range(1, 31)]
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await planned(pilot, app)
        await wait_for(pilot, lambda: "37 more like it: 0 -> 1; v shows all" in shown(app))
        assert "echo 1 > 2" in shown(app) and "echo 1 > 3" not in shown(app)
        await ask(pilot, "a")
        await wait_for(pilot, lambda: "30 of 40 done" in shown(app))
        assert "━─" in shown(app) and "cpu28" not in shown(app)
        await press(pilot, "v")
        await wait_for(pilot, lambda: "cpu28" in shown(app))


async def test_the_question_says_what_and_who_is_served(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = b"vllm:avg_generation_throughput_toks_per_s 61.0\nvllm:num_requests_running 3\n"
    served = Evidence("server-metrics", command="sh", stdout=metrics, exit=0)
    quiet = Evidence("server-metrics-inside", command="sh", stdout=b"", exit=0)
    evidence = {**RESULT.evidence, served.key: served, quiet.key: quiet}
    monkeypatch.setattr(ScriptedAudit, "result", replace(RESULT, evidence=evidence))
    host.change = timed
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await planned(pilot, app)
        await press(pilot, "a")
        await wait_for(pilot, lambda: isinstance(app.screen, AskScreen))
        for words in ("gpu1", "highest risk low", "interrupts", "3 requests", "within 60"):
            assert words in shown(app)


async def test_a_step_seen_on_a_stand_in_asks_twice(host: Host) -> None:
    proof = "on a stand-in"
    host.change = lambda plan: replace(
        plan, steps=tuple(replace(s, unproven=True, proof=proof) for s in plan.steps)
    )
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await planned(pilot, app)
        await ask(pilot, "a")
        await wait_for(pilot, lambda: "Never seen on the real thing" in shown(app))
        assert proof in shown(app) and host.kept.calls == []
        await press(pilot, "n")
        await wait_for(pilot, lambda: isinstance(app.screen, PlanScreen))
        assert host.kept.calls == [] and app.board.chosen


async def test_what_is_done_by_hand_is_shown_and_kept_pending(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked = Worked("iommu=pt on the command line", ("edit it", "reboot"), ("edit it back",))
    by_hand = (ByHand("fw-iommu", worked),)
    host.change = lambda plan: replace(plan, steps=(), script="", by_hand=by_hand)
    accepted: list[Any] = []
    monkeypatch.setattr("gpudoctor.snapshots.pending.accept", lambda *a: accepted.append(a))
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await planned(pilot, app)
        for words in ("1 edit it", "2 reboot", "1 edit it back", "does not run this itself"):
            assert words in shown(app)
        await ask(pilot, "a")
        await wait_for(pilot, lambda: bool(accepted) and app.board.chosen == ())
        assert accepted == [("m1", "gpu1", by_hand, "b1")] and host.kept.calls == []


async def test_c_keeps_what_waits(host: Host) -> None:
    host.change = timed
    app = GpuDoctor(scripted_target)
    async with running(app, (80, 24)) as pilot:
        await waiting(pilot, app)
        await press(pilot, "c")
        assert await over(pilot, app) is State.CONFIRMED
        await wait_for(pilot, lambda: "confirmed: it stays" in shown(app))
        assert host.kept.calls[-1] == "confirm 20261130-1"


async def test_u_takes_back_at_once_what_waits(host: Host) -> None:
    host.change = timed
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await waiting(pilot, app)
        await press(pilot, "u")
        assert await over(pilot, app) is State.UNDONE
        await wait_for(pilot, lambda: "the values of before are back" in shown(app))
        assert host.kept.calls[-1] == "undo 20261130-1" and "nobody" not in shown(app)


async def test_the_timer_is_told_wherever_the_operator_is(host: Host) -> None:
    host.change = timed
    app = GpuDoctor(scripted_target)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        await waiting(pilot, app)
        await press(pilot, "escape", "1")
        await wait_for(pilot, lambda: "until the target takes back" in shown(app))
        host.kept.fires.set()
        assert await over(pilot, app) is State.UNDONE
        await wait_for(pilot, lambda: "nobody confirmed within 60 s" in shown(app))
        await press(pilot, "t")
        await wait_for(pilot, lambda: "so the target took it back" in shown(app))


async def test_quitting_amid_the_countdown_says_what_the_target_does(host: Host) -> None:
    host.change = timed
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await waiting(pilot, app)
        await press(pilot, "ctrl+c")
        assert isinstance(app.screen, ApplyScreen)
        await press(pilot, "q")
        await wait_for(pilot, lambda: "confirmed yet. The target takes" in shown(app))
        assert app.board.applying and not app.board.applying.confirmed.is_set()
        await press(pilot, "y")
        words = [str(line) for line in app._exit_renderables]
        assert len(words) == 1 and "gpudoctor confirm 20261130-1" in words[0]
    assert host.kept.calls == ["apply", "applied"] and app.fault is None


async def test_a_failed_undo_says_what_to_run(host: Host) -> None:
    host.kept.moves = [
        ItemMoved(1, "ignored", 0.1, "1"),
        ItemMoved(1, "complaint", 0.1, "exit 1: read-only file system"),
        StateMoved(State.UNDOING),
        ItemMoved(1, "stuck", 0.2, "2"),
        StateMoved(State.UNDO_FAILED),
    ]
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await planned(pilot, app)
        await ask(pilot, "a")
        assert await over(pilot, app) is State.UNDO_FAILED
        await wait_for(pilot, lambda: "the undo is incomplete" in shown(app))
        for words in (
            "not taken: 1",
            "read-only file system",
            "sh /var/lib/gpudoctor/20261130-1/transaction.sh undo",
            "echo 1 > /proc/sys/kernel/numa_balancing",
        ):
            assert words in shown(app)


async def test_a_refusal_of_drift_plans_again(host: Host) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await planned(pilot, app)
        host.kept.refuses = [Refusal("kernel.numa_balancing is now 2: plan again", 1)]
        await ask(pilot, "a")
        await wait_for(pilot, lambda: "nothing was changed" in shown(app))
        assert "is now 2" in shown(app)
        await wait_for(pilot, lambda: len(host.captures) == 2 and app.board.plan is not None)
        assert app.board.chosen == ("kern-numa-balancing",)


async def test_a_lost_line_amid_the_countdown_can_still_confirm(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(target: object, transaction: str) -> Any:
        raise HostUnreachable("the line to gpu1 is lost")
        yield

    monkeypatch.setattr("gpudoctor.loop.watch", lost)
    host.change = timed
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await planned(pilot, app)
        await ask(pilot, "a")
        await wait_for(pilot, lambda: "the line to gpu1 is lost" in shown(app))
        await press(pilot, "c")
        assert await over(pilot, app) is State.CONFIRMED
        await wait_for(pilot, lambda: "it stays" in shown(app))


@pytest.mark.parametrize("at", ["plan", "apply"])
async def test_an_unknown_key_is_asked_about_wherever_it_comes(
    host: Host, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    trusted: list[UnknownHostKey] = []
    keys: list[Refusal] = [KEY] if at == "plan" else []

    async def capture(target: object, changes: list[Any]) -> Captured:
        if keys:
            raise keys.pop()
        return {}

    monkeypatch.setattr("gpudoctor.capture.capture", capture)
    monkeypatch.setattr("gpudoctor.hosts.known_hosts.trust", lambda e, _: trusted.append(e))
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await press(pilot, "2", "down", "down", "space")
        if at == "apply":
            await wait_for(pilot, lambda: app.board.plan is not None)
            host.kept.refuses = [KEY]
            await ask(pilot, "a")
        await wait_for(pilot, lambda: "SHA256:abcdef" in shown(app))
        await press(pilot, "y")
        if at == "apply":
            assert await over(pilot, app) is State.APPLIED
        await wait_for(pilot, lambda: "numa_balancing" in shown(app))
        assert trusted == [KEY] and not app.board.plan_problem


async def test_the_plan_has_a_row_on_the_smallest_screen(host: Host) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app, (40, 10)) as pilot:
        await planned(pilot, app)
        await wait_for(pilot, lambda: "[x]" in shown(app))
