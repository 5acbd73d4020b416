"""Judging: evidence in, due probes and findings out. Synchronous, so it runs off the event loop."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.checks import of_panel
from gpudoctor.model import (
    Check,
    Evidence,
    Facts,
    Finding,
    Later,
    Panel,
    Probe,
    Reader,
    Side,
    Unknown,
)
from gpudoctor.model.audited import Identity
from gpudoctor.model.fact import Reason
from gpudoctor.model.finding import not_read
from gpudoctor.model.place import ContainerRef
from gpudoctor.probes.firmware import FIRMWARE, MEMORY_SLOTS
from gpudoctor.probes.identity import IDENTITY
from gpudoctor.probes.place import SERVING_CONTAINER
from gpudoctor.redact import redact_evidence
from gpudoctor.text import one_line

_ALWAYS: tuple[Reader[Any], ...] = (IDENTITY, SERVING_CONTAINER, FIRMWARE, MEMORY_SLOTS)


@dataclass(slots=True)
class Step:
    """What became possible: probes to ask now, checks judged, panels complete."""

    due: list[Probe] = field(default_factory=list)
    judged: list[tuple[Panel, tuple[Finding, ...]]] = field(default_factory=list)
    complete: list[Panel] = field(default_factory=list)


class Judging:
    """The state of one audit's reading: what was asked, what came back, what is still to judge."""

    def __init__(self, panels: Iterable[Panel], more: Iterable[Reader[Any]] = ()) -> None:
        """Collect the union of the probes that the panels' checks, and more readers, rest on."""
        self.evidence: dict[str, Evidence] = {}
        self.asked: dict[str, Probe] = {}
        self.findings: list[Finding] = []
        self._facts = Facts(self.evidence)
        self._open: dict[Panel, list[Check]] = {p: list(of_panel(p)) for p in panels}
        self._first: dict[str, Probe] = {}
        self._later: dict[str, Later] = {}
        self._sides = {Side.HOST}
        checks = [check for checks in self._open.values() for check in checks]
        readers = [r for check in checks for r in check.reads + check.optional]
        for reader in (*_ALWAYS, *readers, *more):
            for probe in reader.probes():
                place: dict[str, Any] = self._later if isinstance(probe, Later) else self._first
                place[probe.key] = probe

    def begin(self, side: Side) -> Step:
        """Open a side: its independent probes become due."""
        self._sides.add(side)
        return self._step([p for p in self._first.values() if p.side is side])

    def take(self, fresh: Sequence[Evidence]) -> Step:
        """Add answers (secrets are masked here) and return what they make possible."""
        for evidence in fresh:
            self.evidence[evidence.key] = redact_evidence(evidence)
        return self._step([])

    @property
    def waiting(self) -> tuple[Later, ...]:
        """Return the dependent probes that were not made yet."""
        return tuple(self._later.values())

    @property
    def identity(self) -> Identity:
        """Return who the host is, as far as it was read."""
        found = self._facts[IDENTITY] if self._facts.ready(IDENTITY) else Identity()
        return Identity() if isinstance(found, Unknown) else found

    @property
    def container(self) -> ContainerRef | Unknown | None:
        """Return the serving process's container, why there is none, or None while unread."""
        if not self._facts.ready(SERVING_CONTAINER):
            return None
        return self._facts[SERVING_CONTAINER]

    def _step(self, due: list[Probe]) -> Step:
        step = Step(due)
        self._follow(step)
        self.asked |= {probe.key: probe for probe in step.due}
        for panel, checks in self._open.items():
            ready = [check for check in checks if check.ready(self._facts)]
            for check in ready:
                findings = tuple(judge(check, panel, self._facts))
                self.findings += findings
                step.judged.append((panel, findings))
                checks.remove(check)
            if ready and not checks:
                step.complete.append(panel)
        return step

    def _follow(self, step: Step) -> None:
        """Make the dependent probes whose facts are in; one that is unknown answers at once."""
        again = True
        while again:
            again = False
            for later in list(self._later.values()):
                waits = not all(self._facts.ready(reader) for reader in later.after)
                if later.side not in self._sides or waits:
                    continue
                del self._later[later.key]
                made = self._made(later)
                if isinstance(made, Unknown):
                    self.evidence[later.key] = Evidence(later.key, later.side, problem=made)
                    again = True
                else:
                    step.due.append(made)

    def _made(self, later: Later) -> Probe | Unknown:
        values = [self._facts[reader] for reader in later.after]
        unknown = next((value for value in values if isinstance(value, Unknown)), None)
        try:
            made = unknown or later.make(*values)
        except Exception as error:  # as in a reader: these values come from the host
            what = f"{later.key}: no probe could be made ({type(error).__name__}: {error})"
            return Unknown(Reason.PARSE_FAILED, one_line(what, 160))
        if not isinstance(made, Unknown) and (made.key, made.side) != (later.key, later.side):
            raise ValueError(f"{later.key}: the probe made for it has another key or side")
        return made


def judge(check: Check, panel: Panel, facts: Facts) -> list[Finding]:
    """Judge one check; a rule that trips over its own facts is unknown, never a traceback."""
    try:
        return check.findings(panel, facts)
    except Exception as error:  # a fault in one rule must not blank the other panels
        what = (
            f"{check.id}: the rule failed on this host's values ({type(error).__name__}: {error})"
        )
        verdict = not_read(Unknown(Reason.PARSE_FAILED, one_line(what, 240)))
        return [
            Finding(check.id, panel, check.title, check.scope, verdict, check.why, check.source)
        ]
