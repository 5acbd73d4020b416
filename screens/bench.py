"""Mode 4: the engine that would be measured, the run under way, and what the last one told."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from gpudoctor.screens.bench_text import engine_row, now_content, shown_content, shown_title
from gpudoctor.screens.board import Board, board_of
from gpudoctor.screens.masthead import Masthead
from gpudoctor.screens.messages import BenchAsked
from gpudoctor.screens.redraw import redraw

# Rows of the picture of tokens a second, where there is room.
_CHART = 6


class BenchScreen(Screen[None]):
    """Engines and the run under way on one side, figures, bars and the verdict on the other."""

    CSS_PATH = "bench.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "measure", "Measure", id="bench.measure", tooltip="Measure it: a quick run"),
        Binding("f", "full", "Full run", id="bench.full", tooltip="Minutes; tells small changes"),
        Binding("x,escape", "end", "End it", id="bench.end", tooltip="End the run; blocks stay"),
        Binding("t", "app.transaction", "Last change", id="bench.last", tooltip="What was applied"),
        # What the app offers everywhere, and what the footer has no room for here at 80 columns.
        Binding("r", "app.reaudit", show=False, id="bench.reaudit", tooltip="Read the host anew"),
        Binding("h", "app.history", show=False, id="bench.history", tooltip="The changes kept"),
    ]

    def __init__(self) -> None:
        """Begin with no engine listed."""
        super().__init__()
        self._listed: tuple[object, ...] | None = None
        self._offered: tuple[object, ...] = ()

    @property
    def board(self) -> Board:
        """Return the app's board."""
        return board_of(self.app)

    def compose(self) -> ComposeResult:
        """Lay out the engines over the run under way, and what the last run told."""
        yield Masthead(self.board, "bench")
        with Container(id="halves"):
            with Vertical(id="left"):
                yield OptionList(id="engines", markup=False)
                yield Static(id="now")
            with VerticalScroll(id="told"):
                yield Static(id="words")
        yield Footer()

    def on_mount(self) -> None:
        """Focus the engines."""
        self.query_one("#engines").focus()
        self.call_after_refresh(self.draw)

    def on_resize(self) -> None:
        """Draw again: lines depend on the width."""
        self.call_after_refresh(self.draw)

    def on_screen_resume(self) -> None:
        """Look for the engines whenever the operator comes here."""
        self.post_message(BenchAsked("look"))

    def draw(self) -> None:
        """Show the board; the cursor stays on its engine."""
        self.query_one(Masthead).draw()
        bench = self.board.bench
        self._list()
        now, told = self.query_one("#now", Static), self.query_one("#told")
        now.border_title = "Measuring" if bench.going is not None else "Next run"
        height = _CHART if self.has_class("-wide") else 1
        redraw(now, now_content(self.board, now.content_size.width or 60, height))
        told.border_title = shown_title(bench)
        width = told.scrollable_content_region.width or 74
        redraw(self.query_one("#words", Static), shown_content(bench, width))
        offered = tuple(self.check_action(action, ()) for action in ("measure", "end"))
        if (*offered, self.board.applying) != self._offered:
            self._offered = (*offered, self.board.applying)
            self.refresh_bindings()

    def _list(self) -> None:
        bench, listing = self.board.bench, self.query_one("#engines", OptionList)
        width = (listing.scrollable_content_region.width or 76) - 2
        if (key := (bench.engines, bench.looking, width)) == self._listed:
            return
        self._listed = key
        listing.border_title = "Engine" if len(bench.engines or ()) < 2 else "Engines: choose one"
        listing.border_subtitle = "looking …" if bench.looking else ""
        engines = bench.engines or ()
        rows = [Option(engine_row(one, width)) for one in engines]
        words = "looking for an engine …" if bench.looking else "none"
        listing.set_options(rows or [Option(words, disabled=True)])
        at = next((n for n, one in enumerate(engines) if one.place == bench.place), 0)
        listing.highlighted = at if engines else None

    @on(OptionList.OptionHighlighted, "#engines")
    def moved(self, event: OptionList.OptionHighlighted) -> None:
        """Take the engine under the cursor as the operator's choice."""
        engines = self.board.bench.engines or ()
        if event.option_index < len(engines):
            self.board.bench.place = engines[event.option_index].place

    @on(OptionList.OptionSelected, "#engines")
    def action_measure(self) -> None:
        """Ask the app for a quick run."""
        self.post_message(BenchAsked("quick"))

    def action_full(self) -> None:
        """Ask the app for a full run."""
        self.post_message(BenchAsked("full"))

    def action_end(self) -> None:
        """Ask the app to end the run under way."""
        self.post_message(BenchAsked("end"))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to measure while nothing is measured, and to end it while something is."""
        going = self.board.bench.going is not None
        return {"measure": not going, "full": not going, "end": going}.get(action, True)
