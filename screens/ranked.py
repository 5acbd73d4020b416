"""The ranked list as data: sections, rows, and what a filter keeps."""

from collections.abc import Iterable

from textual.content import Content

from gpudoctor.model.audited import AuditResult
from gpudoctor.model.finding import Finding, Needs, Status
from gpudoctor.model.pending import Outcome
from gpudoctor.screens.words import (
    HEADINGS,
    IMPACT_STYLES,
    MUTED,
    NAMES,
    ORDER,
    STYLES,
    hanging,
    host_line,
    mark,
    subject,
)

_OUTCOMES = {
    Outcome.DONE: ("✓", "$text-success"),
    Outcome.NOT_YET: ("·", "$text-warning"),
    Outcome.DIFFERENTLY: ("!", "$text-warning"),
    Outcome.UNKNOWN: ("?", MUTED),
}


def kept(finding: Finding, words: Iterable[str]) -> bool:
    """Return whether every word of the filter is somewhere in the finding."""
    verdict = finding.verdict
    text = " ".join(
        (
            finding.id,
            finding.title,
            finding.panel.heading,
            finding.panel.value,
            NAMES[finding.status],
            finding.status,
            verdict.summary,
            verdict.observed,
            verdict.impact,
            str(verdict.cls or ""),
            verdict.needs if verdict.needs is not Needs.NOTHING else "",
            *verdict.targets,
        )
    ).lower()
    return all(word in text for word in words)


def ranked(
    findings: Iterable[Finding], query: str, only: Status | None
) -> list[tuple[Status, list[Finding]]]:
    """Return the sections: issues by impact, class and id, then the other statuses."""
    words = query.lower().split()
    chosen = [finding for finding in findings if kept(finding, words)]
    sections = []
    for status in ORDER:
        mine = [f for f in chosen if f.status is status and only in {None, status}]
        if status is Status.ISSUE:
            mine.sort(key=lambda f: f.order)
        if mine:
            sections.append((status, mine))
    return sections


def heading(status: Status, number: int, first: bool) -> Content:
    """Return a section's heading; all but the first stand off from what is above."""
    return Content.assemble(
        "" if first else "\n", (HEADINGS[status], "bold"), (f"  {number}", MUTED)
    )


def pending_rows(result: AuditResult | None, width: int) -> list[Content]:
    """Return what was accepted to be done by hand: a heading, and each outcome in `width` cells."""
    if result is None or not result.pending:
        return []
    from gpudoctor.report import pending_lines

    words = "Accepted, to be done by hand"
    head = Content.assemble((words, "bold"), (f"  {len(result.pending)}", MUTED))
    rows = []
    for told, line in zip(result.pending, pending_lines(result), strict=True):
        glyph, style = _OUTCOMES[told.outcome]
        rows.append(hanging(Content.styled(f"    {glyph} ", style), host_line(line), width))
    return [head, *rows]


def row(finding: Finding, fixable: bool, way: int | None, wide: bool) -> Content:
    """Return one line: the box where there is a plan (with a way's number where one was chosen),
    status, impact, class, summary, panel.
    """
    verdict = finding.verdict
    box = f"[{' ' if way is None else way or 'x'}] " if fixable else "    "
    word, style = NAMES[finding.status], STYLES[finding.status]
    if finding.status is Status.ISSUE:
        word, style = f"{verdict.impact:<8} {verdict.cls}", IMPACT_STYLES[verdict.impact]
    return Content.assemble(
        (box, MUTED if way is None else "bold $text-primary"),
        mark(finding),
        " ",
        (f"{word:<13}", style),
        subject(finding),
        (f"  {finding.panel.heading}" if wide else "", MUTED),
    )
