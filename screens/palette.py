"""The palette's own commands: panels, findings, and what the app can do now."""

from collections.abc import Callable, Iterator
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from gpudoctor.model.finding import Panel
from gpudoctor.screens.board import Board
from gpudoctor.screens.messages import PanelAsked, PlanAsked
from gpudoctor.text import one_line

_ACTIONS = (
    ("Audit again", "reaudit", "Read the host anew"),
    ("Go to Audit", "mode('audit')", "The ten panels"),
    ("Go to Plan", "mode('plan')", "Findings by rank, and what would be done"),
    ("Go to Snapshots", "mode('snapshots')", "What this machine was, and what differs"),
    ("Go to Benchmark", "mode('bench')", "How fast the engine there decodes"),
    ("Measure now", "measure", "A quick benchmark of the engine"),
    ("Take a snapshot", "take_snapshot", "Keep the audit as it is"),
    ("Before you reboot", "before_reboot", "What a reboot will bring and take"),
    ("The story", "story", "What became of earlier changes"),
    ("History of changes", "history", "The transactions that the target keeps"),
    ("Filter the findings", "filter", "Keep the rows with some words"),
    ("Help", "help", "Keys and words"),
)


class DoctorCommands(Provider):
    """Commands over the app's board."""

    async def discover(self) -> Hits:
        """Show what can be done before anything is typed."""
        for name, action, what in _ACTIONS:
            yield DiscoveryHit(name, partial(self.app.run_action, action), help=what)
        for panel in Panel:
            yield DiscoveryHit(_panel_name(panel), partial(self._open, panel))

    async def search(self, query: str) -> Hits:
        """Match actions, panels and findings by id or title."""
        matcher = self.matcher(query)
        for name, command, what in self._commands():
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, Content(name), command, text=name, help=what)

    def _commands(self) -> Iterator[tuple[str, Callable[[], object], str]]:
        for name, action, what in _ACTIONS:
            yield name, partial(self.app.run_action, action), what
        for panel in Panel:
            yield _panel_name(panel), partial(self._open, panel), ""
        board = getattr(self.app, "board", None)
        if isinstance(board, Board):
            for finding in board.findings:
                name = one_line(f"{finding.id}: {finding.title}", 100)
                yield name, partial(self._go, finding.id), str(finding.panel.heading)

    def _open(self, panel: Panel) -> None:
        self.app.post_message(PanelAsked(panel))

    def _go(self, finding: str) -> None:
        self.app.post_message(PlanAsked(finding))


def _panel_name(panel: Panel) -> str:
    return f"Panel {panel.number}: {panel.heading}"
