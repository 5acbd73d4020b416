"""What plain read texts would print, from the bytes of the files they read.

Hundreds of kernel files are read by one process so, and not by several a file. Every other text
runs as it is.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpudoctor.formats.pci_config import express_word
from gpudoctor.model import Reason, Unknown
from gpudoctor.text import clean

Answer = str | Unknown
Contents = Mapping[str, bytes | Unknown]
CAP = 1 << 14
_PATH = r"/[A-Za-z0-9_./:,@%+=-]+"
_VALUE = r"[A-Za-z0-9_.:,+-]+"
_CHOSEN = r"sed -n 's/\.\*\\\[\\\(\[\^\]\]\*\\\)\\\]\.\*/\\1/p'"
_NOW = rf"(?P<how>cat|{_CHOSEN}) (?P<path>{_PATH})"
_PLAIN = re.compile(rf"cat (?P<path>{_PATH})")
_PAIR = re.compile(rf"echo \$\(cat (?P<path>{_PATH}) (?P<other>{_PATH})\)")
_THERE = re.compile(rf"! test -e (?P<same>{_PATH}) && echo gone \|\| {_NOW}")
_BESIDE = re.compile(
    rf"! test -e (?P<same>{_PATH}) && echo gone \|\| (?P<now>{_NOW}) "
    rf"\| grep -xF (?P<value>{_VALUE}) \|\| echo \$\((?P=now) && cat (?P<other>{_PATH})\)"
)
_REGISTER = re.compile(r"setpci -s (?P<device>[0-9a-f:.]+) CAP_EXP\+(?P<offset>[0-9a-f]+)\.w")
_BRACKETS = re.compile(r".*\[([^\]]*)\].*")
_NO_FILE = "No such file or directory"


@dataclass(frozen=True, slots=True)
class Plain:
    """A read text that needs no process: the files it reads, and what it prints of their bytes."""

    paths: tuple[str, ...]
    value: Callable[[Contents], Answer]


def plain(text: str) -> Plain | None:
    """Return how a read text is answered from files; None for a text that must run itself."""
    if match := _PLAIN.fullmatch(text):
        path = match["path"]
        return Plain((path,), lambda got: _printed(_text(got, path)))
    if match := _PAIR.fullmatch(text):
        path, other = match["path"], match["other"]
        return Plain((path, other), lambda got: _words(_text(got, path), _text(got, other)))
    if (match := _THERE.fullmatch(text)) and match["same"] == match["path"]:
        path, whole = match["path"], match["how"] == "cat"
        return Plain((path,), lambda got: _gone(got, path) or _printed(_now(got, path, whole)))
    if (match := _BESIDE.fullmatch(text)) and match["same"] == match["path"]:
        path, other, value = match["path"], match["other"], match["value"]
        whole = match["how"] == "cat"
        return Plain(
            (path, other),
            lambda got: _gone(got, path) or _both(_now(got, path, whole), value, _text(got, other)),
        )
    if match := _REGISTER.fullmatch(text):
        path, offset = f"/sys/bus/pci/devices/{match['device']}/config", int(match["offset"], 16)
        return Plain((path,), lambda got: _word(got, path, offset))
    return None


def _word(got: Contents, path: str, offset: int) -> Answer:
    """Return a register of the PCI Express capability, in hexadecimal digits as setpci prints."""
    raw = got.get(path, Unknown(Reason.PARSE_FAILED, f"{path}: not told"))
    word = raw if isinstance(raw, Unknown) else express_word(raw, offset)
    return word if isinstance(word, Unknown) else f"{word:04x}"


def _text(got: Contents, path: str) -> Answer:
    """Return a file's whole text, or why there is none."""
    raw = got.get(path, Unknown(Reason.PARSE_FAILED, f"{path}: not told"))
    if isinstance(raw, Unknown):
        return raw
    if len(raw) > CAP:
        return Unknown(Reason.TOO_BIG, f"{path} has more than {CAP} bytes")
    return raw.decode("utf-8", "backslashreplace")


def _gone(got: Contents, path: str) -> str:
    raw = got.get(path)
    return "gone" if isinstance(raw, Unknown) and raw.detail.endswith(_NO_FILE) else ""


def _now(got: Contents, path: str, whole: bool) -> Answer:
    """Return what `cat`, or the sed that takes the word in brackets, prints of a file."""
    text = _text(got, path)
    if isinstance(text, Unknown) or whole:
        return text
    found = (_BRACKETS.fullmatch(line) for line in text.removesuffix("\n").split("\n"))
    return "".join(f"{match[1]}\n" for match in found if match is not None)


def _both(now: Answer, value: str, other: Answer) -> Answer:
    """Return the value alone where it is the wanted one, else with what is beside it."""
    if isinstance(now, Unknown):
        return now
    lines = now.removesuffix("\n").split("\n")
    if value in lines:
        return _printed("\n".join(line for line in lines if line == value))
    return _words(now, "" if isinstance(other, Unknown) else other)


def _words(one: Answer, other: Answer) -> Answer:
    """Return the words of both texts on one line, as `echo $(cat …)` does."""
    unread = next((text for text in (one, other) if isinstance(text, Unknown)), None)
    if unread is not None:
        return unread
    return _printed(" ".join(f"{one}\n{other}".split()))


def _printed(text: Answer) -> Answer:
    """Return what a text prints as a value: one line of clean text, its ends of line cut off."""
    if isinstance(text, Unknown):
        return text
    line = text.rstrip("\n")
    if "\n" in line:
        return Unknown(Reason.PARSE_FAILED, "it has more than one line")
    return line if clean(line) == line else Unknown(Reason.PARSE_FAILED, "it is not plain text")
