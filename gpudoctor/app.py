"""The screen: an app that wires modes, keys and workers. What it shows lies on the board."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.worker import Worker, WorkerCancelled, WorkerFailed

from gpudoctor.model.error import UnknownHostKey
from gpudoctor.model.finding import Panel
from gpudoctor.model.plan import Plan
from gpudoctor.screens.audit import FIRST_STYLES, AuditScreen
from gpudoctor.screens.board import Applying, Board, Draws
from gpudoctor.screens.follow import Follower
from gpudoctor.screens.messages import ApplyAsked, ChoiceChanged, PanelAsked, PlanAsked, UndoAsked
from gpudoctor.screens.themes import THEMES, first_theme

if TYPE_CHECKING:
    from gpudoctor.hosts.target import Target
    from gpudoctor.screens.palette import DoctorCommands
    from gpudoctor.screens.plan import PlanScreen

_DRAWS_A_SECOND = 10
_HALT_SECONDS = 5.0


def _commands() -> "type[DoctorCommands]":
    from gpudoctor.screens.palette import DoctorCommands

    return DoctorCommands


def _plan_screen() -> "PlanScreen":
    from gpudoctor.screens.plan import PlanScreen

    return PlanScreen()


class GpuDoctor(App[None]):
    """gpudoctor's screen on one host."""

    TITLE = "gpudoctor"
    CSS_PATH: ClassVar[list[str | PurePath]] = ["app.tcss", FIRST_STYLES]
    MODES: ClassVar[dict[str, str | Callable[[], Screen[None]]]] = {
        "audit": AuditScreen,
        "plan": _plan_screen,
    }
    DEFAULT_MODE = "audit"
    COMMAND_PALETTE_BINDING = "ctrl+p"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]
    COMMANDS = App.COMMANDS | {_commands}
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
        Binding("r", "reaudit", "Re-audit", id="app.reaudit", tooltip="Read the host anew"),
        Binding(
            "t", "transaction", "Last change", id="app.transaction", tooltip="What was applied"
        ),
        Binding("question_mark", "help", "Help", id="app.help", tooltip="Keys and words"),
        Binding("q", "quit", "Quit", id="app.quit", tooltip="Quit; what was applied stays"),
        Binding(
            "ctrl+q", "quit", show=False, id="app.quit-too", tooltip="Quit; what was applied stays"
        ),
    ]

    def __init__(self, make_target: "Callable[[], Target]", read_only: bool = False) -> None:
        """Take how to make the target (once for each audit), and whether writes are refused."""
        super().__init__()
        self.board = Board(read_only)
        self._follower = Follower(self.board, make_target)
        self._auditing: Worker[None] | None = None
        self._drawn: tuple[int, int] = (-1, 0)
        self._leaving = False
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
        self.call_after_refresh(self._begin, tuple(Panel))

    def _tick(self) -> None:
        """Draw the board where it changed: at most ten times a second."""
        stack = self.screen_stack
        now = (self.board.version, id(stack[-1]) if stack else 0)
        if now == self._drawn and not self.board.running:
            return
        self._drawn = now
        for screen in stack:
            if isinstance(screen, Draws) and screen.is_mounted:
                with suppress(NoMatches):  # it is being taken down
                    screen.draw()

    # the audit

    def _begin(self, panels: Iterable[Panel]) -> None:
        audit = partial(self._audit, tuple(panels))  # a coroutine only once it runs
        self._auditing = self.run_worker(audit, exit_on_error=False)

    async def _audit(self, panels: tuple[Panel, ...]) -> None:
        try:
            await self._follower.audit(panels)
        except UnknownHostKey as error:
            self._ask_for_key(error)
            return
        if self.board.chosen:
            await self._follower.plan()

    async def _halt(self) -> None:
        """End a running audit and wait until nothing of it is left on the target."""
        worker, self._auditing = self._auditing, None
        if worker is None or worker.is_finished:
            return
        worker.cancel()
        try:
            async with asyncio.timeout(_HALT_SECONDS):
                await worker.wait()
        except (TimeoutError, WorkerCancelled, WorkerFailed):
            await self._follower.close()

    async def action_reaudit(self) -> None:
        """Read the whole host anew."""
        if self._busy:
            self.notify("a transaction is running: its panels are read when it ends", markup=False)
            return
        await self._halt()
        self._begin(tuple(Panel))

    def _ask_for_key(self, error: UnknownHostKey) -> None:
        from gpudoctor.screens.ask import AskScreen, host_key_question

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._trust(error), exit_on_error=False)

        self.push_screen(AskScreen("Unknown host key", host_key_question(error), "Trust"), answered)

    async def _trust(self, error: UnknownHostKey) -> None:
        problem = await self._follower.trust(error)
        if problem:
            self.board.end(problem)
            return
        self._begin(tuple(Panel))

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
        if event.choose and event.finding not in self.board.chosen:
            self.board.chosen += (event.finding,)
            self._replan()
        screen.go_to(event.finding)

    # the plan and the transaction

    @on(ChoiceChanged)
    def _replan(self) -> None:
        self.run_worker(self._follower.plan(), group="plan", exclusive=True, exit_on_error=False)

    @property
    def _busy(self) -> bool:
        return self.board.applying is not None and self.board.applying.busy

    @on(ApplyAsked)
    def ask_to_apply(self, event: ApplyAsked) -> None:
        """Ask once, then apply."""
        from gpudoctor.screens.ask import AskScreen
        from gpudoctor.screens.preview import apply_question

        if self._busy or self.board.read_only:
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._apply(event.plan), group="apply", exit_on_error=False)

        question = apply_question(event.plan, self.board.label)
        self.push_screen(AskScreen("Apply?", question, "Apply"), answered)

    async def _apply(self, plan: Plan) -> None:
        from gpudoctor.screens.apply import ApplyScreen

        await self._halt()
        self.board.chosen, self.board.plan = (), None
        self.board.applying = Applying(plan)
        await self.push_screen(ApplyScreen(self.board))
        await self._transact(self._follower.apply(plan))

    async def action_transaction(self) -> None:
        """Show the transaction of this session again."""
        from gpudoctor.screens.apply import ApplyScreen

        if self.board.applying is not None and not isinstance(self.screen, ApplyScreen):
            await self.push_screen(ApplyScreen(self.board))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the last transaction once there is one, and nothing while the app goes."""
        if self._leaving:
            return False
        return action != "transaction" or self.board.applying is not None

    @on(UndoAsked)
    def undo(self) -> None:
        """Ask once, then undo what was just applied."""
        from gpudoctor.screens.ask import AskScreen
        from gpudoctor.screens.preview import undo_question

        applying = self.board.applying
        if applying is None or self._busy or self.board.read_only:
            return

        def answered(yes: bool | None) -> None:
            if yes:
                undoing = self._transact(self._follower.undo())
                self.run_worker(undoing, group="apply", exit_on_error=False)

        question = undo_question(applying.plan, self.board.label)
        self.push_screen(AskScreen("Undo?", question, "Undo"), answered)

    async def _transact(self, work: Coroutine[None, None, None]) -> None:
        """See a transaction through, whatever becomes of this worker; then read its panels anew."""
        await asyncio.shield(asyncio.ensure_future(work))
        touched = self.board.touched
        if touched:
            await self._halt()
            self._begin(touched)

    async def action_quit(self) -> None:
        """Leave nothing of the audit behind; ask first where a transaction is running."""
        if self._busy:
            from gpudoctor.screens.ask import AskScreen, leaving_question

            self.push_screen(AskScreen("Quit?", leaving_question(), "Quit"), self._left)
            return
        self._leaving = True
        await self._halt()
        self.exit()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Keep Textual's commands for the palette, less its own list of keys: ours is Help."""
        return (c for c in super().get_system_commands(screen) if c.title != "Keys")

    def action_help_quit(self) -> None:
        """Say which key quits: what ctrl+c does here."""
        self.notify("q quits", markup=False)

    def _left(self, yes: bool | None) -> None:
        if yes:
            self._leaving = True
            self.exit()
