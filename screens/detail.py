"""One finding in full: what was seen, what should be, why, what to do, and the evidence."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from gpudoctor.model.change import Change
from gpudoctor.model.finding import Finding
from gpudoctor.screens.board import Board
from gpudoctor.screens.proof import proof
from gpudoctor.screens.words import MUTED, headline, host, host_line

_FIELDS = ("observed", "expected", "targets", "why", "to do", "source", "evidence")
WHOLE = 100_000


class FindingDetail(VerticalScroll):
    """A scrolling page for one finding."""

    def __init__(self, board: Board, fix_key: str) -> None:
        """Take the board, for evidence and fixes, and the key that selects a fix here."""
        super().__init__(id="detail")
        self._fix_key = fix_key
        self._board = board
        self._shown: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """Lay out a title, a headline and one row for each field."""
        yield Static(id="summary")
        yield Static(id="headline")
        for name in _FIELDS:
            slug = name.replace(" ", "-")
            with Horizontal(classes="field", id=f"field-{slug}"):
                yield Static(name, classes="name")
                yield Static(classes="value", id=f"value-{slug}")

    def show(self, finding: Finding | None, lines: int = 8) -> None:
        """Show a finding, or nothing."""
        key = (finding, lines, len(self._board.evidence))
        if key == self._shown or not self.query("#value-evidence"):
            return
        if self._shown and finding != self._shown[0]:
            self.scroll_home(animate=False)
        self._shown = key
        self.border_title = host_line(finding.id).markup if finding else ""
        self.border_subtitle = host_line(finding.scope).markup if finding else ""
        self.query_one("#summary", Static).update(_summary(finding))
        self.query_one("#headline", Static).update(_headline(finding))
        for name, value in self._fields(finding, lines).items():
            slug = name.replace(" ", "-")
            self.query_one(f"#field-{slug}").display = bool(value.plain)
            self.query_one(f"#value-{slug}", Static).update(value)

    def _fields(self, finding: Finding | None, lines: int) -> dict[str, Content]:
        if finding is None:
            return {name: Content("") for name in _FIELDS}
        verdict = finding.verdict
        return {
            "observed": host(verdict.observed),
            "expected": host(verdict.expected),
            "targets": host(", ".join(verdict.targets)),
            "why": host(finding.why),
            "to do": self._remedy(finding),
            "source": host(finding.source, MUTED),
            "evidence": self._evidence(finding, lines),
        }

    def _remedy(self, finding: Finding) -> Content:
        verdict = finding.verdict
        parts = [host(verdict.remedy)] if verdict.remedy else []
        if self._board.fixable(finding):
            parts += _ways(verdict.changes)
            mine = all(change.by_hand for change in verdict.changes[0])
            can = "gpudoctor works it out" if mine else "gpudoctor can set this and undo it"
            parts.append(
                Content.assemble((f"{can}: press ", "$text-success"), (self._fix_key, "bold"))
            )
        return Content("\n").join(parts)

    def _evidence(self, finding: Finding, lines: int) -> Content:
        if self._board.running and not self._board.evidence:
            return Content.styled("shown when the audit has ended", MUTED)
        return proof(self._board.evidence, finding.evidence, lines)


def _ways(ways: Sequence[Sequence[Change]]) -> list[Content]:
    """Return a row a way, numbered where there are several."""
    return [
        Content.assemble(
            (f"way {number} of {len(ways)}: " if len(ways) > 1 else "", MUTED),
            host_line(" and ".join(change.title for change in way)),
        )
        for number, way in enumerate(ways, 1)
    ]


def _summary(finding: Finding | None) -> Content:
    if finding is None:
        return Content.styled("nothing to show", MUTED)
    return host_line(finding.verdict.summary or finding.title, "bold")


def _headline(finding: Finding | None) -> Content:
    if finding is None:
        return Content("")
    return headline(finding)
