"""The transactions that the target keeps: what each changed, who made it, and where it stands."""

import time
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from gpudoctor.model.plan import State, Transaction
from gpudoctor.screens.board import Board, History
from gpudoctor.screens.masthead import Masthead
from gpudoctor.screens.messages import ConfirmAsked, HistoryAsked, UndoAsked
from gpudoctor.screens.redraw import redraw
from gpudoctor.screens.told import told_content, told_row, waits
from gpudoctor.screens.words import MUTED, host


class HistoryScreen(Screen[None]):
    """The list on top, the transaction under the cursor below."""

    CSS_PATH = "history.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", id="history.back", tooltip="Back"),
        Binding("u,enter", "undo", "Undo", id="history.undo", tooltip="Take this one back"),
        Binding("c", "confirm", "Keep it", id="history.confirm", tooltip="Confirm: it stays"),
        Binding("t", "app.transaction", show=False, id="history.last", tooltip="What was applied"),
        Binding("r", "reload", "Read again", id="history.reload", tooltip="Read the list anew"),
    ]

    def __init__(self, board: Board) -> None:
        """Take the board."""
        super().__init__()
        self.board = board
        self._listed: History | None = None
        self._rows: tuple[Transaction, ...] = ()
        self._offered: tuple[bool | None, ...] = ()

    def compose(self) -> ComposeResult:
        """Lay out the list over the detail."""
        yield Masthead(self.board, "history")
        with Container(id="halves"):
            yield OptionList(id="transactions", markup=False)
            with VerticalScroll(id="told"):
                yield Static(id="words")
                yield Static(id="looked")
        yield Footer()

    def on_mount(self) -> None:
        """Focus the list."""
        self.query_one("#transactions").focus()
        self.call_after_refresh(self.draw)

    def on_screen_resume(self) -> None:
        """Read the list anew whenever the operator comes to it."""
        self.post_message(HistoryAsked())

    def draw(self) -> None:
        """Show the board; the cursor stays on its transaction."""
        self.query_one(Masthead).draw()
        history = self.board.history
        listing = self.query_one("#transactions", OptionList)
        listing.border_title = "Transactions that the target keeps, newest first"
        listing.border_subtitle = "reading …" if history.reading else ""
        if history is not self._listed or any(waits(told) for told in self._rows):
            self._listed = history
            self._fill(listing)
        self._show()

    def _fill(self, listing: OptionList) -> None:
        now = self._current()
        self._rows = self.board.history.told or ()
        age = time.monotonic() - self.board.history.at
        listing.set_options([Option(told_row(told, age)) for told in self._rows])
        at = next((i for i, told in enumerate(self._rows) if now and told.id == now.id), 0)
        listing.highlighted = at if self._rows else None

    def _current(self) -> Transaction | None:
        at = self.query_one("#transactions", OptionList).highlighted
        return self._rows[at] if at is not None and at < len(self._rows) else None

    def _show(self) -> None:
        words = self.query_one("#words", Static)
        told = self._current()
        offered = tuple(self.check_action(action, ()) for action in ("confirm", "undo"))
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()
        redraw(self.query_one("#looked", Static), self._looked())
        if told is not None:
            redraw(words, told_content(told, time.monotonic() - self.board.history.at))
        else:
            redraw(words, self._nothing())

    def _looked(self) -> Content:
        """Return why no story could be told at the start, where that is so."""
        problem = self.board.telling.problem
        if not problem:
            return Content("")
        return Content.assemble(("\n? no story could be told at the start: ", MUTED), host(problem))

    def _nothing(self) -> Content:
        history = self.board.history
        if history.problem:
            return Content.assemble(("✗ ", "bold $text-error"), host(history.problem))
        if history.told is None:
            return Content.styled("reading …", MUTED)
        return Content.styled("gpudoctor has changed nothing that this target knows of.", MUTED)

    @on(OptionList.OptionHighlighted)
    def moved(self) -> None:
        """Show the transaction under the cursor."""
        self._show()

    @on(OptionList.OptionSelected)
    def action_undo(self) -> None:
        """Ask the app to take the one under the cursor back."""
        told = self._current()
        if told is not None and told.stands:
            self.post_message(UndoAsked(told))
        elif told is not None:
            self.notify("nothing of it is left to undo", markup=False)

    def action_confirm(self) -> None:
        """Ask the app to keep the one under the cursor."""
        told = self._current()
        if told is not None:
            self.post_message(ConfirmAsked(told))

    def action_reload(self) -> None:
        """Read the list anew."""
        self.post_message(HistoryAsked())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what can be done with the one under the cursor."""
        if action not in {"undo", "confirm"}:
            return True
        told = self._current() if self.is_mounted and self.query("#transactions") else None
        if told is None or self.board.read_only:
            return False
        return told.stands if action == "undo" else waits(told) and told.state is State.APPLIED
