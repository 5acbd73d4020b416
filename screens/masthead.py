"""The two lines on top of a lasting screen: where we are, who we are there, what was found."""

from math import ceil

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from gpudoctor.model.finding import Impact, Status
from gpudoctor.screens.board import Board
from gpudoctor.screens.redraw import redraw
from gpudoctor.screens.words import IMPACT_STYLES, MUTED, counts, host_line, seconds

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_WIDE = 110
_PLACES = (
    ("audit", "1 Audit"),
    ("plan", "2 Plan"),
    ("snapshots", "3 Snapshots"),
    ("bench", "4 Benchmark"),
)


class Masthead(Vertical):
    """Title, modes, host; below it the totals, and a sentence where something is wrong."""

    def __init__(self, board: Board, place: str) -> None:
        """Take the board and which mode this is."""
        super().__init__()
        self._board = board
        self._place = place

    def compose(self) -> ComposeResult:
        """Lay out two lines, and one that shows only when it has something to say."""
        with Horizontal(classes="line"):
            yield Static(self._tabs(), id="tabs")
            yield Static(id="host")
        with Horizontal(classes="line"):
            yield Static(id="totals")
            yield Static(id="spent")
        yield Static(id="sentence")

    def draw(self) -> None:
        """Show the board."""
        board = self._board
        if not self.query("#spent"):  # not composed yet
            return
        redraw(self.query_one("#host", Static), self._host())
        redraw(self.query_one("#totals", Static), self._totals())
        redraw(self.query_one("#spent", Static), self._spent())
        sentence = self.query_one("#sentence", Static)
        sentence.display = bool(
            board.refusal
            or self._waits()
            or self._measures()
            or board.problems
            or board.without_gpus
        )
        sentence.set_class(bool(board.refusal), "-refusal")
        redraw(sentence, self._sentence())

    def _tabs(self) -> Content:
        parts: list[Content] = [Content.styled(" gpudoctor ", "bold $text-primary")]
        for place, name in _PLACES:
            style = "bold $text on $panel" if place == self._place else MUTED
            parts.append(Content.styled(f" {name} ", style))
        return Content.assemble(*parts)

    def _host(self) -> Content:
        board = self._board
        parts = []
        if board.read_only:
            parts.append(Content.styled("read-only", "bold"))
        name = board.result.identity.hostname if board.result else ""
        label = board.label if name in board.label else f"{board.label} ({name})"
        # First: where it is narrow, the end is cut.
        parts.append(host_line(label or "…", "bold", 48))
        for text in (board.user, board.container):
            if text:
                parts.append(host_line(text, MUTED, 40))
        badge = Content.styled(" SIMULATED ", "bold reverse") if board.simulated else Content("")
        return Content.assemble(badge, "  ", Content.styled(" · ", MUTED).join(parts), " ")

    def _totals(self) -> Content:
        findings = self._board.findings
        issues = [f.verdict.impact for f in findings if f.status is Status.ISSUE]
        worst = [
            Content.styled(f"{issues.count(impact)} {impact}", IMPACT_STYLES[impact])
            for impact in Impact
            if impact in issues
        ]
        if not worst:
            return Content.assemble(" ", counts(findings))
        if self.size.width >= _WIDE:
            lead = Content.styled("     issues by impact: ", MUTED)
            return Content.assemble(" ", counts(findings), lead, Content(", ").join(worst))
        return Content.assemble(
            " ", Content(", ").join(worst[:2]), "  ", counts(findings, words=False)
        )

    def _spent(self) -> Content:
        board = self._board
        if board.running:
            turn = SPINNER[int(board.elapsed * 10) % len(SPINNER)]
            return Content.assemble((turn, "$text-primary"), f" {seconds(board.elapsed)} ")
        return Content.styled(f" {seconds(board.elapsed)} " if board.result else "", MUTED)

    def _waits(self) -> bool:
        applying = self._board.applying
        return bool(applying and applying.waits and self._place != "transaction")

    def _measures(self) -> bool:
        return self._board.bench.going is not None and self._place not in {"bench", "transaction"}

    def _waiting(self) -> Content:
        """Return that a transaction waits for a word, and how long the target still waits."""
        applying = self._board.applying
        left = (applying.left if applying else None) or 0.0
        return Content.assemble(
            (f" ◷ {ceil(left)} s ", "bold $text-warning"),
            "until the target takes back what is not confirmed",
            ("  t shows it", MUTED),
        )

    def _sentence(self) -> Content:
        board = self._board
        if board.refusal:
            return Content.assemble(
                (" ✗ ", "bold $text-error"), host_line(board.refusal), ("  r retries", MUTED)
            )
        if self._waits():
            return self._waiting()
        if self._measures():
            words = "a benchmark runs; nothing else reads or changes the host meanwhile"
            return Content.assemble((" ● ", "$text-primary"), words, ("  4 shows it", MUTED))
        more = f" (+{len(board.problems) - 1} more)" if len(board.problems) > 1 else ""
        first = board.problems[0] if board.problems else f"no GPU was judged: {board.without_gpus}"
        return Content.assemble((" ! ", "bold $text-warning"), host_line(first), (more, MUTED))
