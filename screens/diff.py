"""What differs between two snapshots, or between one and now."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from gpudoctor.screens.board import Board
from gpudoctor.screens.diff_text import diff_content
from gpudoctor.screens.kept import Comparison
from gpudoctor.screens.masthead import Masthead
from gpudoctor.screens.redraw import redraw
from gpudoctor.screens.words import MUTED, host, host_line


class DiffScreen(Screen[None]):
    """One scrolling page: settings, inventory, counters, findings."""

    CSS_PATH = "pages.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", id="diff.back", tooltip="Back"),
    ]

    def __init__(self, board: Board, comparison: Comparison, mode: str) -> None:
        """Take the board, the comparison that is being made, and the mode it lies over."""
        super().__init__()
        self.board = board
        self._comparison = comparison
        self._mode = mode

    def compose(self) -> ComposeResult:
        """Lay out the page."""
        yield Masthead(self.board, self._mode)
        with VerticalScroll(id="page"):
            yield Static(id="lines")
        yield Footer()

    def on_mount(self) -> None:
        """Focus the page, so that it scrolls by key."""
        self.query_one("#page").focus()
        self.call_after_refresh(self.draw)

    def on_resize(self) -> None:
        """Draw again: lines depend on the width."""
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Show what has come of it so far."""
        self.query_one(Masthead).draw()
        page = self.query_one("#page")
        page.border_title = host_line(f"Diff of {self._comparison.of}").markup
        width = page.scrollable_content_region.width or 80
        redraw(self.query_one("#lines", Static), _content(self._comparison, width))


def _content(comparison: Comparison, width: int) -> Content:
    if comparison.problem:
        return Content.assemble(("✗ ", "bold $text-error"), host(comparison.problem))
    if comparison.diff is None:
        return Content.styled("comparing …", MUTED)
    return diff_content(comparison.diff, width)
