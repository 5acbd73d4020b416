"""The store's snapshots as text: the list, and one with what it holds."""

import textwrap
from collections.abc import Collection, Iterable, Sequence

from gpudoctor.model import Status
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.snapshot import KeptFinding, Otherwise, SnapshotHead, Unreadable
from gpudoctor.report import SECTIONS, sections, verdict_line
from gpudoctor.snapshots.catalog import why_none
from gpudoctor.snapshots.clones import machines
from gpudoctor.snapshots.head import when
from gpudoctor.text import one_line

_SHORTEST_ID = 8
_HEADINGS = ("id", "taken (UTC)", "kind", "host", "boot", "of transaction")


def short_ids(heads: Iterable[SnapshotHead]) -> dict[str, str]:
    """Return for each id as many of its digits, eight at least, as tell it from all others."""
    known = sorted({head.id for head in heads})
    short = {}
    for at, one in enumerate(known):
        beside = known[max(at - 1, 0) : at] + known[at + 1 : at + 2]
        digits = next(
            n for n in range(_SHORTEST_ID, len(one) + 1) if not _begins(one[:n], beside, len(one))
        )
        short[one] = one[:digits]
    return short


def _begins(digits: str, others: Collection[str], whole: int) -> bool:
    return len(digits) < whole and any(other.startswith(digits) for other in others)


def listing(
    heads: Sequence[SnapshotHead], unreadable: Sequence[Unreadable], width: int = 100
) -> str:
    """Return the list, newest first, each note under its snapshot; what was skipped comes last."""
    lines = rows(heads)
    if heads:
        hosts = len({*machines(heads).values()})
        size = sum(head.size for head in heads)
        lines += ["", f"{count(heads)} of {_plural(hosts, 'host')}, {in_words(size)}"]
    for one in unreadable:
        lines += _wrapped(f"skipped: {one_line(one.why)} ({one_line(one.path)})", width)
    return "".join(f"{line}\n" for line in lines)


