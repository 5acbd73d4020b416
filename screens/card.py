"""A panel's card in the grid: counts, the worst of it, and a few values."""

import time

from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from gpudoctor.model.finding import Finding, Impact, Panel, Status
from gpudoctor.screens.board import Board, PanelState
from gpudoctor.screens.key_values import key_values
from gpudoctor.screens.masthead import SPINNER
from gpudoctor.screens.words import (
    IMPACT_STYLES,
    MUTED,
    counts,
    host_line,
    mark,
    seconds,
)
from gpudoctor.text import one_line

_WIDE = 60


class PanelCard(Static, can_focus=True):
    """One panel at a glance; fills while its checks are judged."""

    class Opened(Message):
        """The operator pressed a card."""

        def __init__(self, panel: Panel) -> None:
            """Take the panel."""
            super().__init__()
            self.panel = panel

    def __init__(self, board: Board, panel: Panel) -> None:
        """Take the board and which panel this is."""
        super().__init__(id=f"card-{panel.value}")
        self.panel = panel
        self._board = board
        self.border_title = Content.assemble(
            (f"{panel.number} ", MUTED), (panel.heading, "bold")
        ).markup

    def on_click(self) -> None:
        """Open the panel's page."""
        self.post_message(self.Opened(self.panel))

    def draw(self) -> None:
        """Show the panel's state in as many lines as there are."""
        state = self._board.panels[self.panel]
        waiting = (
            self._board.running and state.seconds is None and (self.panel in self._board.reading)
        )
        self.set_class(any(f.status is Status.ISSUE for f in state.findings), "-issues")
        self.border_subtitle = self._clock(state, waiting)
        height, width = self.content_size.height or 2, self.content_size.width or 38
        self.update(Content("\n").join(self._lines(state, waiting, width)[:height]))

    def _clock(self, state: PanelState, waiting: bool) -> str:
        if waiting:
            turn = SPINNER[int(time.monotonic() * 10) % len(SPINNER)]
            return f"{turn} {seconds(self._board.elapsed)}"
        return seconds(state.seconds) if state.seconds is not None else ""

    def _lines(self, state: PanelState, waiting: bool, width: int) -> list[Content]:
        if not state.findings:
            said = "reading" if waiting else "not read" if self._board.refusal else ""
            return [Content.styled(said, MUTED)]
        issues = sorted(
            (f for f in state.findings if f.status is Status.ISSUE), key=lambda f: f.order
        )
        lines = [counts(state.findings, words=width > _WIDE)]
        lines += [_issue(finding, width > _WIDE) for finding in issues]
        lines += _values(state.findings, width)
        return lines + _unknowns(state.findings)


def _issue(finding: Finding, wide: bool) -> Content:
    verdict = finding.verdict
    pressing = verdict.impact in {Impact.HIGH, Impact.MEDIUM}
    impact = f"{verdict.impact:<8} " if wide else f"{verdict.impact} " if pressing else ""
    return Content.assemble(
        mark(finding),
        " ",
        (impact, IMPACT_STYLES[verdict.impact]),
        (f"{verdict.cls} " if wide else "", MUTED),
        host_line(verdict.summary),
    )


def _values(findings: list[Finding], width: int) -> list[Content]:
    """Return rows of `name value`, two a row in columns where both fit."""
    pieces = [
        Content.assemble((name, MUTED), " ", host_line(value))
        for name, value in key_values(findings)
    ]
    half = width // 2
    rows: list[Content] = []
    while pieces:
        left = pieces.pop(0)
        if pieces and left.cell_length < half and pieces[0].cell_length <= width - half:
            left = left.pad_right(half - left.cell_length) + pieces.pop(0)
        rows.append(left)
    return rows


def _unknowns(findings: list[Finding]) -> list[Content]:
    """Return a line a reason, naming the checks, or how many they are."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.status is Status.UNKNOWN:
            groups.setdefault(finding.verdict.summary, []).append(finding)
    return [
        Content.assemble(
            mark(group[0]),
            " ",
            host_line(why),
            (
                f"  {one_line(group[0].title)}" if len(group) == 1 else f"  {len(group)} checks",
                MUTED,
            ),
        )
        for why, group in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
