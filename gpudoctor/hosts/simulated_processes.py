"""The serving processes of a simulated machine: /proc files, and the scan and maps of probes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpudoctor.hosts.simulated_bus import Entries

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Process:
    """One process: `inner` is its pid in the container; no `title` means the command line."""

    pid: int
    inner: int
    parent: int
    title: str


def _processes(server: Table) -> Iterator[_Process]:
    """Yield the launcher, one scheduler a rank, and the detokenizer."""
    rows = server["processes"]
    yield _Process(*rows["launcher"])
    pid, inner, parent, title = rows["scheduler"]
    for i in range(server["ranks"]):
        yield _Process(pid + i, inner + i, parent, title.replace("{i}", str(i)))
    yield _Process(*rows["detokenizer"])


def process_scan(server: Table) -> str:
    """Return what the scan for serving processes prints."""
    lines: list[str] = []
    for process in _processes(server):
        lines += _block(server, process)
    return "\n".join([*lines, "end", ""])


def _block(server: Table, process: _Process) -> Iterator[str]:
    yield f"p {process.pid}"
    yield f"t {_stat(server, process)}"
    yield f"x {server['exe']}"
    yield f"c {server['cgroup']}"
    yield from (f"l {row}" for row in _limits(server))
    for key, value in _status(server, process).items():
        yield f"s {key}: {value} "
    argv = [process.title] if process.title else server["argv"]
    yield from (f"a {word}" for word in argv)
    # A rewritten title overwrites the environment block of the workers.
    env = {} if process.title else server["env"]
    yield from (f"e {name}={value}" for name, value in env.items())
    yield f"E {0 if process.title else len(env) + 9}"


def _stat(server: Table, process: _Process) -> str:
    name = (process.title or "python3")[:15]
    before = f"{process.pid} ({name}) S {process.parent} {process.pid} {process.pid} 0 -1 4194560"
    counters = "812233 0 41 0 90211 30442 0 0 20 0"
    return f"{before} {counters} {server['threads']} 0 {server['start'] * 100} 0 0"


def _status(server: Table, process: _Process) -> dict[str, str]:
    return {
        "Uid": "0 0\t0\t0",
        "NSpid": f"{process.pid} {process.inner}",
        "PPid": str(process.parent),
        "Threads": str(server["threads"]),
        "Cpus_allowed_list": server["cpus"],
    }


def _limits(server: Table) -> Iterator[str]:
    yield f"{'Limit':<26}{'Soft Limit':<21}{'Hard Limit':<21}Units"
    for name, (soft, hard, unit) in server["limits"].items():
        yield f"{name:<26}{soft:<21}{hard:<21}{unit}"


def process_tree(server: Table) -> str:
    """Return pid and parent of every process, as the probe prints them."""
    return "1 0\n" + "".join(f"{p.pid} {p.parent}\n" for p in _processes(server))


def server_maps(server: Table) -> str:
    """Return the distinct mapped files of launcher and workers, as the probe prints them."""
    places = [f"{server['site']}/", *server["libraries"]]
    return "".join(f"{p.pid} {place}\n" for p in _processes(server) for place in places)


def process_entries(server: Table) -> Entries:
    """Return the /proc files of every serving process, and the launcher's packages."""
    entries = Entries()
    for process in _processes(server):
        home = f"/proc/{process.pid}"
        argv = [process.title] if process.title else server["argv"]
        status = _status(server, process)
        entries.files |= {
            f"{home}/cgroup": f"{server['cgroup']}\n",
            f"{home}/comm": f"{(process.title or 'python3')[:15]}\n",
            f"{home}/cmdline": "\0".join([*argv, ""]),
            f"{home}/limits": "\n".join([*_limits(server), ""]),
            f"{home}/status": "".join(f"{k}:\t{v}\n" for k, v in status.items()),
            f"{home}/stat": f"{_stat(server, process)}\n",
        }
    launcher = next(_processes(server))
    root = f"/proc/{launcher.pid}/root{server['site']}"
    for name, version in server["packages"].items():
        home = f"{root}/{name}-{version}.dist-info"
        text = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\n"
        entries.files[f"{home}/METADATA"] = text
    version = f"__version__ = '{server['packages']['torch']}'\ncuda: str = '{server['cuda']}'\n"
    entries.files[f"{root}/torch/version.py"] = version
    return entries
