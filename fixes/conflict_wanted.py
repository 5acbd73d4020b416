"""What a file of ours sets at boot, read back from its own text: kernel files, or a module."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from gpudoctor.model import OwnFile

_TEE = re.compile(r"ExecStart=-?/bin/sh -c 'echo (\S+) \| tee (\S.*) >/dev/null'")
_SETTING = re.compile(r"([A-Za-z0-9_./-]+) = (.+)")
_FOLDERS = {
    "/etc/sysctl.d/": "sysctl",
    "/etc/tmpfiles.d/": "tmpfiles",
    "/etc/modules-load.d/": "module",
    "/etc/systemd/system/": "unit",
}


class Form(StrEnum):
    """Who obeys a file at boot."""

    SYSCTL = "sysctl"
    TMPFILES = "tmpfiles"
    MODULE = "module"
    UNIT = "unit"
    NONE = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The file, the value of each kernel file that it writes, and the modules that it loads.

    A parameter's file is the one below /proc/sys.
    """

    file: str
    form: Form = Form.NONE
    values: dict[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()


def wanted_of(change: OwnFile) -> Wanted:
    """Return what a file of ours sets."""
    form = next((f for folder, f in _FOLDERS.items() if change.path.startswith(folder)), "")
    lines = [x for x in change.text.splitlines() if x and not x.startswith("#")]
    if form == Form.MODULE:
        return Wanted(change.path, Form.MODULE, modules=tuple(lines))
    values = dict(pair for line in lines for pair in _values(form, line))
    return Wanted(change.path, Form(form), values)


def _values(form: str, line: str) -> Iterator[tuple[str, str]]:
    if form == Form.SYSCTL and (match := _SETTING.fullmatch(line)):
        yield f"/proc/sys/{match[1].replace('.', '/')}", match[2]
    elif form == Form.TMPFILES and len(words := line.split()) == 7:
        yield words[1], words[6]
    elif form == Form.UNIT and (match := _TEE.fullmatch(line)):
        yield from ((path, match[1]) for path in match[2].split())
