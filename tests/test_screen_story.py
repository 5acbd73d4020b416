"""The story on the screens: opened at the start, applied again, made to last, and what else."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpudoctor.app import GpuDoctor
from gpudoctor.capture import Captured
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import Evidence, OwnFile, Sysctl
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import AnotherMachine, HostUnreachable, Refusal, UnknownHostKey
from gpudoctor.model.plan import Item, ItemMoved, Plan, State, StateMoved, Step
from gpudoctor.model.snapshot import Kind
from gpudoctor.model.story import Fate, KeptItem, KeptStep, PlanRecord, Story
from gpudoctor.screens.apply import ApplyScreen
from gpudoctor.screens.ask import AskScreen
from gpudoctor.screens.audit import AuditScreen
from gpudoctor.screens.diff import DiffScreen
from gpudoctor.screens.history import HistoryScreen
from gpudoctor.screens.plan import PlanScreen
from gpudoctor.screens.recollect import LookedBack, looked_back
from gpudoctor.screens.story import StoryScreen
from gpudoctor.screens.story_text import told_content
from gpudoctor.snapshots.catalog import heads
from gpudoctor.snapshots.plans import dump
from gpudoctor.snapshots.store import machine_folder, write_whole
from tests.pictures import demo
from tests.screen_change import Host, over, planned, scripted_host
from tests.screen_host import HOSTILE, RESULT, ScriptedAudit, poisoned, scripted_target
from tests.screen_past import DIFF, STORY, Past
from tests.screen_pilot import ask, press, running, shown, wait_for, wait_until_shown

__all__ = ["scripted_host"]
SIZES = [(80, 24), (200, 60)]
RAW = ("\x1b", "\x07", "\u202e")


@pytest.fixture
def past(host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Past]:
    """Replace what looks back and compares, beside the scripted host."""
    made = Past()
    made.replace_in(monkeypatch)
    yield made


class Held(ScriptedAudit):
    """An audit that waits for the story's gate."""

    past: Past

    async def run(self) -> Any:
        """Wait before the result."""
        events = [event async for event in super().run()]
        for event in events[:-1]:
            yield event
        await self.past.held.wait()
        yield events[-1]


@pytest.mark.parametrize("size", SIZES)
async def test_the_story_opens_before_the_audit_is_through(
    past: Past, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    Held.past = past
    monkeypatch.setattr("gpudoctor.audit.Audit", Held)
    app = GpuDoctor(scripted_target)
    async with running(app, size, wait=False) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        await wait_for(pilot, lambda: "2 selected" in shown(app))
        assert app.board.running
        for words in (
            "gpu1 was rebooted 20 minutes ago",
            "[x] ✗ lost       sysctl kernel.numa_balancing = 0",
            "[ ] ! overridden sysctl vm.swappiness = 1",
            "[x] ○ ended      iommu.passthrough = 1",
            "    ✓ kept       persistence mode = 1",
            "kern-numa-balancing",
            "wanted 0, now 1",
            "ana@laptop at 2026-11-29 08:15",
        ):
            assert words in shown(app)
        await press(pilot, "a")
        await wait_for(pilot, lambda: "as soon as the audit is through" in shown(app))
        past.held.set()
        await wait_for(pilot, lambda: isinstance(app.screen, AskScreen))
        assert "kernel.numa_balancing = 0" in shown(app)


async def test_what_else_has_changed_is_told_after_the_audit(past: Past) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app, (80, 24)) as pilot:
        await wait_for(pilot, lambda: "− gone      GPU 0000:41:00.0: RTX PRO 6000" in shown(app))
        await press(pilot, "tab", "end")
        for words in ("What else has changed", "the kernel is another", "d shows what differs in"):
            assert words in shown(app)
        await press(pilot, "d")
        await wait_for(pilot, lambda: isinstance(app.screen, DiffScreen))
        await press(pilot, "escape", "escape")
        assert isinstance(app.screen, AuditScreen)
        await press(pilot, "w")
        assert isinstance(app.screen, StoryScreen)


