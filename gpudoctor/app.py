"""The screen: an app that wires modes, keys and workers. What it shows lies on the board."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.screen import Screen

from gpudoctor.model.finding import Panel
from gpudoctor.screens.audit import FIRST_STYLES, AuditScreen
from gpudoctor.screens.board import Draws
from gpudoctor.screens.choice import toggled, way_of
from gpudoctor.screens.measuring import Measuring
from gpudoctor.screens.messages import PanelAsked, PlanAsked
from gpudoctor.screens.themes import THEMES, first_theme

if TYPE_CHECKING:
    from gpudoctor.hosts.target import Target
    from gpudoctor.screens.bench import BenchScreen
    from gpudoctor.screens.palette import DoctorCommands
    from gpudoctor.screens.plan import PlanScreen
    from gpudoctor.screens.snapshots import SnapshotsScreen

_DRAWS_A_SECOND = 10


def _commands() -> "type[DoctorCommands]":
    from gpudoctor.screens.palette import DoctorCommands

    return DoctorCommands


def _plan_screen() -> "PlanScreen":
    from gpudoctor.screens.plan import PlanScreen

    return PlanScreen()


def _snapshots_screen() -> "SnapshotsScreen":
    from gpudoctor.screens.snapshots import SnapshotsScreen

    return SnapshotsScreen()


def _bench_screen() -> "BenchScreen":
    from gpudoctor.screens.bench import BenchScreen

    return BenchScreen()


class GpuDoctor(Measuring):
    """gpudoctor's screen on one host."""

    TITLE = "gpudoctor"
    CSS_PATH: ClassVar[list[str | PurePath]] = ["app.tcss", FIRST_STYLES]
    MODES: ClassVar[dict[str, str | Callable[[], Screen[None]]]] = {
        "audit": AuditScreen,
        "plan": _plan_screen,
        "snapshots": _snapshots_screen,
        "bench": _bench_screen,
    }
    DEFAULT_MODE = "audit"
    COMMAND_PALETTE_BINDING = "ctrl+p"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (16, "-high")]
    COMMANDS = Measuring.COMMANDS | {_commands}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "1", "mode('audit')", "Audit", show=False, id="app.audit", tooltip="The ten panels"
        ),
        Binding(
            "2",
            "mode('plan')",
            "Plan",
            show=False,
            id="app.plan",
            tooltip="Findings by rank, and fixes",
        ),
        Binding(
            "3",
            "mode('snapshots')",
            "Snapshots",
            show=False,
            id="app.snapshots",
            tooltip="What was, and what differs",
        ),
        Binding(
            "4",
            "mode('bench')",
            "Benchmark",
            show=False,
            id="app.bench",
            tooltip="How fast the engine decodes",
        ),
        Binding("r", "reaudit", "Re-audit", id="app.reaudit", tooltip="Read the host anew"),
        Binding(
            "t", "transaction", "Last change", id="app.transaction", tooltip="What was applied"
        ),
        Binding(
            "h", "history", "History", id="app.history", tooltip="What the target keeps of changes"
        ),
        Binding(
            "b",
            "before_reboot",
            show=False,
            id="app.reboot",
            tooltip="Before you reboot",
        ),
        Binding("w", "story", show=False, id="app.story", tooltip="The story: what a reboot took"),
        Binding("question_mark", "help", "Help", id="app.help", tooltip="Keys and words"),
        Binding("q", "quit", "Quit", id="app.quit", tooltip="Quit; what was applied stays"),
        Binding(
            "ctrl+q", "quit", show=False, id="app.quit-too", tooltip="Quit; what was applied stays"
        ),
    ]

    def __init__(self, make_target: "Callable[[], Target]", read_only: bool = False) -> None:
        """Take how to make the target (once for each login), and whether writes are refused."""
        super().__init__(make_target, read_only)
        self._drawn: tuple[int, int] = (-1, 0)
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = first_theme()

    @property
    def fault(self) -> Exception | None:
        """Return what ended the app where that was a fault of ours."""
        return self._exception

    def _fatal_error(self) -> None:
        """Leave the terminal as it was; Textual would print a traceback with local values."""
        if os.environ.get("GPUDOCTOR_TRACEBACK"):
            super()._fatal_error()
        else:
            self._close_messages_no_wait()

    def on_mount(self) -> None:
        """Read once the grid is painted."""
        self.set_interval(1 / _DRAWS_A_SECOND, self._tick)
        self.call_after_refresh(self._look_back)
        self.call_after_refresh(self._begin, tuple(Panel))

    def _tick(self) -> None:
        """Draw the board where it changed: at most ten times a second."""
        stack = self.screen_stack
        now = (self.board.version, id(stack[-1]) if stack else 0)
        if now == self._drawn and not self.board.moving:
            return
        self._drawn = now
        for screen in stack:
            if isinstance(screen, Draws) and screen.is_mounted:
                with suppress(NoMatches):  # it is being taken down
                    screen.draw()

    # where things are

    async def action_mode(self, mode: str) -> None:
        """Go to a mode; pressed again, back to its first screen."""
        if self.current_mode == mode:
            while len(self.screen_stack) > 1:
                await self.pop_screen()
        else:
            await self.switch_mode(mode)

    async def action_back(self) -> None:
        """Leave a page that lies over a mode's first screen."""
        if len(self.screen_stack) > 1:
            await self.pop_screen()

    async def action_filter(self) -> None:
        """Filter the ranked list."""
        await self._to_plan()
        await self.run_action("screen.filter")

    def action_help(self) -> None:
        """Show keys and words."""
        from gpudoctor.screens.help import HelpScreen

        bindings = [active.binding for active in self.screen.active_bindings.values()]
        keys = {b.tooltip: self.get_key_display(b) for b in bindings if b.id and b.tooltip}
        keys["Search panels, findings and commands"] = "^p"
        self.push_screen(HelpScreen((key, what) for what, key in keys.items()))

    @on(PanelAsked)
    async def open_panel(self, event: PanelAsked) -> None:
        """Open a panel's page over the mode where we are."""
        from gpudoctor.screens.panel import PanelScreen

        if self._leaving:
            return
        if isinstance(self.screen, PanelScreen):
            await self.pop_screen()
        page = PanelScreen(self.board, event.panel, event.finding, self.current_mode)
        await self.push_screen(page)

    async def _to_plan(self) -> "PlanScreen":
        from gpudoctor.screens.plan import PlanScreen

        if self.current_mode != "plan":
            await self.switch_mode("plan")
        while len(self.screen_stack) > 1:
            await self.pop_screen()
        assert isinstance(self.screen, PlanScreen)
        return self.screen

    @on(PlanAsked)
    async def go_to_finding(self, event: PlanAsked) -> None:
        """Go to a finding in the ranked list, selecting it where asked."""
        screen = await self._to_plan()
        if event.choose and way_of(self.board.chosen, event.finding) is None:
            self.board.chosen = toggled(self.board.chosen, event.finding)
            self._replan()
        screen.go_to(event.finding)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the last transaction and the story where there is one, nothing while it goes."""
        if self._leaving:
            return False
        if action == "story":
            return self.board.telling.story is not None
        return action != "transaction" or self.board.applying is not None

    # leaving

    async def action_quit(self) -> None:
        """Leave nothing of the audit behind; ask first where a transaction is not over."""
        applying = self.board.applying
        if applying is not None and applying.unsettled:
            from gpudoctor.screens.ask import AskScreen, leaving_question

            question = leaving_question(applying, self.board.simulated)
            await self.push_screen(AskScreen("Quit?", question, "Quit"), self._left)
            return
        await self._leave()

    async def _left(self, yes: bool | str | None) -> None:
        applying = self.board.applying
        if yes and applying is not None:
            from gpudoctor.screens.ask import leaving_words

            over = not applying.unsettled
            words = leaving_words(applying, self.board)
            await self._leave("" if over else words)

    async def _leave(self, words: str = "") -> None:
        """End what runs on the target for us, then the app; `words` are left on the terminal."""
        self._leaving = True
        await self._halt()
        await self._end_aside()
        await self._follower.close()
        self.exit(message=Text(words) if words else None)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Keep Textual's commands for the palette, less its own list of keys: ours is Help."""
        return (c for c in super().get_system_commands(screen) if c.title != "Keys")

    def action_help_quit(self) -> None:
        """Say which key quits: what ctrl+c does here."""
        self.notify("q quits", markup=False)
