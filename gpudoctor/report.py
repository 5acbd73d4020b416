"""The report as plain text and Markdown, and the exit code; all from the same findings."""

import textwrap
from collections.abc import Iterable, Iterator

from gpudoctor import __version__
from gpudoctor.model import Evidence, Finding, Impact, Status, Unknown
from gpudoctor.model.audited import AuditResult
from gpudoctor.text import clean, markdown_text

SECTIONS = (
    (Status.ISSUE, "To fix", "by impact, then by how it is applied"),
    (Status.GOOD, "Confirmed good", ""),
    (Status.NON_ISSUE, "Not issues", "what looks wrong and is not"),
    (Status.INFO, "For context", ""),
    (Status.UNKNOWN, "Unknown", "could not tell, and why"),
)
_FAILING = {Impact.HIGH: 0, Impact.MEDIUM: 1, Impact.LOW: 2}


def exit_code(result: AuditResult, fail_on: Impact = Impact.MEDIUM) -> int:
    """Return 1 with an issue of that impact or above, else 3 when incomplete, else 0."""
    worst = _FAILING[fail_on]
    if any(f.verdict.impact.rank <= worst for f in result.of(Status.ISSUE)):
        return 1
    return 3 if result.incomplete else 0


def verdict_line(result: AuditResult, fail_on: Impact = Impact.MEDIUM) -> str:
    """Return the whole audit in one sentence."""
    issues = result.of(Status.ISSUE)
    serious = sum(f.verdict.impact.rank <= _FAILING[fail_on] for f in issues)
    counts = ", ".join(
        f"{len(result.of(status))} {word.lower()}"
        for status, word, _ in SECTIONS
        if status in _TOLD
    )
    lead = f"{serious} of impact {fail_on} or above" if serious else "nothing pressing"
    if not serious and 2 * len(result.of(Status.UNKNOWN)) > len(result.findings):
        lead += " in what could be read"
    return f"{lead}: {counts}"


_TOLD = {Status.ISSUE, Status.GOOD, Status.NON_ISSUE, Status.UNKNOWN}


def heading(result: AuditResult) -> list[str]:
    """Return the lines that say which host was audited, how, and what did not answer."""
    who = result.identity
    lines = [f"gpudoctor {__version__}: {result.label}"]
    if result.simulated:
        lines.append("SIMULATED: this host is bundled data, not a machine")
    about = [who.hostname, who.product, who.system, who.kernel and f"kernel {who.kernel}"]
    lines.append(" · ".join(part for part in about if part))
    read_as = f"read as {result.user}" if result.user else "read from files"
    where = f"container {result.container}" if result.container else "no container"
    lines.append(f"{read_as} · {where} · {result.taken} · {result.seconds:.1f} s")
    if result.without_gpus:
        lines.append(f"NO GPU WAS JUDGED: {result.without_gpus}")
    lines += [f"INCOMPLETE: {problem}" for problem in result.problems]
    lines += [f"INCOMPLETE: nothing could be read for {p.heading}" for p in result.blank_panels]
    return [line for line in lines if line]


def pending_lines(result: AuditResult) -> list[str]:
    """Return a line for each worked plan that was accepted here: done, or not."""
    return [
        f"{told.pending.check}: {told.pending.what}, accepted {told.pending.accepted}: "
        f"{told.sentence}"
        for told in result.pending
    ]


def plain(
    result: AuditResult,
    width: int = 100,
    fail_on: Impact = Impact.MEDIUM,
    terminal: bool = True,
) -> str:
    """Return the report as text of `width` columns.

    Off a terminal nothing is cut, and a remedy keeps its commands on one line, to be copied.
    """
    lines = [*heading(result), "", verdict_line(result, fail_on)]
    lines += sections(result, width, terminal)
    if result.pending:
        lines += ["", f"PENDING ({len(result.pending)}): accepted, to be done by hand"]
        lines += [row for line in pending_lines(result) for row in _wrapped(line, width, "  ")]
    return "\n".join(lines) + "\n"


def sections(result: AuditResult, width: int, terminal: bool) -> list[str]:
    """Return the findings as lines of text, by status, each under its heading."""
    lines: list[str] = []
    for status, name, hint in SECTIONS:
        found = result.of(status)
        if not found:
            continue
        lines += ["", f"{name.upper()} ({len(found)})" + (f": {hint}" if hint else "")]
        if status is Status.UNKNOWN:
            lines += _grouped(found, width)
        else:
            lines += [line for finding in found for line in _entry(finding, width, terminal)]
    return lines


