"""Mode 2: findings by rank, a selection, and the preview of what it would do."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from gpudoctor.model.finding import Finding, Status
from gpudoctor.screens.board import Board, board_of
from gpudoctor.screens.choice import Chosen, toggled, turned
from gpudoctor.screens.detail import FindingDetail
from gpudoctor.screens.masthead import Masthead
from gpudoctor.screens.messages import ApplyAsked, ChoiceChanged, PanelAsked
from gpudoctor.screens.preview import in_one_line, preview, way_shown
from gpudoctor.screens.ranked import heading, pending_rows, ranked, row
from gpudoctor.screens.redraw import redraw
from gpudoctor.screens.script import ScriptScreen
from gpudoctor.screens.words import NAMES, ORDER

_Key = tuple[object, ...]


class PlanScreen(Screen[None]):
    """The ranked list with its selection."""

    CSS_PATH = "plan.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "space", "choose", "Select", id="plan.choose", tooltip="Select or drop the finding"
        ),
        Binding("o", "other", "Way", id="plan.other", tooltip="Take another way to the same end"),
        Binding(
            "a", "apply", "Apply", id="plan.apply", tooltip="Apply the selection, after asking"
        ),
        Binding("v", "script", "Script", id="plan.script", tooltip="The script that would run"),
        Binding(
            "slash", "filter", "Filter", id="plan.filter", tooltip="Keep rows with these words"
        ),
        # The footer has no room for these at 80 columns; help lists them.
        Binding("s", "status", show=False, id="plan.status", tooltip="Show one status, or all"),
        Binding("r", "app.reaudit", show=False, id="plan.reaudit", tooltip="Read the host anew"),
        Binding("t", "app.transaction", show=False, id="plan.last", tooltip="What was applied"),
        Binding(
            "escape", "clear", "Clear", show=False, id="plan.clear", tooltip="Clear the filter"
        ),
    ]

    def __init__(self) -> None:
        """Begin with all findings and no filter."""
        super().__init__()
        self._only: Status | None = None
        self._listed: _Key | None = None
        self._rows: list[Finding | None] = []
        self._go_to = ""

    @property
    def board(self) -> Board:
        """Return the app's board."""
        return board_of(self.app)

    def compose(self) -> ComposeResult:
        """Lay out the list on the left and the preview on the right."""
        yield Masthead(self.board, "plan")
        with Container(id="halves"):
            with Vertical(id="ranking"):
                yield Input(placeholder="words to keep", id="filter", compact=True)
                yield OptionList(id="ranked", markup=False)
            with Vertical(id="right"):
                yield FindingDetail(self.board, "space")
                with VerticalScroll(id="preview"):
                    yield Static(id="steps")
        yield Footer()

    def on_mount(self) -> None:
        """Hide the filter and focus the list."""
        self.query_one("#filter").display = False
        self.query_one("#ranked").focus()
        self.call_after_refresh(self.draw)

    def on_resize(self) -> None:
        """Draw again: lines depend on the width."""
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Show the board; the cursor stays on its finding."""
        self.query_one(Masthead).draw()
        query = self.query_one("#filter", Input).value
        wide = self.has_class("-wide")
        pending = self.board.result.pending if self.board.result else ()
        findings = tuple(self.board.findings)
        key = (
            findings,
            query,
            self._only,
            self.board.chosen,
            wide,
            pending,
            pending and self._width(),
        )
        if key != self._listed:
            self._listed = key
            self._fill(query)
        self._show()
        box = self.query_one("#preview")
        width = box.scrollable_content_region.width or 80
        redraw(self.query_one("#steps", Static), preview(self.board, width))
        plan = self.board.plan
        box.border_title = (plan and in_one_line(plan)) or "Plan"
        self.query_one("#right").set_class(bool(self.board.chosen), "-chosen")

    def _fill(self, query: str) -> None:
        listing = self.query_one("#ranked", OptionList)
        now = self._current()
        wanted = self._go_to or (now.id if now else "")
        options = [Option(line, disabled=True) for line in self._pending(query)]
        self._rows = [None] * len(options)
        for status, findings in ranked(self.board.findings, query, self._only):
            options.append(Option(heading(status, len(findings), not options), disabled=True))
            self._rows.append(None)
            for finding in findings:
                options.append(Option(self._row(finding)))
                self._rows.append(finding)
        listing.set_options(options)
        at = next((i for i, f in enumerate(self._rows) if f is not None and f.id == wanted), None)
        if at is not None:
            self._go_to = ""
        first = next((i for i, finding in enumerate(self._rows) if finding is not None), None)
        listing.highlighted = at if at is not None else first
        self._caption(listing)

    def _pending(self, query: str) -> list[Content]:
        """Return the rows about what is done by hand, where the list is whole."""
        width = self._width()
        return [] if query or self._only else pending_rows(self.board.result, width)

    def _width(self) -> int:
        """Return how many cells a row has."""
        return (self.query_one("#ranked").scrollable_content_region.width or 80) - 2

    def _row(self, finding: Finding) -> Content:
        fixable = self.board.fixable(finding)
        wide = self.has_class("-wide")
        return row(finding, fixable, self.board.way(finding), wide)

    def _caption(self, listing: OptionList) -> None:
        shown = "all findings" if self._only is None else NAMES[self._only]
        listing.border_title = f"By impact, then class · {shown}"
        number = len(self.board.chosen)
        listing.border_subtitle = f"{number} selected" if number else ""

    def _current(self) -> Finding | None:
        at = self.query_one("#ranked", OptionList).highlighted
        return self._rows[at] if at is not None and at < len(self._rows) else None

    def _show(self) -> None:
        self.query_one(FindingDetail).show(self._current(), lines=4)

    @on(OptionList.OptionHighlighted, "#ranked")
    def moved(self) -> None:
        """Show the finding under the cursor."""
        self._show()

    def go_to(self, finding: str) -> None:
        """Put the cursor on a finding, showing all rows."""
        self._go_to, self._only, self._listed = finding, None, None
        self.query_one("#filter", Input).value = ""
        self.draw()

    @on(Input.Changed, "#filter")
    def filtered(self) -> None:
        """Keep only the rows with these words."""
        self.draw()

    @on(Input.Submitted, "#filter")
    def filter_done(self) -> None:
        """Back to the list, the filter standing."""
        self.query_one("#ranked").focus()

    @on(OptionList.OptionSelected, "#ranked")
    def open_panel(self) -> None:
        """Open the panel's page at this finding."""
        finding = self._current()
        if finding is not None:
            self.post_message(PanelAsked(finding.panel, finding.id))

    def action_choose(self) -> None:
        """Select the finding, or drop it."""
        finding = self._current()
        if finding is None or not self.board.fixable(finding):
            self.notify(
                "gpudoctor does not change this one itself: `to do` says how, by hand", markup=False
            )
            return
        self._choose(toggled(self.board.chosen, finding.id))

    def action_other(self) -> None:
        """Take the next way of the finding, or the best again after the last."""
        finding = self._current()
        if finding is None or not self.board.fixable(finding):
            return
        ways = len(finding.verdict.changes)
        if ways < 2:
            self.notify("there is only this one way", markup=False)
            return
        now = way_shown(self.board, finding) if self.board.way(finding) is not None else 1
        self._choose(turned(self.board.chosen, finding.id, now, ways))

    def _choose(self, chosen: Chosen) -> None:
        self.board.chosen = chosen
        self.post_message(ChoiceChanged())

    def action_apply(self) -> None:
        """Ask the app to apply the plan as previewed."""
        plan = self.board.plan
        if self.board.read_only:
            self.notify("read-only: nothing is written", severity="warning", markup=False)
        elif plan is None and self.board.chosen:
            self.notify("the plan is not there yet", markup=False)
        elif plan is None or not (plan.steps or plan.by_hand):
            self.notify("nothing is planned: space selects a finding", markup=False)
        else:
            self.post_message(ApplyAsked(plan))

    def action_script(self) -> None:
        """Show the script that would run, byte for byte."""
        plan = self.board.plan
        if plan is not None and plan.script:
            self.app.push_screen(ScriptScreen(plan.script))
        else:
            self.notify("there is no script: nothing selected would run", markup=False)

    def action_filter(self) -> None:
        """Open the filter."""
        box = self.query_one("#filter")
        box.display = True
        box.focus()

    def action_clear(self) -> None:
        """Drop the filter, and go back to the list."""
        box = self.query_one("#filter", Input)
        box.value, box.display = "", False
        self.query_one("#ranked").focus()

    def action_status(self) -> None:
        """Show one status after the other, then all again."""
        turn = [None, *ORDER]
        self._only = turn[(turn.index(self._only) + 1) % len(turn)]
        self.draw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide what writes where nothing may be written."""
        return not (action == "apply" and self.board.read_only)
