"""A snapshot judged anew by today's checks, and what they say otherwise than those of then."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpudoctor.audit import run_audit
from gpudoctor.hosts.recorded import RecordedTarget
from gpudoctor.model import Finding, Panel, Reason, Status
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.snapshot import KeptFinding, Otherwise
from gpudoctor.recording import RecordedAudit


async def rejudged(kept: RecordedAudit) -> AuditResult:
    """Return the audit that today's checks make of what was read then, on the panels of then."""
    target = RecordedTarget(kept.label, kept.sides, kept.container, kept.simulated)
    judged = {finding.panel for finding in kept.findings}
    panels = [panel for panel in Panel if panel in judged] or list(Panel)
    result = await run_audit(target, panels)
    return replace(
        result,
        user=kept.user,
        identity=kept.identity,
        taken=kept.taken,
        problems=kept.problems,
    )


def as_kept(finding: Finding) -> KeptFinding:
    """Return a finding with what a snapshot keeps of it."""
    verdict = finding.verdict
    return KeptFinding(
        finding.id,
        str(finding.panel),
        finding.scope,
        str(verdict.status),
        verdict.summary,
        verdict.observed,
        verdict.expected,
        str(verdict.impact),
        str(verdict.needs),
        verdict.targets,
        str(verdict.cls or ""),
        str(verdict.unknown.reason) if verdict.unknown else "",
    )


def otherwise(then: Sequence[KeptFinding], today: Sequence[KeptFinding]) -> tuple[Otherwise, ...]:
    """Return the checks whose status, impact, class or targets differ; wording does not count.

    A check of today that nothing was read for then says nothing, and is left out.
    """
    old, new = _by_check(then), _by_check(today)
    told = []
    for check in dict.fromkeys((*old, *new)):
        was, now = old.get(check, []), new.get(check, [])
        unread = not was and all(f.reason == Reason.NOT_IN_RECORDING for f in now)
        if not unread and _weight(was) != _weight(now):
            told.append(
                Otherwise(check, _said(was, "no such check then"), _said(now, "no such check now"))
            )
    return tuple(told)


def _by_check(findings: Iterable[KeptFinding]) -> Mapping[str, list[KeptFinding]]:
    found: dict[str, list[KeptFinding]] = {}
    for finding in findings:
        found.setdefault(finding.id, []).append(finding)
    return found


def _weight(findings: Iterable[KeptFinding]) -> set[tuple[str, str, str, tuple[str, ...]]]:
    return {(f.status, f.impact, f.cls, tuple(sorted(f.targets))) for f in findings}


def _said(findings: Sequence[KeptFinding], none: str) -> str:
    return "; ".join(f"{_rank(f)}: {f.summary}" for f in findings) or none


def _rank(finding: KeptFinding) -> str:
    if finding.status != Status.ISSUE:
        return finding.status
    return " ".join(filter(None, (finding.status, finding.impact, finding.cls)))
