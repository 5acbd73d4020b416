"""The scan of serving processes: who launched each engine, with what, in which container."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpudoctor.formats.container_ref import containers_of
from gpudoctor.formats.engines import Engine, identify, is_script
from gpudoctor.formats.limits import Limit, parse_limits
from gpudoctor.model import Reason, Side, Unknown
from gpudoctor.model.place import ContainerRef

_MOST_ANCESTORS = 32


@dataclass(frozen=True, slots=True)
class Process:
    """One process; `start` is in clock ticks after boot, `threads` a count, `limits` raw lines."""

    pid: int
    ppid: int = 0
    start: int = 0
    exe: str = ""
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] | Unknown = field(default_factory=dict)
    cgroup: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    status: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scan:
    """All processes seen, by pid; `hidden`: /proc hides other users; `complete`: it ended well."""

    processes: Mapping[int, Process]
    hidden: bool = False
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """One serving engine: its launcher, with the worker processes under it.

    `arguments` follow the program or module; `containers` run from the outermost inwards; `side`
    is where its pids count. `exe` is empty where the link could not be read; `init` is the first
    process of its outermost container, 0 where it was not seen.
    """

    pid: int
    start: int
    engine: Engine
    argv: tuple[str, ...]
    arguments: tuple[str, ...]
    env: Mapping[str, str] | Unknown
    exe: str = ""
    workers: tuple[Process, ...] = ()
    containers: tuple[ContainerRef, ...] = ()
    limits: tuple[str, ...] = ()
    cgroup: tuple[str, ...] = ()
    side: Side = Side.HOST
    init: int = 0

    @property
    def container(self) -> ContainerRef | None:
        """Return the outermost container, the one the host itself runs."""
        return self.containers[0] if self.containers else None

    def limit(self, name: str) -> Limit | Unknown:
        """Return a limit by its printed name, such as `Max open files`."""
        found = parse_limits("\n".join(self.limits)) if self.limits else {}
        missing = Unknown(Reason.NO_PERMISSION, f"/proc/{self.pid}/limits: {name} was not read")
        return found.get(name, missing)


def parse_scan(text: str) -> Scan:
    """Parse the scan's tagged lines: `p PID` opens a process, one letter tags each line after."""
    blocks: list[list[tuple[str, str]]] = []
    lines = text.split("\n")
    for line in lines:
        tag, _, rest = line.partition(" ")
        if tag == "p":
            blocks.append([("p", rest)])
        elif len(tag) == 1 and blocks:
            blocks[-1].append((tag, rest))
    found = (_process(block) for block in blocks)
    complete = "end" in lines
    return Scan({p.pid: p for p in found if p is not None}, "hidden" in lines, complete)


def _process(block: Sequence[tuple[str, str]]) -> Process | None:
    """Return the process, or None where it ended while being read."""
    of: dict[str, list[str]] = {}
    for tag, rest in block:
        of.setdefault(tag, []).append(rest)
    stat = "".join(of.get("t", ())).rpartition(")")[2].split()
    if not of["p"][0].isdigit() or len(stat) < 20:
        return None
    argv = of.get("a", [])
    while argv and not argv[-1]:
        argv.pop()
    return Process(
        int(of["p"][0]),
        int(stat[1]),
        int(stat[19]),
        "".join(of.get("x", ())).strip(),
        tuple(argv),
        _environment(of),
        tuple(of.get("c", ())),
        tuple(of.get("l", ())),
        {k.rstrip(":"): v.strip() for k, _, v in (s.partition(" ") for s in of.get("s", ()))},
    )


def _environment(of: Mapping[str, list[str]]) -> Mapping[str, str] | Unknown:
    if "E" not in of:
        return Unknown(Reason.NO_PERMISSION, "its environment is not readable: run as root")
    if of["E"] == ["0"]:
        return Unknown(
            Reason.NOT_PRESENT, "its environment block is empty (overwritten by a title)"
        )
    return dict(line.split("=", 1) for line in of.get("e", ()) if "=" in line)


def servers_of(scan: Scan) -> tuple[Server, ...]:
    """Return the serving engines: one for each launcher, with the workers under it."""
    launchers: dict[int, list[Process]] = {}
    for process in scan.processes.values():
        if identify(process.argv) is None:
            continue
        top = _launcher(scan, process)
        launchers.setdefault(top.pid, [])
        if process.pid != top.pid:
            launchers[top.pid].append(process)
    return tuple(_server(scan, scan.processes[pid], launchers[pid]) for pid in sorted(launchers))


def _launcher(scan: Scan, process: Process) -> Process:
    """Return the topmost process of the same engine above; else a Python parent; else itself."""
    engine, top = identify(process.argv), process
    python = None
    for above in _ancestors(scan, process):
        seen = identify(above.argv)
        if seen and engine and seen[0] is engine[0]:
            top = above
        elif python is None and is_script(above.argv):
            python = above
    identity = identify(top.argv)
    worker = identity is not None and not identity[1]
    return python if worker and python is not None else top


def _ancestors(scan: Scan, process: Process) -> Iterator[Process]:
    """Yield the processes above, nearest first; a forged scan may hold loops and endless chains."""
    seen = {process.pid}
    above = scan.processes.get(process.ppid)
    while above is not None and above.pid not in seen and len(seen) <= _MOST_ANCESTORS:
        yield above
        seen.add(above.pid)
        above = scan.processes.get(above.ppid)


def _server(scan: Scan, launcher: Process, workers: Sequence[Process]) -> Server:
    named = [identity for p in (launcher, *workers) if (identity := identify(p.argv))]
    own = identify(launcher.argv)
    return Server(
        launcher.pid,
        launcher.start,
        named[0][0],
        launcher.argv,
        own[2] if own else launcher.argv[1:],
        launcher.env,
        launcher.exe,
        tuple(sorted(workers, key=lambda p: p.pid)),
        containers_of(launcher.cgroup),
        launcher.limits,
        launcher.cgroup,
        init=_init(scan, launcher),
    )


def _init(scan: Scan, launcher: Process) -> int:
    """Return the pid of the process above (or itself) that is 1 in the outermost container."""
    chain = (launcher, *_ancestors(scan, launcher))
    return next((p.pid for p in chain if p.status.get("NSpid", "").split()[1:2] == ["1"]), 0)
