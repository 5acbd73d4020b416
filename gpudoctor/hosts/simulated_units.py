"""The systemd of a simulated machine: its units are files, as systemd keeps them.

A unit is its file in one of systemd's folders (an empty one is masked). It is active while
/run/systemd/units has its mark. systemd runs where /run/systemd/private is.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpudoctor.hosts.simulated_shell import NotSimulated
from gpudoctor.hosts.simulated_tools import Output, Program

if TYPE_CHECKING:
    from gpudoctor.hosts.simulated import SimulatedMachine

_FOLDERS = ("/etc/systemd/system", "/run/systemd/transient", "/usr/lib/systemd/system")
_SOCKET = "/run/systemd/private"
_LATENCY = "/dev/cpu_dma_latency"
_HOLDS = re.compile(
    r"exec 3>/dev/cpu_dma_latency && printf (0x[0-9a-f]{8}) >&3 && \{ sleep infinity & \}"
)
# What a unit's name stands in, in others' files, and what that makes them of it.
_REVERSE = {"RequiredBy": "Requires", "BoundBy": "BindsTo", "ConsistsOf": "PartOf"}
_NOT_BOOTED = "System has not been booted with systemd as init system (PID 1). Can't operate.\n"


def _systemctl(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`start`, `stop`, `enable`, `disable`, `show -p PROPERTY…` of one unit; `is-active [-q]` of
    some; `is-system-running`, `daemon-reload`.
    """
    words, properties, quiet = _arguments(argv)
    if words == ["is-system-running"]:
        runs = _SOCKET in machine.files
        return Output("running\n" if runs else "offline\n", exit=int(not runs))
    if words == ["daemon-reload"]:
        return Output() if _SOCKET in machine.files else Output(err=_NOT_BOOTED, exit=1)
    if words[:1] == ["is-active"] and len(words) > 1:
        return _is_active(machine, words[1:], quiet)
    if len(words) != 2 or words[0] not in _VERBS and words[0] != "show":
        raise NotSimulated(f"systemctl {' '.join(argv)}")
    if _SOCKET not in machine.files:
        return Output(err=_NOT_BOOTED, exit=1)
    unit = words[1] if "." in words[1] else f"{words[1]}.service"
    if words[0] == "show":
        return Output("".join(f"{p}={_property(machine, unit, p)}\n" for p in properties))
    return _VERBS[words[0]](machine, unit)


def _is_active(machine: "SimulatedMachine", units: Sequence[str], quiet: bool) -> Output:
    """Print each unit's state; 0 where one of them is active."""
    if _SOCKET not in machine.files:
        return Output(err=_NOT_BOOTED, exit=1)
    named = [unit if "." in unit else f"{unit}.service" for unit in units]
    states = [_property(machine, unit, "ActiveState") for unit in named]
    told = "" if quiet else "".join(f"{state}\n" for state in states)
    return Output(told, exit=0 if "active" in states else 3)


def _arguments(argv: Sequence[str]) -> tuple[list[str], list[str], bool]:
    """Return the words, the properties asked for, and whether it shall be quiet."""
    words: list[str] = []
    properties: list[str] = []
    rest = iter(argv)
    for word in rest:
        if word == "-p":
            properties.append(next(rest))
        elif word not in {"-q", "--quiet"}:
            words.append(word)
    return words, properties, len(words) + 2 * len(properties) < len(argv)


def _property(machine: "SimulatedMachine", unit: str, name: str) -> str:
    text = _text(machine, unit)
    if name == "LoadState":
        return "not-found" if text is None else "loaded" if text else "masked"
    if name == "ActiveState":
        return "active" if _mark(unit) in machine.files else "inactive"
    if name in _REVERSE:
        return " ".join(sorted(_naming(machine, unit, _REVERSE[name])))
    said = re.search(rf"^{name}=(.*)$", text or "", re.MULTILINE)
    return said[1] if said else unit if name == "Description" else ""


def _naming(machine: "SimulatedMachine", unit: str, key: str) -> Iterator[str]:
    """Yield the units whose files name this one under a key."""
    for path in machine.paths():
        if not path.startswith(_FOLDERS):
            continue
        for line in re.findall(rf"^{key}=(.*)$", machine.text(path) or "", re.MULTILINE):
            if unit in line.split():
                yield path.rpartition("/")[2]