async def test_the_selected_are_applied_again_and_the_rest_is_said(past: Past, host: Host) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        await ask(pilot, "a")
        assert await over(pilot, app) is State.APPLIED
        assert host.planned[0] == ("kern-numa-balancing",) and host.kept.calls[0] == "apply"
        await wait_for(pilot, lambda: isinstance(app.screen, ApplyScreen))
        await press(pilot, "escape")
        assert "fw-iommu is not applied again: it is no longer an issue" in shown(app)


async def test_space_selects_what_was_lost_only(past: Past, host: Host) -> None:
    app = GpuDoctor(scripted_target)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        await press(pilot, "space", "down", "space", "down", "space", "down", "space")
        await wait_for(pilot, lambda: "1 selected" in shown(app))
        await wait_for(pilot, lambda: "it was kept" in shown(app))
        await ask(pilot, "a")
        await over(pilot, app)
        assert host.planned[0] == ("kern-swappiness",)


async def test_nothing_selected_is_said(past: Past, host: Host) -> None:
    past.story = replace(STORY, told=(STORY.told[1],))
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        await press(pilot, "space", "a")
        await wait_for(pilot, lambda: "nothing is selected" in shown(app))
        assert not host.planned


async def test_without_root_nothing_is_applied_and_it_is_said(
    past: Past, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedAudit, "result", replace(RESULT, user="ana"))
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        await press(pilot, "a")
        await wait_for(pilot, lambda: "needs root" in shown(app))
        assert not host.planned


async def test_inside_a_container_nothing_is_applied(
    past: Past, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = Evidence("container-marks", files={"/.dockerenv": b""})
    result = replace(RESULT, evidence={**RESULT.evidence, marks.key: marks})
    monkeypatch.setattr(ScriptedAudit, "result", result)
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        await press(pilot, "a")
        await wait_for(pilot, lambda: "this is inside a container (docker)" in shown(app))
        assert not host.planned


async def test_what_the_audit_settles_is_told(past: Past) -> None:
    past.settle = lambda story: replace(
        story, told=(replace(story.told[1], fate=Fate.KEPT, why="the audit finds it good"),)
    )
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: "✓ 1 kept" in shown(app))
        assert "the audit finds it good" in shown(app) and "selected" not in shown(app)


async def test_s_takes_a_snapshot(past: Past) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        await press(pilot, "s")
        folder = machine_folder("m1", "gpu1")
        await wait_for(pilot, lambda: [h.kind for h in heads(folder)[0]] == [Kind.MANUAL])


async def test_the_operator_at_work_is_not_disturbed(past: Past) -> None:
    past.gate.clear()
    app = GpuDoctor(scripted_target)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        await press(pilot, "2")
        past.gate.set()
        await wait_for(pilot, lambda: "w tells" in shown(app))
        assert isinstance(app.screen, PlanScreen)
        await press(pilot, "w")
        assert isinstance(app.screen, StoryScreen)


@pytest.mark.parametrize(
    "fault", [HostUnreachable("no route to gpu1"), RuntimeError("a fault"), Refusal("not root")]
)
async def test_a_failing_look_is_silent_but_in_the_history(past: Past, fault: Exception) -> None:
    past.fault = fault
    app = GpuDoctor(scripted_target)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, lambda: "look" in past.asked and app.board.result is not None)
        assert isinstance(app.screen, AuditScreen) and not app._notifications
        await press(pilot, "w")
        assert isinstance(app.screen, AuditScreen)
        await press(pilot, "h")
        await wait_for(pilot, lambda: "no story could be told" in shown(app))
        assert isinstance(app.screen, HistoryScreen) and str(fault) in shown(app)


async def test_another_machine_under_the_name_is_said_at_once(past: Past) -> None:
    past.fault = AnotherMachine("gpu1 is another machine [x] than the one whose snapshots")
    app = GpuDoctor(scripted_target)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, lambda: "gpu1 is another machine [x] than the one" in shown(app))
        assert isinstance(app.screen, AuditScreen)
        await press(pilot, "h")
        await wait_for(pilot, lambda: "no story could be told" in shown(app))


