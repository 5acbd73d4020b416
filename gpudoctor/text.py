"""Bytes from a host become safe text here, and nowhere else (design law 9)."""

import re

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
REPLACEMENT = "\ufffd"


def clean(raw: bytes | str) -> str:
    """Decode UTF-8 (bad bytes as \\xNN) and replace control, C1 and bidi characters by U+FFFD.

    Newlines and tabs stay; CRLF becomes LF first, since several tools print it.
    """
    text = raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else raw
    return _UNSAFE.sub(REPLACEMENT, text.replace("\r\n", "\n"))


def one_line(raw: bytes | str, limit: int = 200) -> str:
    """Return safe text on one line of at most `limit` characters, ending in an ellipsis if cut."""
    text = " ".join(clean(raw).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def markdown_text(text: str) -> str:
    """Return safe text as Markdown that shows it word for word, on one line of a table's cell."""
    escaped = "".join(f"\\{c}" if c in "\\`*_[]|#!~" else c for c in clean(text))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
