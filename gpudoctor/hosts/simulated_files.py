"""Programs of a simulated machine that handle whole files: their bytes, names, owners, counts.

A simulated file has no mode of its own: each is a plain file of root's that all may read.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpudoctor.hosts.simulated_shell import NotSimulated
from gpudoctor.hosts.simulated_tools import Output, Program

if TYPE_CHECKING:
    from gpudoctor.hosts.simulated import SimulatedMachine

Said = tuple[str, str, int]
_FORMS = {"%A": "-rw-r--r--", "%a": "644", "%u": "0", "%g": "0", "%U": "root", "%G": "root"}


def _dd(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Said:
    """`of=PATH conv=fsync` only."""
    words = dict(word.split("=", 1) for word in argv)
    if set(words) - {"of", "conv"}:
        raise NotSimulated(f"dd {' '.join(argv)}")
    machine.write(words["of"], stdin)
    return "", "", 0


def _stat(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Said:
    """`-c FORM PATH`, also `-Lc`: no file here is a link."""
    if len(argv) != 3 or argv[0] not in {"-c", "-Lc"}:
        raise NotSimulated("stat without -c")
    machine.read(argv[2])
    form = argv[1]
    for mark, value in _FORMS.items():
        form = form.replace(mark, value)
    if "%" in form:
        raise NotSimulated(f"the stat format {argv[1]!r}")
    return f"{form}\n", "", 0


def _as_it_is(usual: str) -> Callable[["SimulatedMachine", Sequence[str], str], Said]:
    """Return a program that gives files the only mode or owner that they have here."""

    def program(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Said:
        if argv[0] != usual:
            raise NotSimulated(f"a file's mode or owner {argv[0]}")
        for path in argv[1:]:
            machine.read(path)
        return "", "", 0

    return program


def _mv(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Said:
    source, target = (word for word in argv if word != "-f")
    machine.write(target, machine.read(source).decode())
    del machine.files[source]
    return "", "", 0


def _sha256sum(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Said:
    if argv:
        raise NotSimulated("sha256sum of a named file")
    return f"{hashlib.sha256(stdin.encode()).hexdigest()}  -\n", "", 0


def _base64(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Said:
    """Filter only; `-d` decodes."""
    if list(argv) == ["-d"]:
        return base64.b64decode(stdin).decode(), "", 0
    if argv:
        raise NotSimulated(f"base64 {' '.join(argv)}")
    return base64.encodebytes(stdin.encode()).decode(), "", 0


def _wc(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Said:
    """`-l PATH…`, with the total of several; those that cannot be read are left out."""
    if argv[:1] != ["-l"] or len(argv) < 2:
        raise NotSimulated("wc without -l and paths")
    texts = {path: "" if path == "/dev/null" else machine.text(path) for path in argv[1:]}
    counts = {path: len(text.splitlines()) for path, text in texts.items() if text is not None}
    rows = [*counts.items(), *([("total", sum(counts.values()))] if len(texts) > 1 else [])]
    unread = "".join(f"wc: {path}: cannot be read\n" for path in texts if path not in counts)
    return "".join(f"{count:7} {path}\n" for path, count in rows), unread, int(unread != "")


def _sort(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Said:
    """Filter only; `-n` by leading numbers, `-u` each line once."""
    lines = stdin.splitlines()
    orders = {"": sorted(lines), "-u": sorted(set(lines))}
    if list(argv) == ["-n"]:
        orders["-n"] = sorted(lines, key=lambda line: int(line.split()[0]))
    if " ".join(argv) not in orders:
        raise NotSimulated(f"sort {' '.join(argv)}")
    return "".join(f"{line}\n" for line in orders[" ".join(argv)]), "", 0


def _tail(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Said:
    """`-n NUMBER` of the input only."""
    if len(argv) != 2 or argv[0] != "-n" or not argv[1].isdecimal():
        raise NotSimulated(f"tail {' '.join(argv)}")
    lines = stdin.splitlines(True)
    return "".join(lines[max(0, len(lines) - int(argv[1])) :]), "", 0


def _sync(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Said:
    return "", "", 0


_PROGRAMS: dict[str, Callable[["SimulatedMachine", Sequence[str], str], Said]] = {
    "base64": _base64,
    "chmod": _as_it_is("644"),
    "chown": _as_it_is("0:0"),
    "dd": _dd,
    "mv": _mv,
    "sha256sum": _sha256sum,
    "sort": _sort,
    "stat": _stat,
    "sync": _sync,
    "tail": _tail,
    "wc": _wc,
}


def _program(name: str) -> Program:
    """Return a program of the simulated machine; what it cannot read is its complaint."""

    def program(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
        try:
            return Output(*_PROGRAMS[name](machine, argv, stdin))
        except OSError as refusal:
            return Output(err=f"{name}: {refusal.filename}: {refusal.strerror}\n", exit=1)
        except binascii.Error:
            return Output(err=f"{name}: invalid input\n", exit=1)

    return program


FILE_TOOLS: dict[str, Program] = {name: _program(name) for name in _PROGRAMS}
