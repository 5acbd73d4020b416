"""Snapshots in words: a row, the boots they belong to, the header, and the findings kept."""

from collections import Counter
from collections.abc import Iterable, Sequence

from textual.content import Content

from gpudoctor.model.finding import Panel, Status
from gpudoctor.model.snapshot import KeptFinding, Kind, Otherwise, SnapshotHead, Unreadable
from gpudoctor.screens.diff_text import when
from gpudoctor.screens.words import (
    GLYPHS,
    HEADINGS,
    MUTED,
    NAMES,
    ORDER,
    STYLES,
    hanging,
    host,
    host_line,
    in_number,
)
from gpudoctor.text import one_line

KINDS = {
    Kind.RECORDING: "recording",
    Kind.BEFORE: "before a change",
    Kind.AFTER: "after a change",
    Kind.MANUAL: "taken by hand",
    Kind.BOOT: "taken at boot",
}
Found = tuple[KeptFinding, ...] | str | None
Today = tuple[Otherwise, ...] | str | None


def by_boot(heads: Iterable[SnapshotHead], boot_id: str) -> list[tuple[str, list[SnapshotHead]]]:
    """Return headings with their snapshots, in the order given; `boot_id` is the boot now."""
    groups: dict[str, list[SnapshotHead]] = {}
    for head in heads:
        groups.setdefault(head.identity.boot_id, []).append(head)
    return [(_boot(boot, boot_id), mine) for boot, mine in groups.items()]


def _boot(boot: str, now: str) -> str:
    if not boot:
        return "A boot that was not read"
    return "This boot" if boot == now else f"An earlier boot ({boot[:8]})"


def boot_heading(words: str, number: int, first: bool) -> Content:
    """Return a boot's heading; all but the first stand off from what is above."""
    return Content.assemble("" if first else "\n", host_line(words, "bold"), (f"  {number}", MUTED))


def snapshot_row(head: SnapshotHead, marked: bool) -> Content:
    """Return one line: the mark, when, why it was kept, the note, the transaction."""
    note = host_line(head.note, "bold", 200) if head.note else host_line(head.transaction, MUTED)
    altered = [("! altered ", "$text-warning")] if head.altered else []
    return Content.assemble(
        (f"[{'x' if marked else ' '}] ", "bold $text-primary" if marked else MUTED),
        host_line(when(head), limit=24),
        "  ",
        (f"{KINDS[head.kind]:<15}", MUTED),
        "  ",
        *altered,
        note,
    )


def unreadable_row(one: Unreadable) -> Content:
    """Return one line about a file that is no snapshot we can read."""
    name = one_line(one.path.rpartition("/")[2])
    why = one.why if one.why.startswith(name) else f"{name}: {one.why}"
    return Content.assemble(("    ✗ ", "bold $text-error"), host_line(why))


def head_content(head: SnapshotHead, found: Found) -> Content:
    """Return a snapshot's header, and how many findings of each status it keeps."""
    who = head.identity
    lines = [
        Content.assemble(host_line(head.id, "bold", 40), (f"  {KINDS[head.kind]}", MUTED)),
        _field("taken", f"{when(head)} as {head.user or 'somebody'} on {head.label}"),
        _field(
            "system", " · ".join(part for part in (who.system, who.kernel, who.product) if part)
        ),
        _field("container", head.container),
        _field("of change", head.transaction),
        _field("note", head.note, "bold"),
    ]
    if head.altered:
        words = "the file was changed after it was written"
        lines.append(Content.assemble(("! ", "$text-warning"), (words, "$text-warning")))
    if head.simulated:
        lines.append(Content.styled("of the simulated host", "bold"))
    lines.append(_found(found))
    return Content("\n").join([line for line in lines if line.plain])


def _field(name: str, value: str, style: str = "") -> Content:
    if not value:
        return Content("")
    return Content.assemble((f"{name:<11}", MUTED), host_line(value, style))


def _found(found: Found) -> Content:
    if found is None:
        return Content.styled("reading its findings …", MUTED)
    if isinstance(found, str):
        return Content.assemble(("✗ ", "bold $text-error"), host(found))
    number = Counter(one.status for one in found)
    parts = [
        Content.assemble(
            (GLYPHS[status], STYLES[status]),
            f" {number[status]} ",
            (in_number(status, number[status]), MUTED),
        )
        for status in ORDER
        if number[status]
    ]
    return Content.assemble((f"{'findings':<11}", MUTED), Content("  ").join(parts))


def kept_content(head: SnapshotHead, found: Found, today: Today, width: int) -> Content:
    """Return the header, what today's rules say otherwise, and every finding as judged then."""
    parts = [head_content(head, found), *_today(today, width)]
    if isinstance(found, tuple):
        for status in ORDER:
            mine = [one for one in found if one.status == status]
            if mine:
                parts += [Content(""), _status_heading(status, len(mine)), *map(_kept, mine)]
        parts += _rest(found)
    return Content("\n").join(parts)


def _today(today: Today, width: int) -> list[Content]:
    if isinstance(today, str):
        return [Content(""), Content.assemble(("! ", "$text-warning"), host(today))]
    if not today:
        return []
    heading = Content.assemble(
        ("Today's rules say otherwise", "bold $text-warning"), (f"  {len(today)}", MUTED)
    )
    rows = [Content(""), heading]
    for one in today:
        rows.append(host_line(one.check, "bold"))
        rows.append(hanging(Content.styled("  then   ", MUTED), host_line(one.then), width))
        rows.append(hanging(Content.styled("  today  ", MUTED), host_line(one.today), width))
    return rows


def _status_heading(status: Status, number: int) -> Content:
    return Content.assemble((HEADINGS[status], "bold"), (f"  {number}", MUTED))


def _rest(found: Sequence[KeptFinding]) -> list[Content]:
    """Return what has a status that this gpudoctor does not know."""
    known = {str(status) for status in Status}
    return [_kept(one) for one in found if one.status not in known]


def _kept(one: KeptFinding) -> Content:
    known = one.status in {str(status) for status in Status}
    status = Status(one.status) if known else Status.UNKNOWN
    issue = status is Status.ISSUE
    what = f"{one.impact:<8} {one.cls}" if issue else NAMES[status] if known else one.status
    panel = next((p.heading for p in Panel if p == one.panel), one.panel)
    return Content.assemble(
        (f"  {GLYPHS[status]} ", STYLES[status]),
        (f"{one_line(what, 13):<13} ", STYLES[status] if issue else MUTED),
        host_line(one.summary),
        ("  ", MUTED),
        host_line(panel, MUTED, 40),
    )
