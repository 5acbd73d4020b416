"""A diff as plain text and as Markdown; the same sentences in both, and in JSON."""

import textwrap
from collections.abc import Iterator, Sequence

from gpudoctor.model.diff import Diff, Difference, Moved
from gpudoctor.model.snapshot import SnapshotHead
from gpudoctor.text import markdown_text, one_line

_ARROW, _LONGEST, _MARK = " -> ", 160, 10
_RED, _GREEN, _YELLOW, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
_COLOURS = {
    Moved.REGRESSED: _RED,
    Moved.NEW: _RED,
    Moved.GONE: _RED,
    Moved.GREW: _RED,
    Moved.CHANGED: _YELLOW,
    Moved.RESET: _YELLOW,
    Moved.FIXED: _GREEN,
}


def sections(diff: Diff) -> list[tuple[str, Sequence[Difference]]]:
    """Return the parts of a diff that hold something, most important first."""
    parts: list[tuple[str, Sequence[Difference]]] = [
        ("Findings", diff.findings),
        ("Inventory", diff.inventory),
        ("Settings", diff.settings),
        ("Counters", diff.counters),
        ("Read on one side only: neither gone nor changed", diff.not_read),
    ]
    return [(title, found) for title, found in parts if found]


def verdict(diff: Diff) -> str:
    """Return the whole diff in one sentence."""
    names = ("findings", "inventory", "settings", "counters")
    counts = [f"{len(getattr(diff, n))} in {n}" for n in names if getattr(diff, n)]
    lead = f"differences: {', '.join(counts)}" if counts else "no difference"
    tail = f"; {diff.left_out} read on one side only" if diff.left_out else ""
    return f"{lead}; {diff.same} values are equal{tail}"


def sentence(one: Difference) -> str:
    """Return one difference: of what, then and now, and by whom where that is known."""
    name = str(one.name) if one.sort else f"{one.name.what} {one.name.of}".strip()
    text = f"{name}: {_values(one)}"
    return one_line(f"{text} ({one.by})" if one.by else text, 2400)


def _values(one: Difference) -> str:
    then, now = (one_line(text, _LONGEST) for text in (one.before, one.after))
    if one.moved is Moved.NOT_READ:
        return f"only in the first: {then}" if then else f"only in the second: {now}"
    return f"{then}{_ARROW}{now}" if then and now else then or now


def heading(diff: Diff) -> list[str]:
    """Return what is compared, and what an operator must know of it."""
    return [f"{_named(diff.old)}{_ARROW}{_named(diff.new)}", *diff.remarks]


def _named(head: SnapshotHead) -> str:
    name = head.id[:8] or one_line(head.path, 120) or "now"
    kernel = f", kernel {head.identity.kernel}" if head.identity.kernel else ""
    note = f", note: {head.note}" if head.note else ""
    kind = f"{head.kind} of " if head.id or head.path else ""
    return one_line(f"{name} ({kind}{head.label}, {head.taken}{kernel}{note})", 400)


def plain(diff: Diff, columns: int = 100, colour: bool = False) -> str:
    """Return the diff as text; an empty one is its heading and one line."""
    lines = heading(diff)
    if not diff.empty:
        lines += ["", verdict(diff)]
    for title, found in sections(diff):
        lines += ["", f"{title.upper()} ({len(found)})"]
        lines += [line for one in found for line in _entry(one, columns, colour)]
    if diff.empty:
        lines += ["", verdict(diff)]
    return "\n".join(lines) + "\n"


def _entry(one: Difference, columns: int, colour: bool) -> Iterator[str]:
    rows = textwrap.wrap(
        f"{one.moved:<{_MARK}} {sentence(one)}",
        max(columns, 40),
        initial_indent="  ",
        subsequent_indent=" " * (_MARK + 3),
        break_on_hyphens=False,
    )
    mark = str(one.moved)
    paint = _COLOURS.get(one.moved, "") if colour else ""
    if paint and rows:
        rows[0] = rows[0].replace(mark, f"{paint}{mark}{_PLAIN}", 1)
    yield from rows


def markdown(diff: Diff) -> str:
    """Return the diff as Markdown; text from a host cannot become markup."""
    first, *more = heading(diff)
    lines = ["# What differs", "", markdown_text(first), ""]
    lines += [f"- {markdown_text(line)}" for line in more]
    lines += ["", f"**{markdown_text(verdict(diff))}**"]
    for title, found in sections(diff):
        lines += ["", f"## {title} ({len(found)})", ""]
        lines += [f"- {one.moved} {markdown_text(sentence(one))}" for one in found]
    return "\n".join(lines) + "\n"
