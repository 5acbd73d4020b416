"""Programs that change running processes of a simulated machine: prlimit, taskset, mount -N.

What they change are the files that the kernel would show it in: limits, status, mountinfo.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpudoctor.formats.cpulist import format_cpulist, parse_cpulist
from gpudoctor.hosts.simulated_files import FILE_TOOLS
from gpudoctor.hosts.simulated_shell import NotSimulated
from gpudoctor.hosts.simulated_tools import Output, Program

if TYPE_CHECKING:
    from gpudoctor.hosts.simulated import SimulatedMachine

PAGE = 4096
_PRINTED = {"memlock": ("Max locked memory", "bytes"), "nofile": ("Max open files", "files")}
_MOUNT = re.compile(r"remount,(?P<flags>[a-z,]+),size=(?P<kib>\d+)k")
_HELP = " -N, --namespace <ns>    perform mount in another namespace\n"


def _version(name: str) -> Output:
    return Output(f"{name} from util-linux 2.38.1\n")


def _prlimit(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`--pid PID --RESOURCE=SOFT:HARD`, `--version`."""
    if list(argv) == ["--version"]:
        return _version("prlimit")
    match = re.fullmatch(r"--pid (\d+) --(\w+)=(\w+):(\w+)", " ".join(argv))
    if match is None or match[2] not in _PRINTED:
        raise NotSimulated(f"prlimit {' '.join(argv)}")
    path = f"/proc/{match[1]}/limits"
    text = machine.text(path)
    if text is None:
        complaint = f"prlimit: failed to get the {match[2].upper()} resource limit: "
        return Output(err=f"{complaint}No such process\n", exit=1)
    label, unit = _PRINTED[match[2]]
    row = f"{label:<26}{match[3]:<21}{match[4]:<21}{unit:<10}"
    _put(machine, path, re.sub(rf"(?m)^{label}  .*$", row, text))
    return Output()


def _taskset(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`-apc CPUS PID` for all threads, `-pc CPUS TID` for one, `--version`."""
    if list(argv) == ["--version"]:
        return _version("taskset")
    match = re.fullmatch(r"-(a?)pc ([\d,-]+) (\d+)", " ".join(argv))
    if match is None:
        raise NotSimulated(f"taskset {' '.join(argv)}")
    whole, cpus, number = match.groups()
    place = rf"/proc/{number}/task/\d+/status" if whole else rf"/proc/\d+/task/{number}/status"
    found = [path for path in machine.paths() if re.fullmatch(place, path)]
    if not found:
        complaint = f"taskset: failed to set pid {number}'s affinity"
        return Output(err=f"{complaint}: No such process\n", exit=1)
    for path in found:
        row = f"Cpus_allowed_list:\t{format_cpulist(parse_cpulist(cpus))}"
        _put(machine, path, re.sub(r"(?m)^Cpus_allowed_list:.*$", row, machine.text(path) or ""))
    return Output()


def _mount(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`-N PID -t tmpfs -o remount,FLAGS,size=Nk tmpfs PATH`, and what `--help` says of -N."""
    if list(argv) == ["--help"]:
        return Output(_HELP)
    words = re.fullmatch(r"-N (\d+) -t tmpfs -o (\S+) tmpfs (\S+)", " ".join(argv))
    asked = words and _MOUNT.fullmatch(words[2])
    if words is None or not asked:
        raise NotSimulated(f"mount {' '.join(argv)}")
    path, kib = f"/proc/{words[1]}/mountinfo", int(asked["kib"])
    lines = (machine.text(path) or "").split("\n")
    at = next((i for i, line in enumerate(lines) if line.split(" ")[4:5] == [words[3]]), None)
    if at is None or kib * 1024 < _used(machine, f"/proc/{words[1]}/root{words[3]}"):
        return Output(err=f"mount: {words[3]}: mount point not mounted or bad option.\n", exit=32)
    lines[at] = _remounted(machine, lines[at], asked["flags"], kib)
    _put(machine, path, "\n".join(lines))
    return Output()


def _remounted(machine: "SimulatedMachine", line: str, flags: str, kib: int) -> str:
    """Return a line of mountinfo with these flags and size; the default size is not printed."""
    words = line.split(" ")
    options = [word for word in words[-1].split(",") if not word.startswith("size=")]
    if kib != _default_kib(machine):
        options.insert(1, f"size={kib}k")
    words[5], words[-1] = flags, ",".join(options)
    return " ".join(words)


def _default_kib(machine: "SimulatedMachine") -> int:
    match = re.search(r"MemTotal:\s+(\d+) kB", machine.text("/proc/meminfo") or "")
    return int(match[1]) // 8 * 4 if match else 0


def _used(machine: "SimulatedMachine", folder: str) -> int:
    """Return the bytes that the files below a folder take, in whole pages."""
    inside = (path for path in machine.paths() if path.startswith(f"{folder}/"))
    return sum(-(-len(machine.read(path)) // PAGE) * PAGE for path in inside)


def _stat(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`-f -c %f PATH`: free pages of a tmpfs of a process; the rest as for plain files."""
    place = re.fullmatch(r"-f -c %f (/proc/\d+)/root(\S+)", " ".join(argv))
    if place is None:
        return FILE_TOOLS["stat"](machine, argv, stdin)
    row = re.search(
        rf"(?m)^\S+ \S+ \S+ \S+ {place[2]} .*$", machine.text(f"{place[1]}/mountinfo") or ""
    )
    size = re.search(r",size=(\d+)k", row[0]) if row else None
    total = int(size[1]) if size else _default_kib(machine)
    return Output(f"{total * 1024 // PAGE - _used(machine, argv[-1]) // PAGE}\n")


def _getconf(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`PAGESIZE` only."""
    if list(argv) != ["PAGESIZE"]:
        raise NotSimulated(f"getconf {' '.join(argv)}")
    return Output(f"{PAGE}\n")


def _put(machine: "SimulatedMachine", path: str, text: str) -> None:
    machine.files[path] = f"{text}\n".encode()


PROCESS_TOOLS: dict[str, Program] = {
    "getconf": _getconf,
    "mount": _mount,
    "prlimit": _prlimit,
    "stat": _stat,
    "taskset": _taskset,
}
