"""One snapshot: its header, and the findings that it keeps."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from gpudoctor.model.snapshot import SnapshotHead
from gpudoctor.screens.board import Board
from gpudoctor.screens.masthead import Masthead
from gpudoctor.screens.messages import DiffAsked
from gpudoctor.screens.redraw import redraw
from gpudoctor.screens.snapshot_text import kept_content
from gpudoctor.screens.words import host_line


class SnapshotScreen(Screen[None]):
    """A scrolling page for one snapshot."""

    CSS_PATH = "pages.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", id="snapshot.back", tooltip="Back"),
        Binding("d", "diff", "Diff to now", id="snapshot.diff", tooltip="What differs now"),
    ]

    def __init__(self, board: Board, head: SnapshotHead) -> None:
        """Take the board and the snapshot."""
        super().__init__()
        self.board = board
        self._head = head

    def compose(self) -> ComposeResult:
        """Lay out the page."""
        yield Masthead(self.board, "snapshots")
        with VerticalScroll(id="page") as page:
            page.border_title = host_line(f"Snapshot {self._head.id}").markup
            page.border_subtitle = "as it was judged then"
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
        """Show what has been read of it so far."""
        self.query_one(Masthead).draw()
        shelf, head = self.board.shelf, self._head
        found, today = shelf.findings.get(head.path), shelf.today.get(head.path)
        width = self.query_one("#page").scrollable_content_region.width or 78
        redraw(self.query_one("#lines", Static), kept_content(head, found, today, width))

    def action_diff(self) -> None:
        """Ask what differs between it and now."""
        self.post_message(DiffAsked(self._head))
