"""Every case file in tests/checks, and that every check has one that fires and one silent."""

import asyncio
from functools import cache
from typing import Any

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.checks import by_id
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.model import Finding, Side, Status
from gpudoctor.model.audited import AuditResult
from gpudoctor.recording import Answers
from tests.cases import Case, cases, facts_of

CASES = cases()
# Always unknown: nothing outside the engine, or nothing short of a benchmark, can tell.
HONEST_GAPS = {"mem-fragmentation", "nccl-p2p-bandwidth"}


@cache
def _demo() -> AuditResult:
    return asyncio.run(run_audit(SimulatedTarget(demo_machine(), NO_WAIT)))


def base_of(case: Case) -> dict[Side, Answers]:
    if case.data.get("base") != "demo":
        return {}
    sides = {side: Answers() for side in Side}
    for key, probe in _demo().asked.items():
        sides[probe.side].keep(probe, _demo().evidence[key])
    return sides


def judged(case: Case) -> list[Finding]:
    facts = facts_of(case, base_of(case))
    findings = []
    for name in case.data["checks"]:
        panel, check = by_id()[name]
        for reader in check.reads + check.optional:
            facts._answers.learn(list(reader.probes()))  # type: ignore[attr-defined]
        findings += check.findings(panel, facts)
    return findings


def test_every_change_is_declared() -> None:
    """What `explain` tells of a check's fixes is what its issues offer, in every case and demo."""
    found: dict[str, set[type]] = {}
    for finding in [*_demo().findings, *(f for case in CASES for f in judged(case))]:
        for option in finding.verdict.changes:
            found.setdefault(finding.id, set()).update(type(change) for change in option)
    assert found == {name: set(c.changes) for name, (_, c) in by_id().items() if c.changes}


def as_expected(finding: Finding) -> dict[str, Any]:
    verdict = finding.verdict
    return {
        "id": finding.id,
        "status": str(finding.status),
        "class": str(verdict.cls),
        "impact": str(verdict.impact),
        "needs": str(verdict.needs),
        "reason": str(verdict.unknown.reason) if verdict.unknown else None,
        "targets": list(verdict.targets),
        "changes": [c.title for option in verdict.changes[:1] for c in option],
        "text": " ".join((verdict.summary, verdict.observed, finding.why, verdict.remedy)),
    }


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_case(case: Case) -> None:
    rows = [as_expected(finding) for finding in judged(case)]
    wanted = [dict(expect) for expect in case.data["expect"]]
    assert [(r["id"], r["status"]) for r in rows] == [(w["id"], w["status"]) for w in wanted], rows
    for row, want in zip(rows, wanted, strict=True):
        says = want.pop("says", "")
        assert says in row["text"], row
        assert {key: row[key] for key in want} == want, row


def _statuses() -> dict[str, set[str]]:
    seen: dict[str, set[str]] = {}
    for case in CASES:
        for expect in case.data["expect"]:
            seen.setdefault(expect["id"], set()).add(expect["status"])
    return seen


@pytest.mark.parametrize("name", sorted(by_id()))
def test_every_check_fires_and_stays_silent(name: str) -> None:
    seen = _statuses().get(name, set())
    if name in HONEST_GAPS:
        assert seen == {str(Status.UNKNOWN)}
        return
    assert len(seen - {str(Status.UNKNOWN)}) >= 1, "no case with a read value"
    assert len(seen) >= 2, f"only {seen}"
