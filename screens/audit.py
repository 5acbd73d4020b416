"""Mode 1: ten panels that fill while the audit runs."""

from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid
from textual.screen import Screen
from textual.widgets import Footer

from gpudoctor.model.finding import Panel
from gpudoctor.screens.board import Board, board_of
from gpudoctor.screens.card import PanelCard
from gpudoctor.screens.masthead import Masthead
from gpudoctor.screens.messages import PanelAsked

# Loaded by the app with its own styles: a screen's CSS_PATH would parse all styles a second time
# before the first paint.
FIRST_STYLES = Path(__file__).with_name("audit.tcss")
_COLUMNS = 2


class AuditScreen(Screen[None]):
    """The grid of panels."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", id="audit.open", tooltip="Open the panel's page"),
        *(
            Binding(
                key,
                f"move({step})",
                show=False,
                id=f"audit.{key}",
                tooltip="Move between the panels",
            )
            for key, step in (("left", -1), ("right", 1), ("up", -_COLUMNS), ("down", _COLUMNS))
        ),
    ]

    @property
    def board(self) -> Board:
        """Return the app's board."""
        return board_of(self.app)

    def compose(self) -> ComposeResult:
        """Lay out the masthead and two columns of five cards."""
        yield Masthead(self.board, "audit")
        with Grid(id="grid"):
            for panel in Panel:
                yield PanelCard(self.board, panel)
        yield Footer()

    def on_mount(self) -> None:
        """Focus the first panel."""
        self.query(PanelCard).first().focus()
        self.call_after_refresh(self.draw)

    def on_resize(self) -> None:
        """Draw again: lines depend on the size."""
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Show the board."""
        self.query_one(Masthead).draw()
        for card in self.query(PanelCard):
            card.draw()

    def focus_panel(self, panel: Panel) -> None:
        """Put the focus on a panel's card."""
        self.query_one(f"#card-{panel.value}").focus()

    def action_move(self, step: int) -> None:
        """Move the focus by cards, stopping at the edges."""
        cards = list(self.query(PanelCard))
        now = next((i for i, card in enumerate(cards) if card.has_focus), 0)
        there = now + step
        if 0 <= there < len(cards) and (abs(step) > 1 or now // _COLUMNS == there // _COLUMNS):
            cards[there].focus()

    def action_open(self) -> None:
        """Open the focused panel's page."""
        if isinstance(self.focused, PanelCard):
            self.post_message(PanelAsked(self.focused.panel))

    @on(PanelCard.Opened)
    def open_pressed(self, event: PanelCard.Opened) -> None:
        """Open the panel whose card was pressed."""
        self.post_message(PanelAsked(event.panel))
