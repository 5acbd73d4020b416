"""The programs of a simulated machine: readers and filters, sysctl, setpci."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpudoctor.hosts.simulated_grep import named_lines
from gpudoctor.hosts.simulated_pci import RegisterError, masked, register
from gpudoctor.hosts.simulated_shell import NotSimulated

if TYPE_CHECKING:
    from gpudoctor.hosts.simulated import SimulatedMachine


@dataclass(frozen=True, slots=True)
class Output:
    """What a command printed, and how it ended; `ends` stops the whole text (exit)."""

    out: str = ""
    err: str = ""
    exit: int = 0
    ends: bool = False


Program = Callable[["SimulatedMachine", Sequence[str], str], Output]
_BASH_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "0": "\0"}


def _echo(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    end = "" if argv[:1] == ["-n"] else "\n"
    return Output(" ".join(argv[1:] if not end else argv) + end)


def _printf(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """Fill the format with the arguments, again while there are any left."""
    values = list(argv[1:])
    out = _format(argv[0], values)
    while values:
        out += _format(argv[0], values)
    return Output(out)


def _format(form: str, values: list[str]) -> str:
    form = re.sub(r"\\([nt\\0])", lambda m: _BASH_ESCAPES[m[1]], form)

    def fill(match: "re.Match[str]") -> str:
        if match[0] == "%%":
            return "%"
        value = values.pop(0) if values else ""
        if match[0].endswith("s"):
            return match[0] % value
        return match[0] % int(value or "0", 0)

    if re.search(r"%(?!%|-?0?\d*[sdxX])", form.replace("%%", "")):
        raise NotSimulated(f"the printf format {form!r}")
    return re.sub(r"%%|%-?0?\d*[sdxX]", fill, form)


def _texts(machine: "SimulatedMachine", name: str, paths: Sequence[str], stdin: str) -> Output:
    """Read the files one after the other, or the input where there are none."""
    out, err = "" if paths else stdin, ""
    for path in paths:
        try:
            out += stdin if path == "-" else machine.read(path).decode("utf-8", "backslashreplace")
        except OSError as refusal:
            err += f"{name}: {path}: {refusal.strerror}\n"
    return Output(out, err, 1 if err else 0)


def _cat(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    return _texts(machine, "cat", [a for a in argv if a != "--"], stdin)


def _head(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`-n N`, `-c N`, or ten lines."""
    kind, count, paths = "n", 10, list(argv)
    if paths and (match := re.fullmatch(r"-([nc])?(\d*)", paths[0])):
        kind = match[1] or "n"
        number = match[2] or paths.pop(1)
        count, paths = int(number), paths[1:]
    read = _texts(machine, "head", paths, stdin)
    text = read.out[:count] if kind == "c" else "".join(read.out.splitlines(True)[:count])
    return Output(text, read.err, read.exit)


