"""The evidence behind a finding: what was run or read, and an excerpt of the bytes."""

from collections.abc import Iterator, Mapping

from textual.content import Content

from gpudoctor.model import Evidence, Unknown
from gpudoctor.screens.words import MUTED, host, host_line, seconds
from gpudoctor.text import clean

_FILES = 6
_WIDTH = 400
_BINARY = 48


def proof(evidence: Mapping[str, Evidence], keys: tuple[str, ...], lines: int = 8) -> Content:
    """Return the evidence under these probe keys, at most `lines` lines of each file or output."""
    parts: list[Content] = []
    for key in keys:
        if key in evidence:
            parts += _one(evidence[key], lines)
            parts.append(Content(""))
    return Content("\n").join(parts[:-1]) if parts else Content.styled("nothing was kept", MUTED)


def _one(item: Evidence, lines: int) -> Iterator[Content]:
    took = f"{item.side} · {seconds(item.seconds)}" if item.seconds >= 0.1 else str(item.side)
    yield Content.assemble(host_line(item.key, "bold"), (f"  {took}", MUTED))
    if item.files:
        yield from _files(item, lines)
    else:
        yield from _tool(item, lines)
    if item.problem is not None:
        yield host_line(str(item.problem), "$text-secondary")


def _tool(item: Evidence, lines: int) -> Iterator[Content]:
    if item.command:
        yield Content.assemble(("$ ", MUTED), host_line(item.command, limit=_WIDTH))
    yield from _excerpt(item.stdout, lines)
    if item.stderr:
        yield Content.assemble(("stderr ", MUTED), host_line(item.stderr, limit=_WIDTH))
    if item.exit:
        yield Content.styled(f"exit {item.exit}", MUTED)


def _files(item: Evidence, lines: int) -> Iterator[Content]:
    each = max(1, lines // max(1, min(len(item.files), _FILES)))
    shown = list(item.files.items()) if lines > 100 else list(item.files.items())[:_FILES]
    for path, answer in shown:
        if isinstance(answer, Unknown):
            yield Content.assemble(
                host_line(path, MUTED), "  ", host_line(str(answer), "$text-secondary")
            )
            continue
        text = list(_excerpt(answer, each))
        if len(text) == 1:
            yield Content.assemble(host_line(path, MUTED), "  ", text[0])
        else:
            yield host_line(path, MUTED)
            yield from text
    if len(item.files) > len(shown):
        yield Content.styled(f"… {len(item.files) - len(shown)} more files", MUTED)


def _excerpt(data: bytes, lines: int) -> Iterator[Content]:
    """Yield the first lines as text, or the first bytes as hex where they are no text."""
    if b"\0" in data[:4096]:
        dots = " …" if len(data) > _BINARY else ""
        yield Content(data[:_BINARY].hex(" ") + dots)
        return
    rows = clean(data[: lines * 4096]).rstrip("\n").split("\n")
    for row in rows[:lines]:
        yield host(row[:_WIDTH] + ("…" if len(row) > _WIDTH else ""))
    left = data.count(b"\n") + (not data.endswith(b"\n") and bool(data)) - lines
    if left > 0:
        yield Content.styled(f"… {left} more lines", MUTED)
