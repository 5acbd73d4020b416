"""The report as JSON: published models, one version, the same findings as every other form."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpudoctor import __version__
from gpudoctor.model import Change, Class, Evidence, Finding, Impact, Needs, Panel, Reason, Status
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.pending import Outcome
from gpudoctor.report import excerpt, exit_code

SCHEMA_VERSION: Literal[1] = 1
_EXCERPT = 400


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HostModel(_Model):
    """Who was audited, and through whose eyes; empty strings where that could not be read."""

    label: str
    user: str = Field(description="root, or the uid that the host let us be")
    hostname: str
    machine_id: str
    system_uuid: str = Field(description="the firmware's, read by root: it tells clones apart")
    boot_id: str
    kernel: str
    system: str
    product: str
    container: str | None = Field(description="the container that was entered, like lxc:101")
    simulated: bool = Field(description="true for the bundled demo host: not a machine")


class PanelModel(_Model):
    """One of the ten panels, with how many findings it has of each status."""

    id: Panel
    number: int
    title: str
    counts: dict[Status, int]


class EvidenceModel(_Model):
    """What was read: the probe, the command or paths as run, and the beginning of the answer."""

    probe: str
    command: str
    excerpt: str


class FixModel(_Model):
    """One way to change what was found; several are alternatives, best first."""

    changes: list[str]
    command: str = Field(description="the gpudoctor command that plans it, and applies it")
    by_hand: bool = Field(description="true: gpudoctor tells the commands and never runs them")


class FindingModel(_Model):
    """What one check says, for one distinct status."""

    id: str
    panel: Panel
    title: str
    status: Status
    cls: Class | None = Field(alias="class")
    impact: Impact
    needs: Needs
    scope: str
    target: list[str]
    summary: str
    observed: str
    expected: str
    why: str
    reason: Reason | None = Field(description="why it is unknown, where it is")
    remedy: str = Field(description="what to do where gpudoctor does not do it itself")
    source: str
    evidence: list[EvidenceModel]
    fixes: list[FixModel]


class PendingModel(_Model):
    """A worked plan that was accepted on this machine, and what this audit finds of it."""

    check: str
    change: str
    accepted: str = Field(description="UTC, ISO 8601")
    outcome: Outcome
    sentence: str


class AuditModel(_Model):
    """A whole audit."""

    schema_version: Literal[1] = SCHEMA_VERSION
    gpudoctor: str
    taken: str = Field(description="UTC, ISO 8601")
    seconds: float
    exit_code: int
    incomplete: bool
    problems: list[str]
    host: HostModel
    panels: list[PanelModel]
    findings: list[FindingModel]
    pending: list[PendingModel]
    timings: dict[str, float] = Field(description="seconds on the target, by probe")


def audit_model(result: AuditResult, fail_on: Impact = Impact.MEDIUM) -> AuditModel:
    """Return the result as its published model."""
    who = result.identity
    return AuditModel(
        gpudoctor=__version__,
        taken=result.taken,
        seconds=round(result.seconds, 3),
        exit_code=exit_code(result, fail_on),
        incomplete=result.incomplete,
        problems=[*result.problems, *(f"{p.heading}: wholly unknown" for p in result.blank_panels)],
        host=HostModel(
            label=result.label,
            user=result.user,
            hostname=who.hostname,
            machine_id=who.machine_id,
            system_uuid=who.system_uuid,
            boot_id=who.boot_id,
            kernel=who.kernel,
            system=who.system,
            product=who.product,
            container=str(result.container) if result.container else None,
            simulated=result.simulated,
        ),
        panels=[_panel(panel, result) for panel in result.panels],
        findings=[_finding(f, result) for status in Status for f in result.of(status)],
        pending=[
            PendingModel(
                check=told.pending.check,
                change=told.pending.what,
                accepted=told.pending.accepted,
                outcome=told.outcome,
                sentence=told.sentence,
            )
            for told in result.pending
        ],
        timings={e.key: round(e.seconds, 3) for e in result.evidence.values()},
    )


def audit_json(result: AuditResult, fail_on: Impact = Impact.MEDIUM) -> str:
    """Return the result as JSON text."""
    return audit_model(result, fail_on).model_dump_json(by_alias=True, indent=2) + "\n"


def audit_schema() -> dict[str, Any]:
    """Return the JSON schema of `gpudoctor audit --json`."""
    return AuditModel.model_json_schema(by_alias=True, mode="serialization")


def _panel(panel: Panel, result: AuditResult) -> PanelModel:
    mine = [f.status for f in result.findings if f.panel is panel]
    counts = {status: mine.count(status) for status in Status}
    return PanelModel(id=panel, number=panel.number, title=panel.heading, counts=counts)


def _finding(finding: Finding, result: AuditResult) -> FindingModel:
    verdict = finding.verdict
    asked = [result.evidence[key] for key in finding.evidence if key in result.evidence]
    fields: dict[str, Any] = {"class": verdict.cls}
    return FindingModel(
        **fields,
        id=finding.id,
        panel=finding.panel,
        title=finding.title,
        status=finding.status,
        impact=verdict.impact,
        needs=verdict.needs,
        scope=finding.scope,
        target=list(verdict.targets),
        summary=verdict.summary,
        observed=verdict.observed,
        expected=verdict.expected,
        why=finding.why,
        reason=verdict.unknown.reason if verdict.unknown else None,
        remedy=verdict.remedy,
        source=finding.source,
        evidence=[_evidence(e) for e in asked],
        fixes=[
            _fix(finding.id, number, option) for number, option in enumerate(verdict.changes, 1)
        ],
    )


def _fix(check: str, number: int, option: tuple[Change, ...]) -> FixModel:
    by_hand = any(change.by_hand for change in option)
    name = check if number == 1 else f"{check}:{number}"
    return FixModel(
        changes=[change.title for change in option],
        command=f"gpudoctor {'plan' if by_hand else 'fix'} {name}",
        by_hand=by_hand,
    )


def _evidence(evidence: Evidence) -> EvidenceModel:
    return EvidenceModel(
        probe=evidence.key, command=evidence.command, excerpt=excerpt(evidence)[:_EXCERPT]
    )