def _text(machine: "SimulatedMachine", unit: str) -> str | None:
    """Return the text of a unit's file, "" where it is masked, None where there is none."""
    texts = (machine.text(f"{folder}/{unit}") for folder in _FOLDERS)
    return next((text for text in texts if text is not None), None)


def _mark(unit: str) -> str:
    return f"/run/systemd/units/invocation:{unit}"


def _start(machine: "SimulatedMachine", unit: str) -> Output:
    text = _text(machine, unit)
    if text is None:
        return Output(err=f"Failed to start {unit}: Unit {unit} not found.\n", exit=5)
    if not text:
        return Output(err=f"Failed to start {unit}: Unit {unit} is masked.\n", exit=1)
    machine.files[_mark(unit)] = b""
    return Output()


def _stop(machine: "SimulatedMachine", unit: str) -> Output:
    """Stop a unit; a transient one is then gone, and the request it held ends."""
    if _text(machine, unit) is None:
        return Output(err=f"Failed to stop {unit}: Unit {unit} not loaded.\n", exit=5)
    machine.files.pop(_mark(unit), None)
    transient = f"/run/systemd/transient/{unit}"
    held = re.search(r"^# others ask for (.{8})$", machine.text(transient) or "", re.MULTILINE)
    machine.files.pop(transient, None)
    if held:
        machine.files[_LATENCY] = bytes.fromhex(held[1])
    return Output()


def _enable(machine: "SimulatedMachine", unit: str) -> Output:
    """Link a unit to the target that its file names."""
    by = _property(machine, unit, "WantedBy")
    if not by:
        return Output(err=f"Failed to enable unit: Unit file {unit} does not exist.\n", exit=1)
    machine.files[f"{_FOLDERS[0]}/{by}.wants/{unit}"] = (_text(machine, unit) or "").encode()
    return Output()


def _disable(machine: "SimulatedMachine", unit: str) -> Output:
    if by := _property(machine, unit, "WantedBy"):
        machine.files.pop(f"{_FOLDERS[0]}/{by}.wants/{unit}", None)
    return Output()


_VERBS: dict[str, Callable[["SimulatedMachine", str], Output]] = {
    "start": _start,
    "stop": _stop,
    "enable": _enable,
    "disable": _disable,
}


def _systemd_run(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """Start a process that holds a CPU latency request; no other is simulated."""
    options = dict(word.partition("=")[::2] for word in argv if word.startswith("--"))
    holds = _HOLDS.fullmatch(argv[-1])
    if holds is None or "--unit" not in options:
        raise NotSimulated(f"systemd-run {' '.join(argv)}")
    if _SOCKET not in machine.files:
        return Output(err=_NOT_BOOTED, exit=1)
    unit = f"{options['--unit']}.service"
    if _text(machine, unit) is not None:
        failed = f"Unit {unit} was already loaded or has a fragment file."
        return Output(err=f"Failed to start transient service unit: {failed}\n", exit=1)
    others = machine.read(_LATENCY)
    lower = min(int.from_bytes(others, "little", signed=True), int(holds[1], 16))
    text = f"[Unit]\nDescription={options.get('--description', unit)}\n"
    text += f"# others ask for {others.hex()}\n"
    machine.files[f"/run/systemd/transient/{unit}"] = text.encode()
    machine.files[_mark(unit)] = b""
    machine.files[_LATENCY] = lower.to_bytes(4, "little", signed=True)
    return Output()


def _od(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`-An -td4 -N4 FILE`: the number that a file's first four bytes are."""
    if list(argv[:-1]) != ["-An", "-td4", "-N4"]:
        raise NotSimulated(f"od {' '.join(argv)}")
    try:
        data = machine.read(argv[-1])[:4]
    except OSError as refusal:
        return Output(err=f"od: {argv[-1]}: {refusal.strerror}\n", exit=1)
    return Output(f" {int.from_bytes(data, 'little', signed=True):11d}\n")


UNITS: dict[str, Program] = {"od": _od, "systemctl": _systemctl, "systemd-run": _systemd_run}