async def test_the_look_comes_after_the_question_about_a_key(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = UnknownHostKey("gpu1 is not known", "gpu1", 22, "ssh-ed25519 AAAA", "SHA256:abcdef")
    unknown = [key]

    class Strange(ScriptedAudit):
        async def run(self) -> Any:
            if unknown:
                raise unknown[0]
            async for event in super().run():
                yield event

    def trust(*_: object) -> None:
        unknown.clear()
        past.fault = None

    past.fault = key
    monkeypatch.setattr("gpudoctor.audit.Audit", Strange)
    monkeypatch.setattr("gpudoctor.hosts.known_hosts.trust", trust)
    app = GpuDoctor(scripted_target)
    async with running(app, wait=False) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, AskScreen) and bool(past.asked))
        await press(pilot, "y")
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        assert past.asked.count("look") == 2


@pytest.mark.parametrize("size", SIZES)
async def test_a_hostile_story_stays_text(past: Past, size: tuple[int, int]) -> None:
    told = tuple(
        replace(poisoned(one), fate=one.fate, check="kern-numa-balancing") for one in STORY.told
    )
    past.story = Story(HOSTILE, True, HOSTILE, STORY.since, told)
    diff = poisoned(DIFF)
    past.diff = replace(diff, old=DIFF.old, new=DIFF.new)
    app = GpuDoctor(scripted_target)
    async with app.run_test(size=size, notifications=True) as pilot:
        await wait_for(pilot, lambda: app.board.telling.since is not None)
        await wait_for(pilot, lambda: "[madvise]" in shown(app))
        assert not [raw for raw in RAW if raw in shown(app)]
        await press(pilot, "d")
        await wait_for(pilot, lambda: isinstance(app.screen, DiffScreen))
        await wait_for(pilot, lambda: "[madvise]" in shown(app))
        assert not [raw for raw in RAW if raw in shown(app)]


async def test_no_login_where_the_store_holds_nothing() -> None:
    def never() -> LiveTarget:
        raise AssertionError("asked for a target")

    async with looked_back(never) as told:
        assert told == LookedBack()


# making it last

FILE = OwnFile("/etc/sysctl.d/90-gpudoctor.conf", "kernel.numa_balancing = 0\n")


def last_plan(result: AuditResult, captured: Captured, chosen: Any, **more: Any) -> Plan:
    """Return the plan of the file that makes it last."""
    item = Item(FILE.path, "read", "absent", "ours", "write the file", "remove the file")
    step = Step("kern-numa-balancing", FILE, (item,))
    return Plan("20261130-2", "gpu1", "root", "m1", "b1", (step,), "sh", "hash")


