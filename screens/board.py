"""The board: what the audit, the plan and the transaction have told so far. Screens draw it."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from gpudoctor.model import Evidence
from gpudoctor.model.audited import (
    AuditResult,
    Connected,
    ContainerJoined,
    Event,
    Judged,
    PanelDone,
)
from gpudoctor.model.fact import Reason
from gpudoctor.model.finding import Finding, Panel, Status
from gpudoctor.model.pending import PendingTold
from gpudoctor.model.plan import Plan, Transaction
from gpudoctor.screens.applying import Applying
from gpudoctor.screens.benched import Bench
from gpudoctor.screens.choice import Chosen, still_there, way_of
from gpudoctor.screens.kept import Page, Shelf, Telling
from gpudoctor.shell import our_command


@runtime_checkable
class Draws(Protocol):
    """A screen that shows the board."""

    def draw(self) -> None:
        """Show the board as it is now."""
        ...


@dataclass(slots=True)
class PanelState:
    """One panel's findings so far; `seconds` is set once all its checks are judged."""

    findings: list[Finding] = field(default_factory=list)
    seconds: float | None = None


@dataclass(slots=True)
class History:
    """The transactions that the target keeps, newest first, read at `at` (monotonic seconds)."""

    told: tuple[Transaction, ...] | None = None
    problem: str = ""
    reading: bool = False
    at: float = 0.0


@dataclass(slots=True)
class Board:
    """State shared by the screens; `version` grows with every change, so redraws coalesce.

    `command` makes the command line of gpudoctor for the host, of a verb and its words.
    """

    read_only: bool = False
    label: str = ""
    user: str = ""
    container: str = ""
    simulated: bool = False
    recorded: bool = False
    running: bool = False
    started: float = 0.0
    refusal: str = ""
    problems: tuple[str, ...] = ()
    panels: dict[Panel, PanelState] = field(
        default_factory=lambda: {p: PanelState() for p in Panel}
    )
    reading: tuple[Panel, ...] = ()
    result: AuditResult | None = None
    chosen: Chosen = ()
    plan: Plan | None = None
    plan_problem: str = ""
    capturing: bool = False
    applying: Applying | None = None
    plans: dict[str, Plan] = field(default_factory=dict)
    history: History = field(default_factory=History)
    shelf: Shelf = field(default_factory=Shelf)
    telling: Telling = field(default_factory=Telling)
    page: Page = field(default_factory=Page)
    bench: Bench = field(default_factory=Bench)
    version: int = 0
    command: Callable[..., str] = our_command

    def touch(self) -> None:
        """Say that something changed."""
        self.version += 1

    def begin(self, panels: Iterable[Panel]) -> None:
        """Start reading these panels anew; the others keep what they say."""
        self.reading = tuple(panels)
        for panel in self.reading:
            self.panels[panel] = PanelState()
        self.running, self.started = True, time.monotonic()
        self.refusal, self.problems = "", ()
        self.touch()

    def end(self, refusal: str = "") -> None:
        """Stop reading, with the reason where it stopped short."""
        self.running, self.refusal = False, refusal
        self.touch()

    @property
    def elapsed(self) -> float:
        """Return seconds since the audit began, or what it took."""
        if self.running:
            return time.monotonic() - self.started
        return self.result.seconds if self.result else 0.0

    @property
    def findings(self) -> list[Finding]:
        """Return all findings in panel order."""
        return [finding for state in self.panels.values() for finding in state.findings]

    @property
    def without_gpus(self) -> str:
        """Return why no GPU was judged, once the audit has ended; or nothing."""
        return self.result.without_gpus if self.result and not self.running else ""

    @property
    def evidence(self) -> Mapping[str, Evidence]:
        """Return the evidence by probe key; empty until the audit has ended."""
        return self.result.evidence if self.result else {}

    @property
    def touched(self) -> tuple[Panel, ...]:
        """Return the panels whose checks the transaction on the board changed."""
        checks = self.applying.checks if self.applying else ()
        return tuple(dict.fromkeys(f.panel for f in self.findings if f.id in checks))

    @property
    def moving(self) -> bool:
        """Return whether what is shown changes with the clock alone."""
        return self.running or bool(self.applying and self.applying.unsettled)

    @property
    def hold(self) -> str:
        """Return what a plan must wait for, or nothing."""
        if self.running or self.result is None:
            return "the audit has ended"
        if self.applying is not None and self.applying.unsettled:
            return "the transaction has ended: t shows it"
        if self.bench.going is not None:
            return "the benchmark has ended: 4 shows it"
        return ""

    def way(self, finding: Finding) -> int | None:
        """Return which way of a finding is chosen, 0 for the best, None where it is not."""
        return way_of(self.chosen, finding.id)

    def fixable(self, finding: Finding) -> bool:
        """Return whether gpudoctor has a change for the finding."""
        return finding.status is Status.ISSUE and bool(finding.verdict.changes)

    def take(self, event: Event) -> None:
        """Add one event of the audit."""
        match event:
            case Connected():
                self.label, self.user = event.label, event.user
            case ContainerJoined():
                self.container = str(event.ref)
                if event.problem:
                    self.problems += (event.problem,)
            case Judged():
                self.panels[event.panel].findings += event.findings
            case PanelDone():
                self.panels[event.panel].seconds = event.seconds
            case AuditResult():
                self._finish(event)
        self.touch()

    def _finish(self, result: AuditResult) -> None:
        for panel in result.panels:
            mine = [finding for finding in result.findings if finding.panel is panel]
            spent = self.panels[panel].seconds
            self.panels[panel] = PanelState(mine, result.seconds if spent is None else spent)
        self.problems = result.problems + _gaps(result)
        self.simulated = result.simulated
        self.label, self.user = result.label, result.user
        if result.container is not None:
            self.container = str(result.container)
        self.result = merged(self.result, result)
        ways = {f.id: len(f.verdict.changes) for f in self.findings if self.fixable(f)}
        self.chosen = still_there(self.chosen, ways)
        self.running = False


