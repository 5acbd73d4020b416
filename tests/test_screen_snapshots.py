"""Mode 3: snapshots listed, taken, noted, compared and shown; and the page before a reboot."""

import asyncio
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from gpudoctor.app import GpuDoctor
from gpudoctor.cli_ask import command as command_line
from gpudoctor.hosts.recorded import RecordedTarget
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.before_reboot import BeforeReboot, Line, Outlook, Topic
from gpudoctor.model.error import Refusal
from gpudoctor.model.snapshot import Kind
from gpudoctor.screens.before_reboot import BeforeRebootScreen
from gpudoctor.screens.diff import DiffScreen
from gpudoctor.screens.snapshot import SnapshotScreen
from gpudoctor.screens.snapshots import SnapshotsScreen
from gpudoctor.snapshots.catalog import heads
from gpudoctor.snapshots.store import machine_folder, save
from tests.pictures import demo
from tests.screen_host import HOSTILE, RESULT, ScriptedAudit, ScriptedTransactions, scripted_target
from tests.screen_past import DIFF, NOW, THEN, Past, keep
from tests.screen_pilot import press, running, shown, wait_for

SIZES = [(80, 24), (200, 60)]


@pytest.fixture
def past(monkeypatch: pytest.MonkeyPatch) -> Iterator[Past]:
    """Replace the audit, the target's transactions, and the engines of the past; no story."""
    made = Past()
    made.story = None
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr("gpudoctor.audit.Audit", ScriptedAudit)
    ScriptedTransactions().replace_in(monkeypatch)
    made.replace_in(monkeypatch)
    yield made


def there() -> list[Any]:
    """Return the scripted host's snapshots."""
    return heads(machine_folder("m1", "gpu1"))[0]


@pytest.mark.parametrize("size", SIZES)
async def test_snapshots_are_listed_by_boot(past: Past, size: tuple[int, int]) -> None:
    keep(Kind.BEFORE, "b0" * 16, THEN, "20261129-081504-3fa2c1")
    keep(Kind.MANUAL, "b1", NOW)
    (machine_folder("m1", "gpu1") / "torn.toml").write_text("# gpudoctor snapshot\nschema =")
    app = GpuDoctor(scripted_target)
    async with running(app, size) as pilot:
        await press(pilot, "3")
        await wait_for(pilot, lambda: "2026-11-30 09:00:00 UTC" in shown(app))
        await wait_for(pilot, lambda: "findings" in shown(app))
        text = shown(app)
        for words in (
            "This boot",
            "An earlier boot (b0b0b0b0)",
            "taken by hand",
            "before a change",
            "20261129-081504-3fa2c1",
            "torn.toml",
            "▲ 4 issues",
            "3 Snapshots",
        ):
            assert words in text
        assert text.index("This boot") < text.index("An earlier boot") < text.index("torn.toml")
        assert text.count("torn.toml") == 1
        await press(pilot, "down")
        await wait_for(pilot, lambda: "of change" in shown(app))


async def test_s_takes_one_and_n_notes_it(past: Past) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app, (80, 24)) as pilot:
        await press(pilot, "3")
        await wait_for(pilot, lambda: "None of this machine yet" in shown(app))
        await press(pilot, "s")
        await wait_for(pilot, lambda: "taken by hand" in shown(app))
        assert [head.kind for head in there()] == [Kind.MANUAL]
        await press(pilot, "n", *"after [x]")
        await press(pilot, "enter")
        await wait_for(pilot, lambda: "after [x]" in shown(app))
        assert there()[0].note == "after [x]"
        assert isinstance(app.screen, SnapshotsScreen) and not isinstance(app.focused, Input)
        await press(pilot, "n", *"zzz", "escape")
        assert there()[0].note == "after [x]" and app.focused is not None


