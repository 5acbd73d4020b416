"""What plain read texts would print, from the bytes of the files they read.

Hundreds of kernel files are read by one process so, and not by several a file. Every other text
runs as it is.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from gpudoctor.formats.bulk import entry_key
from gpudoctor.formats.pci_config import express_word
from gpudoctor.model import Reason, Unknown
from gpudoctor.text import clean

Answer = str | Unknown
Contents = Mapping[str, bytes | Unknown]
# Bytes of a kernel's file, and of a file of our own, which may name a path for each CPU.
CAP, OWN_CAP = 1 << 14, 1 << 18
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
_OWN_FILE = re.compile(
    rf"\[ -e (?P<path>{_PATH}) \] \|\| \[ -L (?P=path) \] "
    r"&& echo \$\(stat -c '%A %u:%g' (?P=path)\) "
    r"\$\(\[ -f (?P=path) \] && sha256sum <(?P=path) \| tr -d ' -'\) \|\| echo absent"
)
_REGISTER = re.compile(r"setpci -s (?P<device>[0-9a-f:.]+) CAP_EXP\+(?P<offset>[0-9a-f]+)\.w")
# The mode without the mark of an ACL or a label, the links, the owner and the group.
_ENTRY = re.compile(rb"([A-Za-z-]{10})[.+@]? +\d+ +(\d+) +(\d+) ")
_BRACKETS = re.compile(r".*\[([^\]]*)\].*")
_NO_FILE = "No such file or directory"


@dataclass(frozen=True, slots=True)
class Plain:
    """A read text that needs no process: the files it reads, and what it prints of their bytes.

    Of `entries` the `ls -ldn` line is needed, too: the contents have it by its `entry_key`.
    """

    paths: tuple[str, ...]
    value: Callable[[Contents], Answer]
    entries: tuple[str, ...] = ()


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
    if match := _OWN_FILE.fullmatch(text):
        path = match["path"]
        return Plain((path,), lambda got: _mode_and_digest(got, path), (path,))
    return None


def _mode_and_digest(got: Contents, path: str) -> Answer:
    """Return a file's mode, owner and SHA-256, as `stat` and `sha256sum` print them; or absent."""
    key = entry_key(path)
    if _gone(got, key):
        return "absent"
    line = got.get(key, Unknown(Reason.PARSE_FAILED, f"{path}: not told"))
    if isinstance(line, Unknown):
        return line
    match = _ENTRY.match(line)
    if match is None:
        return Unknown(Reason.PARSE_FAILED, f"{path}: its entry was not told whole")
    mode, user, group = (each.decode() for each in match.groups())
    raw = got.get(path, Unknown(Reason.PARSE_FAILED, f"{path}: not told"))
    if isinstance(raw, Unknown):
        if raw.reason in {Reason.NOT_PRESENT, Reason.NO_PERMISSION}:  # a folder, say
            return f"{mode} {user}:{group}"
        return raw
    if mode[0] == "l" and not raw:  # to /dev/null, as a masked unit: no file, so no digest
        return f"{mode} {user}:{group}"
    if len(raw) >= OWN_CAP:
        return Unknown(Reason.TOO_BIG, f"{path} has {OWN_CAP} bytes or more")
    return f"{mode} {user}:{group} {sha256(raw).hexdigest()}"


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
