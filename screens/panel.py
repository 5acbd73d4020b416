"""A panel's page: every finding on the left, the one under the cursor in full on the right."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, OptionList
from textual.widgets.option_list import Option

from gpudoctor.model.finding import Finding, Panel
from gpudoctor.screens.board import Board
from gpudoctor.screens.detail import WHOLE, FindingDetail
from gpudoctor.screens.masthead import Masthead
from gpudoctor.screens.messages import PlanAsked
from gpudoctor.screens.words import IMPACT_STYLES, MUTED, NAMES, ORDER, STYLES, mark, subject

_EXCERPT = 8


class PanelScreen(Screen[None]):
    """All that one panel says."""

    CSS_PATH = "panel.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", id="panel.back", tooltip="Back to all panels"),
        Binding("left", "turn(-1)", "Previous", id="panel.previous", tooltip="The panel before"),
        Binding("right", "turn(1)", "Next", id="panel.next", tooltip="The panel after"),
        Binding("f", "fix", "Fix", id="panel.fix", tooltip="Select this finding in the plan"),
        Binding(
            "e", "evidence", "Evidence", id="panel.evidence", tooltip="All evidence, or an excerpt"
        ),
    ]

    def __init__(self, board: Board, panel: Panel, finding: str = "", mode: str = "audit") -> None:
        """Take the board, the panel, the finding to begin at, and the mode it lies over."""
        super().__init__()
        self._mode = mode
        self.board = board
        self.panel = panel
        self._begin_at = finding
        self._listed: tuple[Finding, ...] = ()
        self._lines = _EXCERPT

    def compose(self) -> ComposeResult:
        """Lay out the list and the detail."""
        yield Masthead(self.board, self._mode)
        with Container(id="halves"):
            yield OptionList(id="findings", markup=False)
            yield FindingDetail(self.board, "f")
        yield Footer()

    def on_mount(self) -> None:
        """Focus the list."""
        self.query_one("#findings").focus()
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Show the board; the cursor stays on its finding."""
        self.query_one(Masthead).draw()
        listing = self.query_one("#findings", OptionList)
        listing.border_title = Content.assemble(
            (f"{self.panel.number} ", MUTED), (self.panel.heading, "bold")
        ).markup
        findings = tuple(_ordered(self.board.panels[self.panel].findings))
        if findings != self._listed:
            self._list(listing, findings)
        self._show()

    def _list(self, listing: OptionList, findings: tuple[Finding, ...]) -> None:
        now = self._current()
        wanted = self._begin_at or (now.id if now else "")
        self._listed = findings
        listing.set_options([Option(_row(finding), str(i)) for i, finding in enumerate(findings)])
        at = next((i for i, f in enumerate(findings) if f.id == wanted), 0)
        if findings:
            listing.highlighted = at
            self._begin_at = "" if findings[at].id == self._begin_at else self._begin_at

    def _current(self) -> Finding | None:
        at = self.query_one("#findings", OptionList).highlighted
        return self._listed[at] if at is not None and at < len(self._listed) else None

    def _show(self) -> None:
        self.query_one(FindingDetail).show(self._current(), self._lines)

    @on(OptionList.OptionHighlighted)
    def moved(self) -> None:
        """Show the finding under the cursor."""
        self._show()

    @on(OptionList.OptionSelected)
    def entered(self) -> None:
        """Move on to the detail, to scroll it."""
        self.query_one(FindingDetail).focus()

    def action_turn(self, step: int) -> None:
        """Go to the panel before or after."""
        panels = list(Panel)
        self.panel = panels[(panels.index(self.panel) + step) % len(panels)]
        self.draw()

    def action_evidence(self) -> None:
        """Show all of the evidence, or an excerpt again."""
        self._lines = WHOLE if self._lines == _EXCERPT else _EXCERPT
        self._show()

    def action_fix(self) -> None:
        """Go to the plan with this finding selected, where there is a change for it."""
        finding = self._current()
        if finding is not None:
            self.post_message(PlanAsked(finding.id, choose=self.board.fixable(finding)))


def _ordered(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda f: (ORDER.index(f.status), *f.order))


def _row(finding: Finding) -> Content:
    verdict = finding.verdict
    word = str(verdict.impact) if finding.verdict.cls else NAMES[finding.status]
    style = IMPACT_STYLES[verdict.impact] if finding.verdict.cls else STYLES[finding.status]
    return Content.assemble(mark(finding), " ", (f"{word:<13}", style), subject(finding))
