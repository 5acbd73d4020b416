"""A transaction: each step live with what was read back, the countdown, and how it ended."""

from math import ceil
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Digits, Footer, Static

from gpudoctor.model.plan import State
from gpudoctor.screens.applying import Applying
from gpudoctor.screens.board import Board, serves
from gpudoctor.screens.journal_text import state_content, steps_content, trouble_content
from gpudoctor.screens.masthead import Masthead
from gpudoctor.screens.messages import BenchAsked, ConfirmAsked, LastAsked, UndoAsked
from gpudoctor.screens.redraw import redraw
from gpudoctor.screens.words import MUTED, host_line


class ApplyScreen(Screen[None]):
    """One transaction, live. Leaving it stops nothing."""

    CSS_PATH = "apply.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", id="apply.back", tooltip="Back; nothing is stopped"),
        Binding(
            "c", "confirm", "Keep it", id="apply.confirm", tooltip="Confirm: what was applied stays"
        ),
        Binding("u", "undo", "Undo", id="apply.undo", tooltip="Put the values of before back"),
        Binding("e", "weigh", "Measure", id="apply.weigh", tooltip="Measure what it did to decode"),
        Binding("x", "end", "End it", id="apply.end", tooltip="End the run that measures it"),
        Binding("m", "last", "Make it last", id="apply.last", tooltip="Let it outlast a reboot"),
        # What the app offers everywhere, and what the footer has no room for here at 80 columns.
        Binding("r", "app.reaudit", show=False, id="apply.reaudit", tooltip="Read the host anew"),
        Binding("t", "app.back", show=False, id="apply.close", tooltip="Back; nothing is stopped"),
        Binding("h", "app.history", show=False, id="apply.history", tooltip="The changes kept"),
        Binding("v", "whole", "All values", id="apply.whole", tooltip="Every value, or a summary"),
    ]

    def __init__(self, board: Board) -> None:
        """Take the board."""
        super().__init__()
        self.board = board
        self._whole = False
        self._offered: tuple[bool | None, ...] = ()

    def compose(self) -> ComposeResult:
        """Lay out the countdown and the state over the steps."""
        yield Masthead(self.board, "transaction")
        with Vertical(id="transaction"):
            with Horizontal(id="countdown"):
                yield Digits(id="left")
                yield Static(id="choice")
            yield Static(id="state")
            yield Static(id="weighed")
            with VerticalScroll(id="journal"):
                yield Static(id="troubles")
                yield Static(id="items")
        yield Footer()

    def on_mount(self) -> None:
        """Focus the journal, so that it scrolls by key."""
        self.query_one("#journal").focus()
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Show how far the transaction is."""
        self.query_one(Masthead).draw()
        applying = self.board.applying
        if applying is None:
            return
        box = self.query_one("#transaction")
        box.border_title = host_line(f"Transaction {applying.id}").markup
        self._draw_countdown(applying)
        redraw(self.query_one("#state", Static), state_content(applying))
        self._draw_weighed(applying)
        troubles = self.query_one("#troubles", Static)
        troubles.display = bool(applying.troubles) or applying.state is State.UNDO_FAILED
        redraw(troubles, trouble_content(applying))
        redraw(self.query_one("#items", Static), steps_content(applying, self._whole))
        actions = ("confirm", "undo", "last", "weigh", "end")
        offered = tuple(self.check_action(action, ()) for action in actions)
        if offered != self._offered:  # a footer made anew at each draw would cost most of it
            self._offered = offered
            self.refresh_bindings()

    def _draw_weighed(self, applying: Applying) -> None:
        box, weighed = self.query_one("#weighed", Static), self.board.bench.weighed.get(applying.id)
        hint = weighed is None and bool(self.check_action("weigh", ()))
        box.display = weighed is not None or hint
        if hint:
            lead = Content.assemble(("e", "bold"), (" measures what it did to decode", MUTED))
            redraw(box, lead)
        elif weighed is not None:
            from gpudoctor.screens.bench_text import weighed_content

            width = (self.size.width or 80) - 4
            back = applying.state is State.UNDONE
            redraw(box, weighed_content(weighed, width, self.board.simulated, back))

    def _draw_countdown(self, applying: Applying) -> None:
        left = applying.left
        countdown = self.query_one("#countdown")
        countdown.display = applying.waits
        if left is None:
            return
        whole = ceil(left)
        self.query_one("#left", Digits).update(f"{whole // 60}:{whole % 60:02}")
        redraw(self.query_one("#choice", Static), _choice(applying, whole))

    def action_undo(self) -> None:
        """Ask the app to undo."""
        self.post_message(UndoAsked())

    def action_confirm(self) -> None:
        """Ask the app to keep it."""
        self.post_message(ConfirmAsked())

    def action_weigh(self) -> None:
        """Ask the app to measure what it did."""
        self.post_message(BenchAsked("weigh"))

    def action_end(self) -> None:
        """Ask the app to end the run under way."""
        self.post_message(BenchAsked("end"))

    def action_last(self) -> None:
        """Ask the app to make it last."""
        self.post_message(LastAsked())

    def action_whole(self) -> None:
        """Show every value, or a summary again."""
        self._whole = not self._whole
        self.draw()

    def _weighable(self, applying: Applying) -> bool:
        """Return whether it stands, an engine serves, and nothing is measured already."""
        weighed = self.board.bench.weighed.get(applying.id)
        stands = applying.state in {State.APPLIED, State.CONFIRMED} and not applying.running
        idle = self.board.bench.going is None and not (weighed is not None and weighed.busy)
        return stands and idle and serves(self.board)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer confirming while it waits, undo once applied, and to make last what was kept."""
        applying = self.board.applying
        if action == "confirm":
            return bool(applying and applying.waits and not self.board.read_only)
        if action == "weigh":
            return bool(applying and self._weighable(applying))
        if action == "end":
            return self.board.bench.going is not None
        if action == "last":
            able = bool(applying and applying.kept and applying.forms is not None)
            return able and not self.board.read_only
        if action == "undo":
            return bool(applying and not self.board.read_only and _undoable(applying))
        return True


def _undoable(applying: Applying) -> bool:
    """Return whether there is something to take back, and nobody is taking it back."""
    if applying.waits:
        return not applying.asked and not applying.confirmed.is_set()
    applied = {State.APPLIED, State.CONFIRMED, State.UNDO_FAILED}
    broken = {State.APPLYING, State.UNDOING} if applying.refused else set()
    return not applying.busy and applying.state in applied | broken


def _choice(applying: Applying, left: int) -> Content:
    """Return what the operator may do while the clock runs."""
    if applying.confirmed.is_set():
        return Content.styled("confirming, over a new login …", "bold")
    if applying.asked:
        return Content.styled("taking it back …", "bold")
    if not left:
        return Content.styled("time is up: the target is taking it back …", "bold $text-warning")
    return Content.assemble(
        ("until the target takes it all back by itself.\n", "bold"),
        ("c", "bold $text-primary"),
        (" keeps it, over a new login\n", MUTED),
        ("u", "bold $text-primary"),
        (" takes it back at once", MUTED),
    )
