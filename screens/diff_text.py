"""A diff in the words of the command line's report: remarks first, then what differs."""

from collections.abc import Iterable, Iterator

from textual.content import Content

from gpudoctor.model.diff import Diff, Difference
from gpudoctor.model.snapshot import SnapshotHead
from gpudoctor.report_diff import heading, sections, sentence, verdict
from gpudoctor.screens.signs import MOVES
from gpudoctor.screens.words import MUTED, hanging, host
from gpudoctor.snapshots.head import when as taken_at


def diff_content(diff: Diff, width: int) -> Content:
    """Return a diff in lines of at most `width` cells: what is compared, then what differs."""
    sides, *remarks = heading(diff)
    lines = [hanging(Content(""), host(sides, MUTED), width)]
    lines += [remark_line(remark, width) for remark in remarks]
    lead = Content.styled("✓ " if diff.empty else "", "$text-success")
    lines += [Content(""), hanging(lead, host(verdict(diff), "bold"), width)]
    for title, found in sections(diff):
        head = Content.assemble((title, "bold"), (f"  {len(found)}", MUTED))
        lines += [Content(""), head, *difference_lines(found, width)]
    return Content("\n").join(lines)


def remark_line(remark: str, width: int) -> Content:
    """Return a sentence that an operator must know of a diff."""
    return hanging(Content.styled("! ", "$text-warning"), host(remark), width)


def difference_lines(found: Iterable[Difference], width: int) -> Iterator[Content]:
    """Yield a line for each difference: sign, word, and the sentence about it."""
    for one in found:
        sign, style = MOVES[one.moved]
        name, colon, rest = sentence(one).partition(": ")
        words = Content.assemble(host(name), (colon, MUTED), host(rest, "bold"))
        yield hanging(Content.styled(f"  {sign} {one.moved:<9} ", style), words, width)


def when(head: SnapshotHead) -> str:
    """Return when a snapshot was taken, in UTC."""
    taken = taken_at(head)
    return f"{taken:%Y-%m-%d %H:%M:%S} UTC" if taken else "an unknown time"