@runtime_checkable
class HasBoard(Protocol):
    """The app, as far as screens know it."""

    board: Board


def board_of(app: object) -> Board:
    """Return the app's board."""
    if not isinstance(app, HasBoard):
        raise TypeError(f"{type(app).__name__} has no board")
    return app.board


def serves(board: Board) -> bool:
    """Return whether the audit saw an engine."""
    from gpudoctor.model import Facts, Unknown
    from gpudoctor.probes.serving import SERVERS

    facts = Facts(board.evidence)
    return facts.ready(SERVERS) and not isinstance(facts[SERVERS], Unknown)


def _gaps(result: AuditResult) -> tuple[str, ...]:
    """Return sentences for what an audit should have read and could not."""
    reasons = [f.verdict.unknown.reason for f in result.findings if f.verdict.unknown]
    denied = reasons.count(Reason.NO_PERMISSION)
    gaps = []
    if denied:
        who = result.user or "this user"
        number = "1 check needs" if denied == 1 else f"{denied} checks need"
        gaps.append(
            f"{number} root, and {who} is not" if who != "root" else f"{number} more rights"
        )
    if result.blank_panels:
        names = ", ".join(panel.heading for panel in result.blank_panels)
        gaps.append(f"nothing could be told about {names}")
    return tuple(gaps)


def merged(old: AuditResult | None, new: AuditResult) -> AuditResult:
    """Return the new result, with what only the old one read of the panels not read again."""
    if old is None or set(new.panels) == set(Panel):
        return new
    kept = [finding for finding in old.findings if finding.panel not in new.panels]
    findings = sorted((*kept, *new.findings), key=lambda finding: finding.panel.number)
    return replace(
        new,
        panels=tuple(panel for panel in Panel if panel in {*old.panels, *new.panels}),
        findings=tuple(findings),
        evidence={**old.evidence, **new.evidence},
        asked={**old.asked, **new.asked},
        container=new.container or old.container,
        pending=_still_told(old, new),
    )


def _still_told(old: AuditResult, new: AuditResult) -> tuple[PendingTold, ...]:
    """Return what is told of plans by hand: the old word where the new audit did not look."""
    looked = {finding.id for finding in new.findings}
    before = {_which(told): told for told in old.pending}
    return tuple(
        told if told.pending.check in looked else before.get(_which(told), told)
        for told in new.pending
    )


def _which(told: PendingTold) -> tuple[str, str, str]:
    return told.pending.check, told.pending.what, told.pending.accepted
