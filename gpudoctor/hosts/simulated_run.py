"""Running parsed sh text on a simulated machine: expansion, redirections, pipes, exit codes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from gpudoctor.hosts.simulated_files import FILE_TOOLS
from gpudoctor.hosts.simulated_modules import MODULES
from gpudoctor.hosts.simulated_process import PROCESS_TOOLS
from gpudoctor.hosts.simulated_shell import Command, NotSimulated, Pipeline, Redirect, Word, parse
from gpudoctor.hosts.simulated_smi import SMI
from gpudoctor.hosts.simulated_tools import TOOLS, Output
from gpudoctor.hosts.simulated_units import UNITS

if TYPE_CHECKING:
    from gpudoctor.hosts.simulated import SimulatedMachine

_MARKS = "*?["
_PROGRAMS = {**TOOLS, **UNITS, **SMI, **MODULES, **FILE_TOOLS, **PROCESS_TOOLS}


def run(machine: "SimulatedMachine", text: str) -> tuple[int, str, str]:
    """Run a text; return (exit code, output, complaints). Raises NotSimulated."""
    code, out, err = 0, "", ""
    for pipeline in parse(text):
        if pipeline.when == "zero" and code or pipeline.when == "nonzero" and not code:
            continue
        done = _pipeline(machine, pipeline)
        code, out, err = done.exit, out + done.out, err + done.err
        if done.ends:
            break
    return code, out, err


def _pipeline(machine: "SimulatedMachine", pipeline: Pipeline) -> Output:
    stdin, complaints = "", ""
    last = Output()
    for command in pipeline.commands:
        last = _command(machine, command, stdin)
        stdin, complaints = last.out, complaints + last.err
    code = int(not last.exit) if pipeline.negated else last.exit
    return Output(last.out, complaints, code, last.ends)


def _command(machine: "SimulatedMachine", command: Command, stdin: str) -> Output:
    argv = [word for part in command.words for word in _expand(machine, part)]
    plan = _Streams(machine)
    try:
        stdin = plan.open(command.redirects, stdin)
    except OSError as refusal:
        verb = "open" if plan.reading else "create"
        return Output(err=f"sh: cannot {verb} {refusal.filename}: {refusal.strerror}\n", exit=2)
    if not argv:
        return Output()
    tool = _PROGRAMS.get(argv[0].rsplit("/", 1)[-1])
    if tool is None:
        return plan.route(Output(err=f"sh: {argv[0]}: not found\n", exit=127), argv[0])
    return plan.route(tool(machine, argv[1:], stdin), argv[0])


@dataclass(slots=True)
class _Streams:
    """Where a command's output (1) and complaints (2) go: a path, or the stream of that number."""

    machine: "SimulatedMachine"
    to: dict[int, str | int] = field(default_factory=lambda: {1: 1, 2: 2})
    append: bool = False
    reading: bool = False

    def open(self, redirects: Sequence[Redirect], stdin: str) -> str:
        """Open all redirections in order and return the command's input. Raises OSError."""
        for redirect in redirects:
            name = "".join(_expand(self.machine, redirect.word))
            self.reading = redirect.operator == "<"
            if redirect.operator == ">&":
                if name not in {"1", "2"} or redirect.fd not in self.to:
                    raise NotSimulated(f"the redirection {redirect.fd}>&{name}")
                self.to[redirect.fd] = self.to[int(name)]
            elif redirect.operator == "<":
                stdin = "" if name == "/dev/null" else self.machine.read(name).decode()
            elif redirect.operator in {">", ">>"} and redirect.fd in self.to:
                self.append = redirect.operator == ">>"
                self._create(name)
                self.to[redirect.fd] = name
            else:
                raise NotSimulated(f"the redirection {redirect.fd}{redirect.operator}")
        return stdin

    def _create(self, name: str) -> None:
        """Open for writing: kernel files must be there, other files are made or emptied."""
        if name.startswith(("/proc/", "/sys/")):
            self.machine.read(name)
        self.machine.write(name, "", self.append)

    def route(self, done: Output, program: str) -> Output:
        """Send each stream where it goes; a refused write is the program's own error."""
        streams = {1: "", 2: ""}
        code = done.exit
        for fd, text in ((2, done.err), (1, done.out)):
            place = self.to[fd]
            if isinstance(place, int):
                streams[place] += text
                continue
            try:
                self.machine.write(place, text, self.append)
            except OSError as refusal:
                streams[2] += f"sh: {program}: write error: {refusal.strerror}\n"
                code = code or 1
        return Output(streams[1], streams[2], code, done.ends)


def _expand(machine: "SimulatedMachine", word: Word) -> list[str]:
    """Return the fields of a word: substitutions run, unquoted ones split, globs filled in."""
    fields, bare = [""], True
    for part in word:
        text = part.text
        if part.command:
            text = run(machine, part.text)[1].rstrip("\n")
            if not part.quoted:
                pieces = text.split()
                fields[-1] += "".join(pieces[:1])
                fields += pieces[1:]
                continue
        bare = bare and not part.quoted
        fields[-1] += text
    if not any(part.quoted for part in word):
        fields = [name for name in fields if name]
    if bare and len(word) == 1 and any(mark in word[0].text for mark in _MARKS):
        return _glob(machine, word[0].text) or fields
    return fields


def _glob(machine: "SimulatedMachine", pattern: str) -> list[str]:
    parts = pattern.split("/")
    return [
        path
        for path in machine.paths()
        if len(names := path.split("/")) == len(parts)
        and all(fnmatchcase(name, part) for name, part in zip(names, parts, strict=True))
    ]