def rows(heads: Sequence[SnapshotHead]) -> list[str]:
    """Return the list's lines, under a heading where there is one at all."""
    short = short_ids(heads)
    table = [_HEADINGS, *(_cells(head, short[head.id]) for head in heads)]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEADINGS))]
    lines, of = [], machines(heads)
    for row, head in zip(table, (None, *heads), strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
        if head is not None:
            clone = of[head.path][1] != ""
            lines += [f"{' ' * widths[0]}  {said}" for said in _besides(head, clone)]
    return lines if heads else []


def _cells(head: SnapshotHead, short: str) -> tuple[str, ...]:
    return (
        short,
        _time(head),
        str(head.kind),
        _host(head),
        head.identity.boot_id[:8],
        head.transaction,
    )


def _host(head: SnapshotHead) -> str:
    """Return how the host was reached, and its own name where that is another."""
    name = head.identity.hostname
    known = not name or name in head.label
    return one_line(head.label if known else f"{head.label} ({name})", 40)


def _time(head: SnapshotHead) -> str:
    taken = when(head)
    return f"{taken:%Y-%m-%d %H:%M:%S}" if taken else head.taken or "not told"


def _besides(head: SnapshotHead, clone: bool) -> Iterable[str]:
    """Yield what is told under a row; a clone shares its machine id with another machine."""
    if head.note:
        yield f"note: {head.note}"
    if clone:
        uuid = head.identity.system_uuid or "not read"
        machine = head.identity.machine_id[:8]
        yield f"clone: system UUID {uuid}; other machines have this machine id ({machine}…), too"
    if head.altered:
        yield "ALTERED: it was changed after it was written"


def none_kept(
    known: Sequence[SnapshotHead], unreadable: Sequence[Unreadable], host: str | None, take: str
) -> str:
    """Return why none is listed, of the host where one is named; `take` is the command to type.

    `known` are the snapshots of all hosts.
    """
    why = why_none(known, unreadable, host)
    return why if known or unreadable else f"{why}: `{take}` keeps one"


def count(heads: Sequence[SnapshotHead]) -> str:
    """Return how many snapshots these are, in words."""
    return _plural(len(heads), "snapshot")


def _plural(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def in_words(size: int) -> str:
    """Return a size in bytes for people."""
    return f"{size / (1 << 20):.1f} MiB" if size >= 1 << 20 else f"{size / 1024:.0f} KiB"


def kept_text(kept: Iterable[tuple[SnapshotHead, str]]) -> str:
    """Return what stays although it is old enough to go, a line each reason."""
    reasons: dict[str, list[SnapshotHead]] = {}
    for head, why in kept:
        reasons.setdefault(why, []).append(head)
    return "".join(
        f"stays: {', '.join(head.id[:_SHORTEST_ID] for head in heads)}: {why}\n"
        for why, heads in reasons.items()
    )


def head_lines(head: SnapshotHead, problems: Sequence[str] = ()) -> list[str]:
    """Return what is known of a snapshot before what it holds; `problems` are those of then."""
    who = head.identity
    about = [who.hostname, who.product, who.system, who.kernel and f"kernel {who.kernel}"]
    lines = [
        f"snapshot {head.id} ({head.kind}), {head.taken}, by gpudoctor {head.tool}",
        f"note: {head.note}" if head.note else "",
        f"{head.label}, read as {head.user or 'nobody: from files'}"
        f" · {f'container {head.container}' if head.container else 'no container'}",
        " · ".join(part for part in about if part),
        f"boot {who.boot_id or 'not known'} · machine {who.machine_id or 'not known'}",
        f"system UUID {who.system_uuid}" if who.system_uuid else "",
        f"{head.kind} transaction {head.transaction}" if head.transaction else "",
        one_line(f"{head.path} ({in_words(head.size)})", 400),
        "SIMULATED: this host is bundled data, not a machine" if head.simulated else "",
        "ALTERED: it was changed after it was written" if head.altered else "",
        *(f"INCOMPLETE then: {one_line(problem)}" for problem in problems),
    ]
    return [line for line in lines if line]


def rejudged_text(
    head: SnapshotHead,
    result: AuditResult,
    told: Sequence[Otherwise],
    same_rules: bool,
    width: int = 100,
    terminal: bool = True,
) -> str:
    """Return a snapshot with what today's checks find in it, and what they say otherwise."""
    if same_rules:
        rules, lead = "the rules are those of then", "FROM WHAT WAS KEPT, these come out otherwise"
    else:
        rules, lead = "the rules are not those of then", "TODAY'S RULES SAY OTHERWISE"
        rules += "" if told else ", and say the same"
    lines = [*head_lines(head, result.problems), "", f"JUDGED TODAY: {rules}"]
    if told:
        lines.append(f"{lead} ({len(told)}):")
    for one in told:
        lines += _wrapped(one_line(one.check), width)
        lines += _wrapped(f"then:  {one_line(one.then, 400)}", width, 4)
        lines += _wrapped(f"today: {one_line(one.today, 400)}", width, 4)
    lines += ["", verdict_line(result), *sections(result, width, terminal)]
    return "\n".join(lines) + "\n"


def as_found_text(
    head: SnapshotHead, findings: Sequence[KeptFinding], problems: Sequence[str], width: int = 100
) -> str:
    """Return a snapshot with the findings that it keeps, as they were found then."""
    lines = [*head_lines(head, problems), "", f"AS FOUND THEN: {_plural(len(findings), 'finding')}"]
    for status, name, _ in SECTIONS:
        mine = [finding for finding in findings if finding.status == status]
        if mine:
            lines += ["", f"{name.upper()} ({len(mine)})"]
        for finding in mine:
            lines += _wrapped(_kept_line(finding), width, 2)
    return "\n".join(lines) + "\n"


def _kept_line(finding: KeptFinding) -> str:
    marks = [finding.impact, finding.cls] if finding.status == Status.ISSUE else [finding.reason]
    seen = f" (observed {finding.observed}" if finding.observed else ""
    wanted = f", expected {finding.expected}" if finding.expected and seen else ""
    mark = " ".join(mark for mark in marks if mark)
    said = f"{finding.summary}{seen}{wanted}{')' if seen else ''}  [{finding.id}]"
    return one_line(f"{mark}: {said}" if mark else said, 400)


def _wrapped(text: str, width: int, indent: int = 2) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
