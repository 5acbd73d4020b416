"""What an audit yields: events while it runs, and its whole result at the end."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpudoctor.model.fact import Reason
from gpudoctor.model.finding import Finding, Panel, Status
from gpudoctor.model.pending import PendingTold
from gpudoctor.model.place import ContainerRef
from gpudoctor.model.probe import Evidence, Probe


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a host is; empty where it could not be read.

    `system_uuid` is the firmware's (DMI), which only root reads: clones of an image share a machine
    id, and not that.
    """

    hostname: str = ""
    machine_id: str = ""
    boot_id: str = ""
    kernel: str = ""
    system: str = ""
    product: str = ""
    system_uuid: str = ""


@dataclass(frozen=True, slots=True)
class Connected:
    """The host answers; `user` is whom it lets us be."""

    label: str
    user: str


@dataclass(frozen=True, slots=True)
class ContainerJoined:
    """The container's side answers, or `problem` says why it does not."""

    ref: ContainerRef
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """One check has been judged."""

    panel: Panel
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class PanelDone:
    """All checks of a panel have been judged, `seconds` after the start."""

    panel: Panel
    seconds: float


@dataclass(frozen=True, slots=True)
class AuditResult:
    """All that one audit read and judged.

    `asked` keeps each probe as it ran, by key, beside its `evidence`; `problems` are sentences for
    the operator about what should have answered and did not. `pending` tells of worked plans that
    were accepted on this machine.
    """

    label: str
    user: str = ""
    identity: Identity = field(default_factory=Identity)
    container: ContainerRef | None = None
    panels: tuple[Panel, ...] = tuple(Panel)
    findings: tuple[Finding, ...] = ()
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    asked: Mapping[str, Probe] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    simulated: bool = False
    taken: str = ""
    seconds: float = 0.0
    pending: tuple[PendingTold, ...] = ()

    @property
    def blank_panels(self) -> list[Panel]:
        """Return panels that should have answered here and are wholly unknown.

        GPU panels are not expected to answer where the driver's panel found nothing to read.
        """
        driver = [f.verdict.unknown for f in self.findings if f.panel is Panel.DRIVER]
        no_gpu = bool(driver) and all(u and u.reason not in _SHOULD_ANSWER for u in driver)
        return [p for p in self.panels if self._blank(p) and not (no_gpu and p.about_gpus)]

    def _blank(self, panel: Panel) -> bool:
        mine = [f.verdict for f in self.findings if f.panel is panel]
        reasons = {v.unknown.reason for v in mine if v.unknown is not None}
        return all(v.status is Status.UNKNOWN for v in mine) and bool(reasons & _SHOULD_ANSWER)

    @property
    def without_gpus(self) -> str:
        """Return why no GPU was judged, where the driver's whole panel says so; or nothing."""
        driver = [f.verdict.unknown for f in self.findings if f.panel is Panel.DRIVER]
        if not driver or not all(u and u.reason is Reason.NOT_PRESENT for u in driver):
            return ""
        details = [u.detail for u in driver if u]
        return max(details, key=details.count)

    @property
    def incomplete(self) -> bool:
        """Return whether something that should have answered did not."""
        return bool(self.problems or self.blank_panels)

    def of(self, status: Status) -> list[Finding]:
        """Return the findings of a status: issues ranked, others in panel order."""
        chosen = [f for f in self.findings if f.status is status]
        if status is Status.ISSUE:
            return sorted(chosen, key=lambda f: f.order)
        return sorted(chosen, key=lambda f: (f.panel.number, f.id))


# What is not there, not recorded or not measured was not expected to answer; these were.
_SHOULD_ANSWER = {
    Reason.NO_PERMISSION,
    Reason.PARSE_FAILED,
    Reason.TIMEOUT,
    Reason.TOO_BIG,
    Reason.DISCONNECTED,
    Reason.CONTAINER_VIEW,
    Reason.GPU_AT_RISK,
}

Event = Connected | ContainerJoined | Judged | PanelDone | AuditResult
