"""Bytes become safe text once."""

import pytest

from gpudoctor.text import REPLACEMENT, clean, markdown_text, one_line


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"always [madvise] never\n", "always [madvise] never\n"),
        (b"a\r\nb\tc", "a\nb\tc"),
        (b"\xff\xfe", "\\xff\\xfe"),
        (b"\x1b]0;title\x07", f"{REPLACEMENT}]0;title{REPLACEMENT}"),
        ("\u202eevil\u2066".encode(), f"{REPLACEMENT}evil{REPLACEMENT}"),
        ("\x9b31m\x7f".encode(), f"{REPLACEMENT}31m{REPLACEMENT}"),
        (b"\x00\r", REPLACEMENT * 2),
        ("a\udcff", f"a{REPLACEMENT}"),
    ],
)
def test_clean(raw: bytes, text: str) -> None:
    assert clean(raw) == text


def test_one_line_cuts_with_an_ellipsis() -> None:
    assert one_line(b"a\nb   c") == "a b c"
    assert one_line("x" * 300, 10) == "x" * 9 + "…"


def test_markdown_shows_text_and_obeys_none_of_it() -> None:
    assert markdown_text("a|b\n# *c*\x1b") == f"a\\|b \\# \\*c\\*{REPLACEMENT}"
    assert markdown_text("~~<b>&amp;") == "\\~\\~&lt;b>&amp;amp;"