def _entry(finding: Finding, width: int, terminal: bool) -> Iterator[str]:
    verdict = finding.verdict
    if finding.status in {Status.GOOD, Status.INFO}:
        seen = f" ({verdict.observed})" if verdict.observed else ""
        text = f"{finding.panel.heading:<16} {finding.id:<27} {verdict.summary}{seen}"
        fits = len(text) <= width - 2 or not terminal
        yield "  " + (text if fits else text[: width - 3] + "…")
        return
    tags = " ".join(str(tag) for tag in (verdict.impact, verdict.cls) if tag)
    mark = tags if finding.status is Status.ISSUE else finding.panel.heading
    yield from _wrapped(f"{mark:<16} {verdict.summary}  [{finding.id}]", width, "  ", 17)
    for label, text in details(finding):
        if label == "remedy" and not terminal:
            yield f"{' ' * 19}{label}: {text}"
        else:
            yield from _wrapped(f"{label}: {text}", width, " " * 19)


def _grouped(found: Iterable[Finding], width: int) -> Iterator[str]:
    """Yield unknown findings under what they have in common: the reason and its detail."""
    groups: dict[str, list[str]] = {}
    for finding in found:
        groups.setdefault(str(finding.verdict.unknown), []).append(finding.id)
    for why, ids in groups.items():
        yield from _wrapped(why, width, "  ")
        yield from _wrapped(", ".join(ids), width, " " * 6, 0)


def _wrapped(text: str, width: int, indent: str, hang: int = 2) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=indent,
        subsequent_indent=indent + " " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def details(finding: Finding) -> Iterator[tuple[str, str]]:
    """Yield the labelled lines under a finding's summary that its status calls for."""
    verdict = finding.verdict
    if isinstance(verdict.unknown, Unknown):
        if verdict.unknown.detail != verdict.summary:
            yield str(verdict.unknown.reason), verdict.unknown.detail
        else:
            yield "reason", str(verdict.unknown.reason)
        return
    if verdict.targets and not _named(finding):
        yield "on", ", ".join(verdict.targets)
    if verdict.observed:
        wanted = f" (expected {verdict.expected})" if verdict.expected else ""
        yield "observed", verdict.observed + wanted
    if finding.status in {Status.ISSUE, Status.NON_ISSUE}:
        yield "why", finding.why
    if finding.status is Status.ISSUE:
        yield from remedies(finding)


def _named(finding: Finding) -> bool:
    """Return whether the observed values name the targets already."""
    return all(target in finding.verdict.observed for target in finding.verdict.targets)


def remedies(finding: Finding) -> Iterator[tuple[str, str]]:
    """Yield what can be done: by gpudoctor, by hand, and what that interrupts."""
    verdict = finding.verdict
    for option in verdict.changes:
        what = "; ".join(change.title for change in option)
        if any(change.by_hand for change in option):
            yield "by hand", f"{what} (commands: gpudoctor plan {finding.id})"
        else:
            yield "fix", f"{what} (gpudoctor fix {finding.id})"
    if verdict.remedy:
        yield "remedy", verdict.remedy
    if verdict.needs != "nothing":
        yield "needs", str(verdict.needs)


def markdown(result: AuditResult, fail_on: Impact = Impact.MEDIUM) -> str:
    """Return the report as Markdown; text from the host cannot become markup."""
    lines = ["# gpudoctor report", ""]
    lines += [f"- {markdown_text(line)}" for line in heading(result)]
    lines += ["", f"**{verdict_line(result, fail_on)}**"]
    for status, name, _ in SECTIONS:
        found = result.of(status)
        if found:
            lines += ["", f"## {name} ({len(found)})", "", *_rows(status, found)]
    if result.pending:
        lines += ["", f"## Pending ({len(result.pending)})", ""]
        lines += [f"- {markdown_text(line)}" for line in pending_lines(result)]
    return "\n".join(lines) + "\n"


def _rows(status: Status, found: Iterable[Finding]) -> Iterator[str]:
    if status is Status.ISSUE:
        yield "| impact | class | check | finding | observed | why | what to do |"
        yield "|---|---|---|---|---|---|---|"
    else:
        yield "| panel | check | finding | observed |"
        yield "|---|---|---|---|"
    for f in found:
        v = f.verdict
        what = " ".join(f"{label}: {text}." for label, text in remedies(f))
        tail = [v.summary, v.observed or (str(v.unknown.reason) if v.unknown else "")]
        cells: list[str] = (
            [str(v.impact), str(v.cls), f.id, *tail, f.why, what]
            if status is Status.ISSUE
            else [f.panel.heading, f.id, *tail]
        )
        yield "| " + " | ".join(markdown_text(cell) for cell in cells) + " |"


def excerpt(evidence: Evidence, lines: int = 8) -> str:
    """Return the beginning of what was read, or why nothing was, as safe text."""
    if evidence.problem is not None:
        return str(evidence.problem)
    if evidence.files:
        shown = [f"{path}: {_value(data)}" for path, data in list(evidence.files.items())[:lines]]
        more = len(evidence.files) - len(shown)
        return "\n".join(shown + ([f"… {more} more files"] if more > 0 else []))
    return "\n".join(evidence.text.split("\n")[:lines])


def _value(data: bytes | Unknown) -> str:
    if isinstance(data, Unknown):
        return str(data.reason)
    if b"\x00" in data[:64]:
        return data[:32].hex(" ")
    return clean(data).strip().replace("\n", " | ")[:160]