@pytest.fixture
def lasting(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Give every plan a persistent form."""

    def persistent(
        result: AuditResult, plan: Plan, captured: Captured
    ) -> tuple[AuditResult, tuple[str, ...]]:
        mine = tuple(f for f in result.findings if f.id == plan.steps[0].check)
        some = mine if plan.id == "20261130-1" else ()
        return replace(result, findings=some), ("a step without [a form]",)

    def plan(result: AuditResult, captured: Captured, chosen: Any, **more: Any) -> Plan:
        if more:
            return last_plan(result, captured, chosen)
        return host.plan(result, captured, chosen)

    monkeypatch.setattr("gpudoctor.plan.persistent", persistent)
    monkeypatch.setattr("gpudoctor.plan.make_plan", plan)
    return host


@pytest.mark.parametrize("size", SIZES)
async def test_what_was_put_back_reads_so(past: Past, host: Host, size: tuple[int, int]) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app, size) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        await ask(pilot, "a")
        await over(pilot, app)
        await press(pilot, "escape")
        await wait_for(pilot, lambda: "✓ put back   sysctl kernel.numa_balancing = 0" in shown(app))
        assert "✗ lost" not in shown(app) and "✓ 2 kept" in shown(app)
        for words in ("✓ put back just now", "wanted 0, now 0", "change  20261130-1"):
            await wait_until_shown(pilot, app, words)
        await press(pilot, "t")
        await ask(pilot, "u")
        await wait_for(pilot, lambda: "undo 20261130-1" in host.kept.calls)
        assert await over(pilot, app) is State.UNDONE
        await press(pilot, "escape")
        await wait_for(pilot, lambda: "✗ lost       sysctl kernel.numa_balancing = 0" in shown(app))
        assert "it was put back, and taken back again just now" in shown(app)


def test_values_that_are_alike_are_one_line() -> None:
    """256 CPUs have the same governor; the one that has another comes first."""
    values = tuple(
        (f"cpu{n}", "performance", "powersave" if n == 1 else "performance") for n in range(256)
    )
    text = told_content(replace(STORY.told[1], values=values), False, 100).plain
    one, more = "cpu1  wanted performance, now powersave", "cpu0 and 254 more  wanted performance"
    assert 0 < text.index(one) < text.index(more) and "cpu9" not in text


def kept_record(transaction: str) -> None:
    """Keep the record of the transaction that set what the story tells of."""
    change = Sysctl("kernel.numa_balancing", "0")
    item = KeptItem("kernel.numa_balancing", "1", "0")
    step = KeptStep("kern-numa-balancing", 1, "sysctl kernel.numa_balancing = 0", (item,), change)
    record = PlanRecord(transaction, "gpu1", "ana", "m1", "b1", "2026-11-29T08:15:04", (step,))
    write_whole(machine_folder("m1", "gpu1") / f"{transaction}.plan.toml", dump(record))


async def test_what_was_kept_is_made_to_last_without_applying_it_again(
    past: Past, lasting: Host
) -> None:
    kept = replace(STORY.told[1], fate=Fate.KEPT, why="it is as it was set")
    past.story = replace(STORY, told=(kept,))
    kept_record(kept.transaction)
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: "[ ] ✓ kept       sysctl kernel.numa" in shown(app))
        await wait_for(
            pilot, lambda: "No file of ours makes it last: select it, and m" in shown(app)
        )
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        await press(pilot, "space", "a")
        await wait_for(pilot, lambda: "what was kept needs no applying again" in shown(app))
        await press(pilot, "m")
        await wait_for(pilot, lambda: "Make it last?" in shown(app))
        assert "/etc/sysctl.d/90-gpudoctor.conf" in shown(app) and not lasting.kept.calls
        await press(pilot, "y")
        await wait_for(pilot, lambda: bool(app.board.applying))
        assert await over(pilot, app) is State.APPLIED
        assert lasting.kept.calls == ["apply", "applied"]
        (offered,) = {change for changes in lasting.captures for change in changes if ours(change)}
        assert offered.path.startswith("/etc/sysctl.d/") and "numa_balancing" in offered.text
        await press(pilot, "escape")
        await wait_for(pilot, lambda: "Its persistent form is in place." in shown(app))
        assert "[ ]" not in shown(app) and f"{FILE.path} makes it last" in shown(app)


def ours(change: object) -> bool:
    return isinstance(change, OwnFile)


async def test_the_lost_and_the_kept_are_made_to_last_together(past: Past, lasting: Host) -> None:
    kept = replace(STORY.told[1], fate=Fate.KEPT, title="another", check="kern-swappiness")
    past.story = replace(STORY, told=(STORY.told[1], kept))
    item = KeptItem("vm.swappiness", "60", "1")
    step = KeptStep(kept.check, 1, kept.title, (item,), Sysctl("vm.swappiness", "1"))
    record = PlanRecord(kept.transaction, "gpu1", "ana", "m1", "b1", "2026-11-29", (step,))
    write_whole(machine_folder("m1", "gpu1") / f"{record.id}.plan.toml", dump(record))
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        await press(pilot, "down", "space")
        await ask(pilot, "m")
        await wait_for(pilot, lambda: "Make it last?" in shown(app))
        offered = {change.path for some in lasting.captures for change in some if ours(change)}
        assert any("swappiness" in path for path in offered)
        assert lasting.planned[0] == ("kern-numa-balancing",)


async def test_a_kept_change_without_a_record_is_not_promised(past: Past, lasting: Host) -> None:
    kept = replace(STORY.told[1], fate=Fate.KEPT)
    past.story = replace(STORY, told=(kept,))
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        await press(pilot, "space", "m")
        await wait_for(pilot, lambda: "cannot be made to last from here" in shown(app))
        assert not lasting.kept.calls


@pytest.mark.parametrize("size", SIZES)
async def test_m_of_the_story_applies_and_then_makes_it_last(
    past: Past, lasting: Host, size: tuple[int, int]
) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app, size) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        await ask(pilot, "m")
        await wait_for(pilot, lambda: "Make it last?" in shown(app))
        for words in ("/etc/sysctl.d/90-gpudoctor.conf", "write the file", "remove the file"):
            assert words in shown(app)
        assert lasting.kept.calls == ["apply", "applied"]
        await press(pilot, "y")
        await wait_for(pilot, lambda: lasting.kept.calls.count("applied") == 2)
        assert await over(pilot, app) is State.APPLIED
        assert app.board.applying and app.board.applying.id == "20261130-2"
        await wait_for(pilot, lambda: not app.board.running)
        assert not app.screen.query("#yes") and "m makes it last" not in shown(app)


async def test_what_was_kept_can_be_made_to_last_by_key(past: Past, lasting: Host) -> None:
    past.story = None
    app = GpuDoctor(scripted_target)
    async with running(app, (80, 24)) as pilot:
        await planned(pilot, app)
        await ask(pilot, "a")
        await over(pilot, app)
        await wait_for(pilot, lambda: "m makes it last" in shown(app))
        await press(pilot, "m")
        await wait_for(pilot, lambda: isinstance(app.screen, AskScreen))
        await press(pilot, "n")
        assert lasting.kept.calls == ["apply", "applied"]
        assert "m makes it last" in shown(app)


async def test_what_failed_is_not_made_to_last(past: Past, lasting: Host) -> None:
    lasting.kept.moves = [ItemMoved(1, "ignored", 0.1, "1"), StateMoved(State.FAILED)]
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        await ask(pilot, "m")
        assert await over(pilot, app) is State.FAILED
        await press(pilot, "m")
        assert isinstance(app.screen, ApplyScreen) and "m makes it last" not in shown(app)


async def test_a_refused_form_is_said(
    past: Past, lasting: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(result: AuditResult, captured: Captured, chosen: Any, **more: Any) -> Plan:
        if not more:
            return lasting.plan(result, captured, chosen)
        why = (("kern-numa-balancing", "/etc/sysctl.d/99-x.conf comes later and wins"),)
        return replace(last_plan(result, captured, chosen), steps=(), refused=why)

    monkeypatch.setattr("gpudoctor.plan.make_plan", refused)
    app = GpuDoctor(scripted_target)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, StoryScreen))
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        await ask(pilot, "m")
        await wait_for(pilot, lambda: "comes later and wins" in shown(app))
        assert lasting.kept.calls == ["apply", "applied"]


async def test_the_demo_makes_a_fix_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    app = demo((0.0, 0.0))
    async with running(app) as pilot:
        app.board.chosen = ("kern-numa-balancing",)
        await press(pilot, "2", "down")
        app._replan()
        await wait_for(pilot, lambda: app.board.plan is not None)
        await ask(pilot, "a")
        await over(pilot, app)
        await wait_for(pilot, lambda: "m makes it last" in shown(app))
        await press(pilot, "m")
        await wait_for(pilot, lambda: "/etc/sysctl.d/" in shown(app))
        await press(pilot, "y")
        await wait_for(
            pilot, lambda: bool(app.board.applying and "/etc" in app.board.applying.steps[0])
        )
        assert await over(pilot, app) is State.APPLIED
