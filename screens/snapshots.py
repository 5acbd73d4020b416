"""Mode 3: this machine's snapshots by boot, and the one under the cursor below."""

from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from gpudoctor.model.snapshot import SnapshotHead
from gpudoctor.screens.board import Board, board_of
from gpudoctor.screens.diff_text import when
from gpudoctor.screens.masthead import Masthead
from gpudoctor.screens.messages import (
    DiffAsked,
    KeptAsked,
    NoteAsked,
    SnapshotsAsked,
    TakeAsked,
)
from gpudoctor.screens.redraw import redraw
from gpudoctor.screens.snapshot_text import (
    boot_heading,
    by_boot,
    head_content,
    snapshot_row,
    unreadable_row,
)
from gpudoctor.screens.words import MUTED, host, host_line
from gpudoctor.text import one_line

_REST_SECONDS = 0.15


class SnapshotsScreen(Screen[None]):
    """The list on top, the snapshot under the cursor below."""

    CSS_PATH = "snapshots.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "take", "Take one", id="snapshots.take", tooltip="Keep the audit as it is"),
        Binding("space", "mark", "Mark", id="snapshots.mark", tooltip="Mark it for a diff of two"),
        Binding("d", "diff", "Diff", id="snapshots.diff", tooltip="The two marked, or it and now"),
        Binding("n", "note", "Note", id="snapshots.note", tooltip="Write a note to it"),
        Binding(
            "b", "app.before_reboot", "Reboot?", id="snapshots.reboot", tooltip="Before you reboot"
        ),
        Binding("w", "app.story", "Story", id="snapshots.story", tooltip="What the reboot took"),
        # What the app offers everywhere, and what the footer has no room for here at 80 columns.
        Binding("r", "app.reaudit", show=False, id="snapshots.reaudit", tooltip="Read it anew"),
        Binding("t", "app.transaction", show=False, id="snapshots.last", tooltip="The last change"),
        Binding("h", "app.history", show=False, id="snapshots.history", tooltip="The changes kept"),
        Binding("escape", "leave_note", show=False, id="snapshots.leave", tooltip="Leave the note"),
    ]

    def __init__(self) -> None:
        """Begin with nothing listed."""
        super().__init__()
        self._listed: tuple[object, ...] | None = None
        self._rows: list[SnapshotHead | None] = []
        self._noted: SnapshotHead | None = None
        self._storied = False

    @property
    def board(self) -> Board:
        """Return the app's board."""
        return board_of(self.app)

    def compose(self) -> ComposeResult:
        """Lay out the list over the note's line and the detail."""
        yield Masthead(self.board, "snapshots")
        with Container(id="halves"):
            with Vertical(id="listing"):
                yield OptionList(id="shelf", markup=False)
                yield Input(placeholder="a note, then enter", id="note", compact=True)
            with VerticalScroll(id="kept"):
                yield Static(id="words")
        yield Footer()

    def on_mount(self) -> None:
        """Hide the note's line and focus the list."""
        self.query_one("#note").display = False
        self.query_one("#shelf").focus()
        self.call_after_refresh(self.draw)

    def on_screen_resume(self) -> None:
        """Read the list anew whenever the operator comes to it."""
        self.post_message(SnapshotsAsked())

    def draw(self) -> None:
        """Show the board; the cursor stays on its snapshot."""
        self.query_one(Masthead).draw()
        shelf, result = self.board.shelf, self.board.result
        listing = self.query_one("#shelf", OptionList)
        listing.border_title = "This machine's snapshots, newest first"
        boot = result.identity.boot_id if result else ""
        key = (shelf.heads, shelf.unreadable, shelf.marked, boot)
        if key != self._listed:
            self._listed = key
            self._fill(listing, boot)
        self._show()
        if self._storied != (self.board.telling.story is not None):
            self._storied = not self._storied
            self.refresh_bindings()

    def _fill(self, listing: OptionList, boot: str) -> None:
        shelf, now = self.board.shelf, self._current()
        options: list[Option] = []
        self._rows = []
        for words, heads in by_boot(shelf.heads or (), boot):
            options.append(Option(boot_heading(words, len(heads), not options), disabled=True))
            self._rows.append(None)
            for head in heads:
                options.append(Option(snapshot_row(head, head.path in shelf.marked)))
                self._rows.append(head)
        for one in shelf.unreadable:
            options.append(Option(unreadable_row(one), disabled=True))
            self._rows.append(None)
        listing.set_options(options)
        places = [i for i, head in enumerate(self._rows) if head is not None]
        same = (i for i in places if now is not None and _path(self._rows[i]) == now.path)
        listing.highlighted = next(same, places[0] if places else None)

    def _current(self) -> SnapshotHead | None:
        at = self.query_one("#shelf", OptionList).highlighted
        return self._rows[at] if at is not None and at < len(self._rows) else None

    def _show(self) -> None:
        head, words = self._current(), self.query_one("#words", Static)
        self.query_one("#shelf").border_subtitle = host_line(self._hint(head)).markup
        if head is None or self.board.shelf.problem:
            redraw(words, self._nothing())
        else:
            redraw(words, head_content(head, self.board.shelf.findings.get(head.path)))

    def _hint(self, head: SnapshotHead | None) -> str:
        """Return what is going on, or what a diff would be of."""
        shelf = self.board.shelf
        if shelf.saving or shelf.reading:
            return "keeping a snapshot …" if shelf.saving else "reading …"
        if len(shelf.marked) == 2:
            return "d: the two marked"
        return f"d: {when(head)} and now" if head is not None else ""

    def _nothing(self) -> Content:
        shelf = self.board.shelf
        if shelf.problem:
            return Content.assemble(("✗ ", "bold $text-error"), host(shelf.problem))
        if shelf.heads is None:
            words = "reading …" if self.board.result else "which machine this is, the audit tells"
            return Content.styled(words, MUTED)
        if self.board.simulated:
            words = "None: the simulated host ends with this screen, and leaves no snapshots."
            return Content.styled(words, MUTED)
        if shelf.unreadable:
            return Content.styled("None that can be read: the list above tells why.", MUTED)
        return Content.assemble(
            ("None of this machine yet. One is kept before and after each change; ", MUTED),
            ("s", "bold"),
            (" takes one now.", MUTED),
        )

    @on(OptionList.OptionHighlighted, "#shelf")
    def moved(self) -> None:
        """Show the snapshot under the cursor; read it once the cursor rests."""
        self._show()
        self.set_timer(_REST_SECONDS, partial(self._rest, self._current()))

    def _rest(self, at: SnapshotHead | None) -> None:
        if at is not None and at == self._current():
            self.post_message(KeptAsked(at))

    @on(OptionList.OptionSelected, "#shelf")
    def opened(self) -> None:
        """Open the page of the snapshot under the cursor."""
        head = self._current()
        if head is not None:
            self.post_message(KeptAsked(head, open=True))

    def action_take(self) -> None:
        """Ask the app to keep the audit on the board."""
        self.post_message(TakeAsked())

    def action_mark(self) -> None:
        """Mark the snapshot, or take its mark away; of three, the first marked loses its own."""
        head, shelf = self._current(), self.board.shelf
        if head is None:
            return
        others = tuple(path for path in shelf.marked if path != head.path)
        kept = others if head.path in shelf.marked else (*others, head.path)
        shelf.marked = kept[-2:]
        self.board.touch()

    def action_diff(self) -> None:
        """Ask what differs between the two marked, or between the one here and now."""
        marked = [h for h in self.board.shelf.heads or () if h.path in self.board.shelf.marked]
        head = self._current()
        if len(marked) == 2:
            self.post_message(DiffAsked(marked[1], marked[0]))
        elif head is not None:
            self.post_message(DiffAsked(head))
        else:
            self.notify("there is no snapshot to compare with now", markup=False)

    def action_note(self) -> None:
        """Open the note's line on the snapshot under the cursor."""
        self._noted = self._current()
        if self._noted is None:
            return
        line = self.query_one("#note", Input)
        line.value, line.display = one_line(self._noted.note), True
        line.focus()

    @on(Input.Submitted, "#note")
    def note_done(self, event: Input.Submitted) -> None:
        """Keep the note."""
        if self._noted is not None:
            self.post_message(NoteAsked(self._noted, event.value))
        self.action_leave_note()

    def action_leave_note(self) -> None:
        """Go back to the list; what was not entered is not kept."""
        self._noted = None
        self.query_one("#note").display = False
        self.query_one("#shelf").focus()


def _path(head: SnapshotHead | None) -> str:
    return head.path if head is not None else ""
