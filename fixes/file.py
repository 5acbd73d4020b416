"""Files of gpudoctor's own below /etc: written whole, beside and renamed, and taken away again.

Only a file that carries our header is ever replaced. A unit is enabled as an item of its own.
"""

import base64
import binascii
import hashlib
import re

from gpudoctor.fixes.conflicts import conflict, conflict_reads
from gpudoctor.fixes.mechanism import Mechanism, Seen, Values, unread
from gpudoctor.model import OwnFile
from gpudoctor.shell import quote

HEADER = "# Written by gpudoctor"
FOLDERS = (
    "/etc/sysctl.d",
    "/etc/tmpfiles.d",
    "/etc/modules-load.d",
    "/etc/modprobe.d",
    "/etc/systemd/system",
)
_UNITS = "/etc/systemd/system"
_UNIT = re.compile(rf"{_UNITS}/[\w@.:-]+\.(?:service|timer)")
_NAME = re.compile(r"[A-Za-z0-9_@:-][A-Za-z0-9_@.:+-]*")
# Bytes of a former file that are kept; one of ours has a few hundred, or a path for each CPU.
_LONGEST = 262144
_ABSENT, _ENABLED, _DISABLED = "absent", "enabled", "disabled"
_STATE = re.compile(r"-((?:[r-][w-][x-]){3}) (\d+:\d+) ([0-9a-f]{64})")
_FRESH = "-rw-r--r-- 0:0"


class OwnFileMechanism(Mechanism[OwnFile]):
    """The file is an item that reads `absent`, or its mode, owner and SHA-256; `lasting`."""

    lasting = True

    def reads(self, change: OwnFile) -> dict[str, str]:
        """Return the read text of the file, of its bytes and folder, of a unit's state, and of what
        could override it at boot.
        """
        path, folder = quote(change.path), quote(_folder(change))
        there = f"[ -e {path} ] || [ -L {path} ]"
        hashed = f"$([ -f {path} ] && sha256sum <{path} | tr -d ' -')"
        texts = {
            change.path: f"{there} && echo $(stat -c '%A %u:%g' {path}) {hashed} || echo {_ABSENT}",
            _bytes(change): f"[ -f {path} ] && head -c {_LONGEST} {path} | base64 | tr -d '\\n'"
            f" || echo {_ABSENT}",
            _folder(change): f"[ -d {folder} ] && echo there || echo {_ABSENT}",
        }
        if link := _link(change):
            linked = f"[ -e {quote(link)} ] || [ -L {quote(link)} ]"
            texts[_at_boot(change)] = f"{linked} && echo {_ENABLED} || echo {_DISABLED}"
        return texts | conflict_reads(change)

    def refuse(self, change: OwnFile, now: Seen) -> str:
        """Return why the file is not ours to write, or would not hold: its place, what is there
        now, or what overrides it at boot.
        """
        if not _placed(change.path):
            return f"{change.path} is no place for a file of gpudoctor's"
        if not change.text.startswith(HEADER) or not _plain(change.text):
            return f"the text for {change.path} does not say that it is gpudoctor's"
        if sentence := unread(now):
            return sentence
        if now[_folder(change)] == _ABSENT:
            return f"there is no folder {_folder(change)} there"
        if now[change.path] != _ABSENT:
            sentence = _foreign(change, str(now[change.path]), str(now[_bytes(change)]))
        if not sentence and (winner := conflict(change, now)):
            return f"it would not hold: {winner}"
        return sentence

    def wanted(self, change: OwnFile, before: Values) -> dict[str, str]:
        """Return the state of the file with our text, readable by all and root's."""
        digest = hashlib.sha256(change.text.encode()).hexdigest()
        states = {change.path: f"{_FRESH} {digest}"}
        return states | ({_at_boot(change): _ENABLED} if _link(change) else {})

    def write(self, change: OwnFile, item: str, before: Values) -> str:
        """Return the command that puts the text in place at once, and has it read."""
        if item != change.path:
            return f"systemctl enable {quote(_base(change))}"
        words = " ".join(quote(line) for line in change.text.splitlines())
        put = _put(change, f"printf '%s\\n' {words}", "644", "0:0")
        return " && ".join([put, *_reload(change)])

    def undo(self, change: OwnFile, item: str, before: Values) -> str:
        """Return the command that takes the file away, or puts the former bytes back."""
        if item != change.path:
            return f"systemctl disable {quote(_base(change))}"
        state = _STATE.fullmatch(before[item])
        if state is None:
            gone = f"rm -f {quote(change.path)} && sync {quote(_folder(change))}"
            return " && ".join([gone, *_reload(change)])
        told = f"echo {quote(before[_bytes(change)])} | base64 -d"
        back = _put(change, told, _octal(state[1]), state[2])
        return " && ".join([back, *_reload(change)])


def _put(change: OwnFile, content: str, mode: str, owner: str) -> str:
    """Return the text that writes what `content` prints beside the file, and renames it."""
    beside = quote(f"{_folder(change)}/.{_base(change)}.new")
    return (
        f"{content} | dd of={beside} conv=fsync 2>/dev/null && chmod {mode} {beside} && "
        f"chown {owner} {beside} && mv -f {beside} {quote(change.path)} && "
        f"sync {quote(_folder(change))}"
    )


def _reload(change: OwnFile) -> list[str]:
    return ["systemctl daemon-reload"] if change.path.startswith(f"{_UNITS}/") else []


def _foreign(change: OwnFile, state: str, encoded: str) -> str:
    """Return why what is there now must stay: no plain file, or somebody else's."""
    match = _STATE.fullmatch(state)
    if match is None:
        return f"{change.path} is there, and is no plain file that can be read ({state})"
    try:
        former = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        former = b""
    if hashlib.sha256(former).hexdigest() != match[3]:
        return f"{change.path} is too large, or changed while it was read"
    if not former.startswith(HEADER.encode()):
        return f"{change.path} is there, and is not gpudoctor's"
    return ""


def _placed(path: str) -> bool:
    """Return whether a path lies in a folder that is meant for additions, and has a plain name."""
    folder = next((f for f in FOLDERS if path.startswith(f"{f}/")), None)
    return folder is not None and all(
        _NAME.fullmatch(name) for name in path.removeprefix(f"{folder}/").split("/")
    )


def _plain(text: str) -> bool:
    return text.endswith("\n") and all(line.isprintable() for line in text.split("\n"))


def _link(change: OwnFile) -> str:
    """Return the link that enables a unit with an [Install] section, or nothing."""
    by = re.search(r"^WantedBy=([\w@.-]+)$", change.text, re.MULTILINE)
    if by is None or not _UNIT.fullmatch(change.path):
        return ""
    return f"{_UNITS}/{by[1]}.wants/{_base(change)}"


def _folder(change: OwnFile) -> str:
    return change.path.rpartition("/")[0]


def _base(change: OwnFile) -> str:
    return change.path.rpartition("/")[2]


def _bytes(change: OwnFile) -> str:
    return f"bytes of {change.path}"


def _at_boot(change: OwnFile) -> str:
    return f"{_base(change)} at boot"


def _octal(letters: str) -> str:
    bits = "".join("0" if letter == "-" else "1" for letter in letters)
    return f"{int(bits, 2):03o}"