async def test_enter_shows_what_was_found_then(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    keep()
    app = GpuDoctor(scripted_target)
    async with running(app, (200, 60)) as pilot:
        await press(pilot, "3")
        await wait_for(pilot, lambda: "taken by hand" in shown(app))
        await press(pilot, "enter")
        await wait_for(pilot, lambda: isinstance(app.screen, SnapshotScreen))
        await wait_for(pilot, lambda: "MaxReadReq is 512 bytes on 8 GPUs" in shown(app))
        for words in ("Issues  4", "Unknown  1", "high P0", "as it was judged then"):
            assert words in shown(app)
        assert "otherwise" not in shown(app)
        await press(pilot, "escape")
        assert isinstance(app.screen, SnapshotsScreen)


async def test_other_rules_are_told(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.recording.digest", lambda: "0" * 16)
    some = tuple(f for f in RESULT.findings if f.id != "kern-swappiness")
    save(replace(RESULT, findings=some, taken=THEN), Kind.MANUAL)
    app = GpuDoctor(scripted_target)
    async with running(app, (200, 60)) as pilot:
        await press(pilot, "3")
        await wait_for(pilot, lambda: "taken by hand" in shown(app))
        await press(pilot, "enter")
        await wait_for(pilot, lambda: "Today's rules say otherwise  1" in shown(app))
        assert "no such check then" in shown(app) and "kern-swappiness" in shown(app)


@pytest.mark.parametrize("size", SIZES)
async def test_d_compares_with_now_or_the_two_marked(past: Past, size: tuple[int, int]) -> None:
    keep(taken=THEN, boot="b0")
    keep(taken=NOW)
    app = GpuDoctor(scripted_target)
    async with running(app, size) as pilot:
        await press(pilot, "3")
        await wait_for(pilot, lambda: "d: 2026-11-30 09:00:00 UTC and now" in shown(app))
        await press(pilot, "d")
        await wait_for(pilot, lambda: "1204 values are" in shown(app))
        assert isinstance(app.screen, DiffScreen) and isinstance(past.asked[-1], AuditResult)
        await press(pilot, "escape", "space", "down", "space")
        await wait_for(pilot, lambda: "d: the two marked" in shown(app))
        await press(pilot, "d")
        await wait_for(pilot, lambda: "1204 values are" in shown(app))
        old, new = there()[1], there()[0]
        assert past.pairs[-1] == (old, new) and past.pairs[0][0] == new
        await wait_for(pilot, lambda: isinstance(app.screen, DiffScreen))
        for words in (
            "the kernel is another",
            "Settings  1",
            "Inventory  2",
            "− gone",
            "RTX PRO 6000",
            "8 GPUs link width: 16 -> 8",
            "(the reboot)",
            "✗ regressed",
        ):
            assert words in shown(app)


async def test_an_empty_diff_is_said_in_one_line(past: Past) -> None:
    keep()
    past.diff = replace(DIFF, settings=(), inventory=(), findings=(), remarks=())
    app = GpuDoctor(scripted_target)
    async with running(app, (80, 24)) as pilot:
        await press(pilot, "3")
        await wait_for(pilot, lambda: "taken by hand" in shown(app))
        await press(pilot, "d")
        await wait_for(pilot, lambda: "no difference" in shown(app))


async def test_why_there_is_no_diff(past: Past) -> None:
    keep()
    past.fault = Refusal("the file [x] was changed after it was written")
    app = GpuDoctor(scripted_target)
    async with running(app, (80, 24)) as pilot:
        await press(pilot, "3")
        await wait_for(pilot, lambda: "taken by hand" in shown(app))
        await press(pilot, "d")
        await wait_for(pilot, lambda: "the file [x] was changed" in shown(app))


async def test_a_store_that_cannot_be_written_is_said_loudly(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise Refusal("/state, where snapshots are kept, cannot be written (no space left)", 1)

    monkeypatch.setattr("gpudoctor.snapshots.store.save", full)
    app = GpuDoctor(scripted_target)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        await press(pilot, "3", "s")
        await wait_for(pilot, lambda: "no snapshot was kept" in shown(app))
        assert "no space left" in shown(app) and not app.board.shelf.saving


async def test_a_store_that_cannot_be_read_is_said(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gpudoctor.snapshots.catalog.heads", denied)
    app = GpuDoctor(scripted_target)
    async with running(app, (80, 24)) as pilot:
        await press(pilot, "3")
        await wait_for(pilot, lambda: "Permission denied" in shown(app))


async def test_hostile_text_in_a_snapshot_stays_text(past: Past) -> None:
    identity = replace(RESULT.identity, kernel=HOSTILE, system=HOSTILE, boot_id=HOSTILE)
    save(replace(RESULT, identity=identity, taken=THEN, user=HOSTILE), Kind.BOOT, HOSTILE)
    app = GpuDoctor(scripted_target)
    async with running(app, (200, 60)) as pilot:
        await press(pilot, "3")
        await wait_for(pilot, lambda: "[madvise]" in shown(app))
        await press(pilot, "n")
        await pilot.press("[", "/", "x", "]", "enter")
        await wait_for(pilot, lambda: "[/x]" in shown(app))
        assert "\x1b" not in shown(app) and "\u202e" not in shown(app)
        await press(pilot, "enter")
        await wait_for(pilot, lambda: isinstance(app.screen, SnapshotScreen))
        assert "\x1b" not in shown(app)


async def test_the_demo_leaves_no_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    app = demo((0.0, 0.0))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        await press(pilot, "3")
        await wait_for(pilot, lambda: "leaves no snapshots" in shown(app))
        await press(pilot, "s")
        await wait_for(pilot, lambda: "ends with this screen: it leaves no" in shown(app))
        await press(pilot, "d")
        await wait_for(pilot, lambda: "no snapshot to compare" in shown(app))


async def test_of_a_recording_no_snapshot_is_taken(past: Past) -> None:
    app = GpuDoctor(lambda: RecordedTarget("gpu1", {}))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        await press(pilot, "3", "s")
        await wait_for(pilot, lambda: "this is a recording" in shown(app))
    assert not there()


PAGE = BeforeReboot(
    "gpu1",
    (
        Line(
            Topic.MODULE,
            Outlook.LOOK,
            "no NVIDIA module is built for 6.8.0-47",
            "build it",
            ("dkms autoinstall -k 6.8.0-47",),
            "/lib/modules/6.8.0-47/updates/dkms: empty",
            stops=True,
        ),
        Line(Topic.TUNINGS, Outlook.LOST, "sysctl kernel.numa_balancing = 0 will be lost"),
        Line(Topic.UPDATES, Outlook.UNKNOWN, "whether updates wait is not known"),
        Line(Topic.START, Outlook.READY, "vllm.service is enabled"),
    ),
    "6.8.0-45",
    "6.8.0-47",
)


@pytest.mark.parametrize("size", SIZES)
async def test_the_page_before_a_reboot(
    past: Past, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    pages = [PAGE, replace(PAGE, lines=PAGE.lines[3:])]

    async def audited(target: object, more: object) -> AuditResult:
        return RESULT

    monkeypatch.setattr("gpudoctor.audit.run_audit", audited)

    def page(result: object, known: object, command: Callable[..., str]) -> BeforeReboot:
        made = pages.pop(0)
        said = Line(Topic.TUNINGS, Outlook.LOST, "x", commands=(command("rollback", "T"),))
        return replace(made, lines=(*made.lines, said))

    monkeypatch.setattr("gpudoctor.before_reboot.page", page)
    app = GpuDoctor(scripted_target)
    app.board.command = partial(command_line, Namespace(host="root@gpu1", container="lxc:101"))
    async with running(app, size) as pilot:
        await press(pilot, "3", "b")
        await wait_for(pilot, lambda: "no NVIDIA module is built" in shown(app))
        for words in (
            "do not reboot yet",
            "✗ do not reboot",
            "$ dkms autoinstall -k 6.8.0-47",
            "✗ will be lost  sysctl kernel.numa_balancing",
            "6.8.0-47 boots next",
            "$ gpudoctor --host root@gpu1 --container lxc:101 rollback T",
        ):
            assert words in shown(app)
        await press(pilot, "r")
        await wait_for(pilot, lambda: "no NVIDIA module" not in shown(app))
        assert "✓ ready         vllm.service is enabled" in shown(app)
        await press(pilot, "escape")
        assert isinstance(app.screen, SnapshotsScreen)


async def test_why_there_is_no_page(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(target: object, more: object) -> AuditResult:
        raise Refusal("the line to gpu1 [x] is lost")

    monkeypatch.setattr("gpudoctor.audit.run_audit", lost)
    app = GpuDoctor(scripted_target)
    async with running(app, (80, 24)) as pilot:
        await press(pilot, "b")
        await wait_for(pilot, lambda: "the line to gpu1 [x] is lost" in shown(app))
        assert isinstance(app.screen, BeforeRebootScreen)


async def test_quitting_ends_what_is_read_for_the_page(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def endless(target: object, more: object) -> AuditResult:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return RESULT

    monkeypatch.setattr("gpudoctor.audit.run_audit", endless)
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await press(pilot, "b")
        await wait_for(pilot, began.is_set)
        await app.action_quit()
        assert ended.is_set()


async def test_help_and_palette_know_the_snapshots(past: Past) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app, (120, 40)) as pilot:
        await press(pilot, "3", "question_mark", "end")
        await wait_for(pilot, lambda: "− gone" in shown(app) and "✗ lost" in shown(app))
        await press(pilot, "escape", "ctrl+p", *"before you")
        await wait_for(pilot, lambda: "Before you reboot" in shown(app))
        await press(pilot, "enter")
        await wait_for(pilot, lambda: isinstance(app.screen, BeforeRebootScreen))


def test_the_screens_need_no_home() -> None:
    lines = (
        "import pathlib",
        "def homeless(*_): raise RuntimeError",
        "pathlib.Path.home = homeless",
        "import gpudoctor.app",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, timeout=60)
