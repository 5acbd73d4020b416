"""The screens on a scripted audit and on the demo host: keys in, what is shown out."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from textual.widgets import Input, OptionList, Static

from gpudoctor.app import GpuDoctor
from gpudoctor.checks import by_id
from gpudoctor.model.finding import Panel
from gpudoctor.screens.apply import ApplyScreen
from gpudoctor.screens.ask import AskScreen
from gpudoctor.screens.audit import AuditScreen
from gpudoctor.screens.card import PanelCard
from gpudoctor.screens.help import HelpScreen
from gpudoctor.screens.history import HistoryScreen
from gpudoctor.screens.key_values import KEY_VALUES
from gpudoctor.screens.panel import PanelScreen
from gpudoctor.screens.plan import PlanScreen
from gpudoctor.screens.recovery import RecoveryScreen
from tests.screen_host import ScriptedAudit, nothing_captured, plan_of, scripted_target
from tests.screen_pilot import press, running, shown, wait_for

SIZES = [(80, 24), (160, 45), (200, 60)]


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


@pytest.mark.parametrize("size", SIZES)
async def test_grid_shows_ten_panels_and_the_worst(scripted: None, size: tuple[int, int]) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app, size) as pilot:
        await wait_for(pilot, lambda: "MaxReadReq is 512" in shown(app))
        text = shown(app)
        for panel in Panel:
            assert panel.heading in text
        for words in ("MaxReadReq is 512", "lxc:101", "root", "gpu1", "q Quit"):
            assert words in text
        cards = list(app.screen.query(PanelCard))
        assert len({card.region.size for card in cards}) <= 2
        assert all(card.region.height >= 4 for card in cards)


async def test_keys_move_between_the_panels_and_open_one(scripted: None) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await press(pilot, "down", "right", "left", "right", "right")
        assert isinstance(app.focused, PanelCard) and app.focused.panel is Panel.KERNEL_KNOBS
        await press(pilot, "enter")
        assert isinstance(app.screen, PanelScreen)
        await wait_for(pilot, lambda: "numa_balancing" in shown(app))
        text = shown(app)
        for words in ("1 on 2 nodes", "observed", "expected", "source", "/proc/sys/kernel"):
            assert words in text
        await press(pilot, "right")
        await wait_for(pilot, lambda: "Kernel version" in shown(app))
        await press(pilot, "escape")
        assert isinstance(app.screen, AuditScreen)


async def test_selection_previews_commands_and_undo(scripted: None) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await press(pilot, "2")
        assert isinstance(app.screen, PlanScreen)
        await press(pilot, "down", "down", "space")
        await wait_for(pilot, lambda: app.board.plan is not None)
        text = shown(app)
        assert "echo 0 > /proc/sys/kernel/numa_balancing" in text
        assert "echo 1 > /proc/sys/kernel/numa_balancing" in text
        assert "risk low" in text and "[x]" in text
        await press(pilot, "space")
        await wait_for(pilot, lambda: "Nothing is selected" in shown(app))


async def test_rows_are_ranked_and_filtered(scripted: None) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await press(pilot, "2")
        rows = shown(app)
        order = [rows.index(w) for w in ("MaxReadReq is", "may lock", "NUMA balancing", "IOMMU")]
        assert order == sorted(order)
        await press(pilot, "slash", *"swap")
        await wait_for(pilot, lambda: "MaxReadReq" not in shown(app))
        assert "Swappiness is 60" in shown(app)
        await press(pilot, "enter")
        assert isinstance(app.focused, OptionList)
        await press(pilot, "escape")
        await wait_for(pilot, lambda: "MaxReadReq" in shown(app))
        assert not app.screen.query_one("#filter", Input).display
        await press(pilot, "s")
        await wait_for(pilot, lambda: "IOMMU passes" not in shown(app))


async def test_filter_and_status_without_rows(scripted: None) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await press(pilot, "2", "slash", *"zzz")
        await wait_for(pilot, lambda: "MaxReadReq" not in shown(app))
        await press(pilot, "enter", "space", "enter")
        assert app.board.chosen == ()


async def test_help_lists_keys_and_words(scripted: None) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await press(pilot, "question_mark")
        assert isinstance(app.screen, HelpScreen)
        await wait_for(pilot, lambda: "firmware or physical" in shown(app))
        assert "not an issue" in shown(app) and "unproven" in shown(app)
        await press(pilot, "escape")
        assert isinstance(app.screen, AuditScreen)


async def test_palette_goes_to_a_finding(scripted: None) -> None:
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await press(pilot, "ctrl+p", *"kern-swappiness")
        await wait_for(pilot, lambda: "kern-swappiness: Swappiness" in shown(app))
        await press(pilot, "down", "enter")
        await wait_for(pilot, lambda: isinstance(app.screen, PlanScreen))
        await wait_for(pilot, lambda: "Swappiness is 60" in _summary(app))


def _summary(app: GpuDoctor) -> str:
    return str(app.screen.query_one("#summary", Static).visual)


async def test_every_binding_has_an_id_and_a_tooltip() -> None:
    for owner in (
        GpuDoctor,
        AuditScreen,
        PanelScreen,
        PlanScreen,
        ApplyScreen,
        HistoryScreen,
        RecoveryScreen,
        HelpScreen,
        AskScreen,
    ):
        for binding in owner.BINDINGS:
            assert not isinstance(binding, tuple) and binding.id and binding.tooltip, binding


def test_key_values_name_checks_that_exist() -> None:
    assert set(KEY_VALUES) - set(by_id()) == set()


def test_the_app_imports_nothing_heavy() -> None:
    heavy = ("asyncssh", "pydantic", "gpudoctor.checks", "gpudoctor.audit", "gpudoctor.plan")
    code = f"import sys, gpudoctor.app; print([m for m in {heavy!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


async def test_status_is_told_without_colour(
    scripted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = GpuDoctor(scripted_target)
    async with running(app) as pilot:
        await press(pilot, "2")
        await wait_for(pilot, lambda: "MaxReadReq" in shown(app))
        for words in ("▲ high", "✓ good", "○ not an issue", "• info", "? unknown"):
            assert words in shown(app)
