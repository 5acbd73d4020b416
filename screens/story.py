"""The story: what became of earlier changes, which to apply again, and what else has changed."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from gpudoctor.model.story import Told
from gpudoctor.report_story import ordered
from gpudoctor.screens.board import Board
from gpudoctor.screens.kept import lastable, pickable, which
from gpudoctor.screens.masthead import Masthead
from gpudoctor.screens.messages import StoryAsked
from gpudoctor.screens.redraw import redraw
from gpudoctor.screens.story_text import (
    good_now,
    opening,
    others_content,
    told_content,
    told_rows,
)


class StoryScreen(Screen[None]):
    """What happened on top, the changes below it, and the one under the cursor in full."""

    CSS_PATH = "story.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", id="story.back", tooltip="Back; it is not forgotten"),
        Binding("space", "pick", "Select", id="story.pick", tooltip="Select it, or drop it"),
        Binding("a", "again", "Apply again", id="story.again", tooltip="Apply the selected again"),
        Binding(
            "m",
            "last",
            "Make last",
            id="story.last",
            tooltip="Apply the selected again, and make them last",
        ),
        Binding("s", "take", "Snapshot", id="story.take", tooltip="Take one now: this story ends"),
        Binding("d", "diff", "Diff", id="story.diff", tooltip="All that differs from then to now"),
        # What the app offers everywhere, and what the footer has no room for here at 80 columns.
        Binding("r", "app.reaudit", show=False, id="story.reaudit", tooltip="Read the host anew"),
        Binding("t", "app.transaction", show=False, id="story.last-one", tooltip="The last change"),
        Binding("h", "app.history", show=False, id="story.history", tooltip="The changes kept"),
        Binding("w", "app.back", show=False, id="story.close", tooltip="Back"),
    ]

    def __init__(self, board: Board, mode: str) -> None:
        """Take the board, and the mode it lies over."""
        super().__init__()
        self.board = board
        self._mode = mode
        self._listed: tuple[object, ...] | None = None
        self._rows: list[Told] = []

    def compose(self) -> ComposeResult:
        """Lay out what happened over the changes, the detail and what else changed."""
        yield Masthead(self.board, self._mode)
        yield Static(id="happened")
        with Container(id="halves"):
            yield OptionList(id="told", markup=False)
            with VerticalScroll(id="detail"):
                yield Static(id="words")
                yield Static(id="others")
        yield Footer()

    def on_mount(self) -> None:
        """Focus the changes."""
        self.query_one("#told").focus()
        self.call_after_refresh(self.draw)

    def on_resize(self) -> None:
        """Draw again: lines depend on the width."""
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Show the board; the cursor stays on its change."""
        self.query_one(Masthead).draw()
        story = self.board.telling.story
        if story is None:
            return
        happened = self.query_one("#happened", Static)
        redraw(happened, opening(story, self.board, (self.size.width or 80) - 4))
        telling, wide = self.board.telling, self.has_class("-wide")
        findings = self.board.findings
        rows = told_rows(story, telling, findings, wide)
        key = tuple(row.markup for row in rows)
        if key != self._listed:
            self._listed = key
            self._fill(ordered(story), rows)
        self._show()

    def _fill(self, told: list[Told], rows: list[Content]) -> None:
        listing = self.query_one("#told", OptionList)
        at = self._current()
        self._rows = told
        listing.set_options([Option(row) for row in rows])
        listing.highlighted = _place_of(at, told) if told else None
        listing.border_title = "Changes that were applied"
        number = sum(self.board.telling.picked(one) for one in told)
        listing.border_subtitle = f"{number} selected" if number else ""

    def _current(self) -> Told | None:
        at = self.query_one("#told", OptionList).highlighted
        return self._rows[at] if at is not None and at < len(self._rows) else None

    def _show(self) -> None:
        story, told = self.board.telling.story, self._current()
        width = self.query_one("#detail").scrollable_content_region.width or 78
        if self.has_class("-wide"):  # side by side
            width = width // 2 - 1
        if told is not None:
            good = good_now(told, self.board.findings)
            redraw(self.query_one("#words", Static), told_content(told, good, width))
        if story is not None:
            running = self.board.running
            since = self.board.telling.since
            others = self.query_one("#others", Static)
            redraw(others, others_content(since, story, running, width))

    @on(OptionList.OptionHighlighted, "#told")
    def moved(self) -> None:
        """Show the change under the cursor."""
        self._show()

    @on(OptionList.OptionSelected, "#told")
    def entered(self) -> None:
        """Move on to the detail, to scroll it."""
        self.query_one("#detail").focus()

    def action_pick(self) -> None:
        """Select the change, or drop it."""
        told, telling = self._current(), self.board.telling
        if told is None or not (pickable(told) or lastable(told)):
            self.notify("it was kept: there is nothing to apply again", markup=False)
        elif pickable(told) and good_now(told, self.board.findings) and not telling.picked(told):
            self.notify("its check is good now: there is nothing to apply again", markup=False)
        else:
            telling.picks[which(told)] = not telling.picked(told)
            self.board.touch()

    def action_again(self) -> None:
        """Ask the app to apply the selected again."""
        self.post_message(StoryAsked("apply"))

    def action_last(self) -> None:
        """Ask the app to apply the selected again, and to make them last."""
        self.post_message(StoryAsked("last"))

    def action_take(self) -> None:
        """Ask the app for a snapshot: the story is told, and does not open again."""
        self.post_message(StoryAsked("snapshot"))

    def action_diff(self) -> None:
        """Ask what differs between then and now."""
        self.post_message(StoryAsked("diff"))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide what writes where nothing may be written, and a diff with nothing of then."""
        if action in {"again", "last"}:
            return not self.board.read_only
        story = self.board.telling.story
        return action != "diff" or (story is not None and story.since is not None)


def _place_of(at: Told | None, told: Sequence[Told]) -> int:
    """Return where a change is now, also when another transaction put it back; else the first."""
    if at is None:
        return 0
    same = [i for i, one in enumerate(told) if which(one) == which(at)]
    alike = [i for i, one in enumerate(told) if (one.check, one.title) == (at.check, at.title)]
    return next(iter([*same, *alike]), 0)