def _tr(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """Single characters and the escapes \\n, \\t, \\0; `-d` deletes."""
    deletes = argv[:1] == ["-d"]
    sets = [re.sub(r"\\([nt\\0])", lambda m: _BASH_ESCAPES[m[1]], a) for a in argv[deletes:]]
    if any("-" in s[1:-1] or "[" in s and "[:" in s for s in sets):
        raise NotSimulated("tr with ranges or classes")
    if deletes:
        return Output("".join(c for c in stdin if c not in sets[0]))
    target = sets[1].ljust(len(sets[0]), sets[1][-1])
    return Output(stdin.translate(str.maketrans(sets[0], target[: len(sets[0])])))


def _sed(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`[-n] s/basic regex/replacement/[gp]` only."""
    quiet = argv[0] == "-n"
    script, *paths = argv[quiet:]
    match = re.fullmatch(r"s(.)(.*)\1(.*)\1([gp]*)", script)
    if match is None:
        raise NotSimulated(f"the sed script {script!r}")
    regex = re.compile(_basic(match[2]))
    template = re.sub(r"(?<!\\)&", r"\\g<0>", match[3])
    read = _texts(machine, "sed", paths, stdin)
    out = ""
    for line in read.out.splitlines():
        changed, count = regex.subn(template, line, count=0 if "g" in match[4] else 1)
        if not quiet or (count and "p" in match[4]):
            out += f"{changed}\n"
    return Output(out, read.err, read.exit)


_PIECE = re.compile(r"\\(.)|\[(\^?)(\]?[^]]*)\]|([(){}|+?])")


def _basic(pattern: str) -> str:
    """Return a basic regular expression as Python writes it: groups and braces change places."""

    def swapped(match: "re.Match[str]") -> str:
        escaped, negation, members, plain = match.groups()
        if members is not None:
            listed = re.sub(r"([][\\])", r"\\\1", members)
            return f"[{negation}{listed}]"
        if escaped is not None:
            return escaped if escaped in "(){}|+?" else match[0]
        return f"\\{plain}"

    return _PIECE.sub(swapped, pattern)


def _grep(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`-E`, `-o`, `-q`, `-v`, `-x`, `-F`, `-c` and one pattern, or one a line with `-F`; `-H`
    with `-E`, `-s` and `-c` only.
    """
    flags = "".join(a[1:] for a in argv if a.startswith("-") and a != "-")
    pattern, *paths = [a for a in argv if not a.startswith("-")]
    if set(flags) - set("EoqvxFcsH") or ("H" in flags and set(flags) - set("HEsc")):
        raise NotSimulated(f"grep -{flags}")
    fixed = "|".join(re.escape(line) for line in pattern.split("\n"))
    text = fixed if "F" in flags else pattern if "E" in flags else _basic(pattern)
    regex = re.compile(rf"^(?:{text})$" if "x" in flags else text)
    if "H" in flags:
        named = named_lines(machine, regex, paths, "c" in flags)
        return Output(named, exit=int(not named))
    read = _texts(machine, "grep", paths, stdin)
    lines = [x for x in read.out.splitlines() if (regex.search(x) is None) == ("v" in flags)]
    if "o" in flags:
        shown = [match[0] for line in lines for match in regex.finditer(line) if match[0]]
    else:
        shown = [str(len(lines))] if "c" in flags else lines
    out = "" if "q" in flags else "".join(f"{line}\n" for line in shown)
    return Output(out, read.err, 0 if lines else 1)


def _tee(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    append = "-a" in argv
    err = ""
    for path in (a for a in argv if a != "-a"):
        try:
            if path.startswith(("/proc/", "/sys/")):
                machine.read(path)
            machine.write(path, stdin, append)
        except OSError as refusal:
            err += f"tee: {path}: {refusal.strerror}\n"
    return Output(stdin, err, 1 if err else 0)


def _sysctl(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """Read or write kernel parameters by dotted key, as procps does."""
    flags = "".join(a.lstrip("-") for a in argv if a.startswith("-"))
    out = err = ""
    for item in (a for a in argv if not a.startswith("-")):
        key, sets, value = item.partition("=")
        path = "/proc/sys/" + key.replace(".", "/")
        try:
            if sets:
                machine.read(path)
                machine.write(path, f"{value}\n")
            text = value if sets else machine.read(path).decode().rstrip("\n")
        except OSError as refusal:
            failed = f"setting key {key!r}" if sets else f"reading key {key!r}"
            missing = refusal.errno == 2
            err += f"sysctl: {f'cannot stat {path}' if missing else failed}: {refusal.strerror}\n"
            continue
        if "q" not in flags:
            out += f"{text}\n" if "n" in flags else f"{key} = {text}\n"
    return Output(out, err, 255 if err else 0)


def _setpci(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`-s BDF REGISTER[=VALUE[:MASK]]…` on config space, masked as pciutils writes it."""
    if argv[:1] != ["-s"] or len(argv) < 3:
        raise NotSimulated("setpci without -s")
    bdf = argv[1] if argv[1].count(":") == 2 else f"0000:{argv[1]}"
    path = f"/sys/bus/pci/devices/{bdf}/config"
    out = ""
    for spec in argv[2:]:
        name, sets, data = spec.partition("=")
        try:
            config = machine.read(path)
            place = register(config, name)
        except OSError:
            return Output(out, "setpci: Warning: No devices selected for operation group 1.\n")
        except RegisterError as refusal:
            return Output(out, f"setpci: {bdf}: {refusal}\n", 1)
        if sets:
            value, _, mask = data.partition(":")
            bits = int(mask, 16) if mask else (1 << 8 * place.size) - 1
            machine.files[path] = masked(config, place, int(value, 16), bits)
        else:
            out += f"{place.read(config):0{2 * place.size}x}\n"
    return Output(out)


def _test(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`-e -f -r -w -n -z`, `=`, `!=` and whole-number comparisons."""
    words = list(argv[:-1]) if argv[-1:] == ["]"] else list(argv)
    negate = words[:1] == ["!"]
    words = words[negate:]
    try:
        return Output(exit=int(_holds(machine, words) == negate))
    except ValueError:
        return Output(err="sh: test: not a number\n", exit=2)


def _holds(machine: "SimulatedMachine", words: list[str]) -> bool:
    if len(words) == 1:
        return words[0] != ""
    if len(words) == 2 and words[0] in {"-n", "-z"}:
        return (words[1] != "") == (words[0] == "-n")
    if len(words) == 2 and words[0] == "-e" and words[1] in {**machine.files, **machine.listings}:
        return True  # there, whether or not it can be read
    if len(words) == 2 and words[0] in {"-e", "-f", "-r", "-w"}:
        return machine.text(words[1]) is not None
    if len(words) == 2 and words[0] == "-L":
        return False  # no file here is a link
    if len(words) == 2 and words[0] == "-d":
        folder = words[1].rstrip("/") + "/"
        return any(path.startswith(folder) for path in machine.paths())
    if len(words) == 3 and words[1] in {"=", "!="}:
        return (words[0] == words[2]) == (words[1] == "=")
    if len(words) == 3 and words[1] in _COMPARE:
        return _COMPARE[words[1]](int(words[0]), int(words[2]))
    raise NotSimulated(f"test {' '.join(words)}")


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}


def _rm(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    for path in (a for a in argv if not a.startswith("-")):
        machine.files.pop(path, None)
        machine.listings.pop(path, None)
    return Output()


def _exit(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    return Output(exit=int(argv[0]) if argv else 0, ends=True)


def _ends_with(code: int) -> Program:
    return lambda machine, argv, stdin: Output(exit=code)


TOOLS: dict[str, Program] = {
    ":": _ends_with(0),
    "true": _ends_with(0),
    "false": _ends_with(1),
    "logger": _ends_with(0),
    "exit": _exit,
    "[": _test,
    "test": _test,
    "cat": _cat,
    "echo": _echo,
    "grep": _grep,
    "head": _head,
    "printf": _printf,
    "rm": _rm,
    "sed": _sed,
    "setpci": _setpci,
    "sysctl": _sysctl,
    "tee": _tee,
    "tr": _tr,
}
