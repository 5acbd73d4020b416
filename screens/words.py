"""How statuses, classes and impacts look in words and glyphs; host text becomes Content here."""

from collections import Counter
from collections.abc import Iterable

from textual.content import Content

from gpudoctor.model.finding import Finding, Impact, Needs, Status
from gpudoctor.text import clean, one_line

GLYPHS = {
    Status.ISSUE: "▲",
    Status.GOOD: "✓",
    Status.NON_ISSUE: "○",
    Status.INFO: "•",
    Status.UNKNOWN: "?",
}
STYLES = {
    Status.ISSUE: "$text-warning",
    Status.GOOD: "$text-success",
    Status.NON_ISSUE: "$foreground-muted",
    Status.INFO: "$foreground-muted",
    Status.UNKNOWN: "$text-secondary",
}
NAMES = {
    Status.ISSUE: "issue",
    Status.GOOD: "good",
    Status.NON_ISSUE: "not an issue",
    Status.INFO: "info",
    Status.UNKNOWN: "unknown",
}
HEADINGS = {
    Status.ISSUE: "Issues",
    Status.GOOD: "Confirmed good",
    Status.NON_ISSUE: "Not issues",
    Status.INFO: "For information",
    Status.UNKNOWN: "Unknown",
}
IMPACT_STYLES = {
    Impact.HIGH: "bold $text-error",
    Impact.MEDIUM: "$text-warning",
    Impact.LOW: "$foreground",
    Impact.UNPROVEN: "$foreground-muted",
    Impact.NONE: "$foreground-muted",
}
MUTED = "$foreground-muted"
ORDER = (Status.ISSUE, Status.GOOD, Status.NON_ISSUE, Status.INFO, Status.UNKNOWN)


def host(text: str, style: str = "") -> Content:
    """Return text of any origin as content: cleaned, never markup; newlines stay."""
    return Content.styled(clean(text), style)


def host_line(text: str, style: str = "", limit: int = 400) -> Content:
    """Return text of any origin as content on one line."""
    return Content.styled(one_line(text, limit), style)


def subject(finding: Finding) -> Content:
    """Return a finding in one line: what it says, or for an unknown what it is about."""
    about = finding.title if finding.status is Status.UNKNOWN else finding.verdict.summary
    return host_line(about or finding.title)


def mark(finding: Finding) -> Content:
    """Return the finding's glyph in its colour; issues take the colour of their impact."""
    style = STYLES[finding.status]
    if finding.status is Status.ISSUE:
        style = IMPACT_STYLES[finding.verdict.impact]
    return Content.styled(GLYPHS[finding.status], style)


def headline(finding: Finding) -> Content:
    """Return status, impact, class and what applying interrupts, in words."""
    verdict = finding.verdict
    parts = [mark(finding), Content(" "), Content.styled(NAMES[finding.status], "bold")]
    if finding.status is Status.ISSUE:
        impact = Content.styled(f"{verdict.impact} impact", IMPACT_STYLES[verdict.impact])
        parts += [Content.styled(" · ", MUTED), impact]
    if verdict.cls is not None:
        parts.append(Content.styled(f" · {verdict.cls} {verdict.cls.meaning}", MUTED))
    if verdict.needs is not Needs.NOTHING:
        parts.append(Content.styled(f" · needs {verdict.needs}", MUTED))
    if verdict.unknown is not None:
        parts.append(Content.styled(f" · {verdict.unknown.reason}", MUTED))
    return Content.assemble(*parts)


def counts(findings: Iterable[Finding], words: bool = True) -> Content:
    """Return how many findings each status has; statuses without any are left out."""
    number = Counter(finding.status for finding in findings)
    parts = []
    for status in ORDER:
        if number[status]:
            name = f" {in_number(status, number[status])}" if words else ""
            parts.append(
                Content.assemble(
                    (GLYPHS[status], STYLES[status]), f" {number[status]}", (name, MUTED)
                )
            )
    return Content("  ").join(parts)


def in_number(status: Status, number: int) -> str:
    """Return the name of so many findings of a status."""
    if status is Status.ISSUE and number != 1:
        return "issues"
    if status is Status.NON_ISSUE:
        return "not issues" if number != 1 else "not an issue"
    return NAMES[status]


def seconds(value: float) -> str:
    """Return a duration in s, with the digits that matter."""
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def number_of(number: int, thing: str) -> str:
    """Return how many of a thing, in words: `1 change`, `3 changes`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def hanging(first: Content, text: Content, width: int) -> Content:
    """Return text behind `first`, wrapped at `width` cells so that all its lines begin there."""
    indent = first.cell_length
    lines = text.wrap(max(20, width - indent)) or [Content("")]
    rest = [Content(" " * indent) + line for line in lines[1:]]
    return Content("\n").join([first + lines[0], *rest])
