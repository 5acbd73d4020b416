"""Reports: one evaluator behind every form, and exit codes for scripts."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.model import (
    Class,
    Finding,
    Impact,
    Panel,
    Reason,
    Status,
    Verdict,
    good,
    issue,
    unknown,
)
from gpudoctor.model.audited import AuditResult
from gpudoctor.report import exit_code, markdown, plain
from gpudoctor.report_json import audit_model


@pytest.fixture(scope="module")
def demo() -> AuditResult:
    return asyncio.run(run_audit(SimulatedTarget(demo_machine(), NO_WAIT)))


def finding(verdict: Verdict, panel: Panel = Panel.KERNEL_KNOBS, id: str = "a-check") -> Finding:
    return Finding(id, panel, "A check", "host", verdict, "why", "source")


def result(*findings: Finding, **more: Any) -> AuditResult:
    return replace(AuditResult("host", findings=findings), **more)


LOW = finding(issue("Low", Class.P0, Impact.LOW))
HIGH = finding(issue("High", Class.FW, Impact.HIGH))
FINE = finding(good("Fine"))
DENIED = finding(unknown(Reason.NO_PERMISSION, "needs root"), Panel.CONTAINER)
ABSENT = finding(unknown(Reason.NOT_PRESENT, "no GPU here"), Panel.DRIVER)


@pytest.mark.parametrize(
    ("audit", "fail_on", "code"),
    [
        (result(FINE), Impact.MEDIUM, 0),
        (result(FINE, LOW), Impact.MEDIUM, 0),
        (result(FINE, LOW), Impact.LOW, 1),
        (result(FINE, HIGH), Impact.HIGH, 1),
        (result(FINE, ABSENT), Impact.MEDIUM, 0),
        (result(FINE, DENIED), Impact.MEDIUM, 3),
        (result(FINE, problems=("lost",)), Impact.MEDIUM, 3),
        (result(HIGH, problems=("lost",)), Impact.MEDIUM, 1),
    ],
)
def test_exit_codes(audit: AuditResult, fail_on: Impact, code: int) -> None:
    assert exit_code(audit, fail_on) == code
    assert audit_model(audit, fail_on).exit_code == code


def test_every_form_holds_every_finding(demo: AuditResult) -> None:
    ids = {f.id for f in demo.findings}
    text, marked, model = plain(demo), markdown(demo), audit_model(demo)
    assert {i for i in ids if i not in text} == set()
    assert {i for i in ids if i.replace("_", "\\_") not in marked} == set()
    assert {f.id for f in model.findings} == ids
    assert sum(sum(p.counts.values()) for p in model.panels) == len(demo.findings)


def test_issues_are_ranked_by_impact_then_class(demo: AuditResult) -> None:
    rows = [f.verdict.impact.rank for f in demo.of(Status.ISSUE)]
    assert rows == sorted(rows) and rows[0] == Impact.MEDIUM.rank


def test_a_simulated_host_is_labelled_everywhere(demo: AuditResult) -> None:
    assert "SIMULATED" in plain(demo) and "SIMULATED" in markdown(demo)
    assert audit_model(demo).host.simulated


def test_a_host_whose_gpus_do_not_show_says_so_first() -> None:
    text = plain(result(FINE, ABSENT))
    assert "NO GPU WAS JUDGED: no GPU here" in text.split("CONFIRMED GOOD")[0]


def test_on_a_terminal_lines_fit_and_elsewhere_nothing_is_cut() -> None:
    wide = finding(good("x" * 200))
    odd = finding(issue("Odd", Class.P0, Impact.LOW, remedy="run " + "y " * 90))
    assert max(map(len, plain(result(wide, odd), 80).splitlines())) <= 80
    whole = plain(result(wide, odd), 80, terminal=False)
    assert "x" * 200 in whole and "run " + "y " * 89 + "y" in whole


def test_text_from_a_host_is_no_markup() -> None:
    hostile = finding(good("[/x] <script> | `a` *b* \n# c", observed="](http://x)"))
    marked = markdown(result(hostile))
    assert "<script>" not in marked and "\n# c" not in marked
    assert "\\[/x\\] &lt;script> \\| \\`a\\`" in marked
