"""From a seed file to a simulated machine: tables expanded to files, entries and tools."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from gpudoctor.formats.cpulist import parse_cpulist
from gpudoctor.hosts import simulated_gpu
from gpudoctor.hosts.simulated import SimulatedMachine, ToolAnswer, ToolSource
from gpudoctor.hosts.simulated_bus import bus_entries
from gpudoctor.hosts.simulated_processes import (
    process_entries,
    process_scan,
    process_tree,
    server_maps,
)
from gpudoctor.hosts.simulated_smi import as_set, gpu_files
from gpudoctor.model.place import parse_container

Seed = Mapping[str, Any]
_TERM = re.compile(r"\{n(?:\*(\d+))?(?:\+(\d+))?\}")


def load_demo() -> SimulatedMachine:
    """Return the demo host, in the state of its seed file."""
    text = files("gpudoctor.tables").joinpath("demo.toml").read_text("utf-8")
    return machine(tomllib.loads(text))


def machine(seed: Seed) -> SimulatedMachine:
    """Return the machine that a seed describes, with its container."""
    gpus = [seed["gpu"] | gpu for gpu in seed["gpus"]]
    gpus = [gpu | {"cpus": _node_cpus(seed, gpu["node"])} for gpu in gpus]
    host = _side(seed["host"])
    host.label = seed["label"]
    for entries in (bus_entries(seed, gpus), process_entries(seed["server"])):
        host.files |= {path: text.encode() for path, text in entries.files.items()}
        host.files |= entries.config
        host.listings |= {path: line.encode() for path, line in entries.listings.items()}
    host.files |= gpu_files(gpus)
    host.tools |= _tools(seed, gpus)
    host.ref = parse_container(seed["container"])
    host.container = _side(seed["container-side"])
    host.container.label = seed["container"]
    host.container.kernel = host
    return host


def _node_cpus(seed: Seed, node: int) -> str:
    text = seed["host"]["files"][f"/sys/devices/system/node/node{node}/cpulist"]
    return str(text)


def _side(table: Seed) -> SimulatedMachine:
    """Return the files, entries and tools that a side's table spells out."""
    texts, entries = dict(table.get("files", {})), dict(table.get("entries", {}))
    for block in table.get("every", ()):
        for n in sorted(parse_cpulist(block["of"])):
            for kind, made in (("files", texts), ("entries", entries)):
                made |= {_at(path, n): _at(text, n) for path, text in block.get(kind, {}).items()}
    side = SimulatedMachine()
    side.files = {path: _ended(text) for path, text in texts.items()}
    side.files |= {path: bytes.fromhex(text) for path, text in table.get("hex", {}).items()}
    side.listings = {path: entry_line(path, entry).encode() for path, entry in entries.items()}
    side.tools = {key: _answer(said) for key, said in table.get("tools", {}).items()}
    return side


def _at(text: str, n: int) -> str:
    """Fill in `{n}`, or `{n*a+b}` worked out."""

    def fill(match: "re.Match[str]") -> str:
        return str(n * int(match[1] or 1) + int(match[2] or 0))

    return _TERM.sub(fill, text) if "{n" in text else text


def _ended(text: str) -> bytes:
    return f"{text}\n".encode()


def entry_line(path: str, entry: str) -> str:
    """Return an `ls -ldn` line: a mode, a mode with `major, minor`, or `-> target` of a link."""
    if entry.startswith("-> "):
        return f"lrwxrwxrwx 1 0 0 0 Jan  5 08:00 {path} {entry}"
    mode, _, rest = entry.partition(" ")
    return f"{mode} 1 0 0 {rest or '4096'} Jan  5 08:00 {path}"


def _answer(said: Seed) -> ToolAnswer:
    return ToolAnswer(said.get("stdout", ""), said.get("stderr", ""), said.get("exit", 0))


def _tools(seed: Seed, gpus: list[dict[str, Any]]) -> dict[str, ToolSource]:
    """Return the answers that are worked out from the seed's values."""
    driver, server = seed["driver"], seed["server"]
    made: dict[str, Callable[[], str]] = {
        "nvidia-smi-compute-apps": lambda: simulated_gpu.compute_apps(gpus),
        "nvidia-smi-topo": lambda: simulated_gpu.topology(gpus),
        "nvidia-smi-p2p": lambda: simulated_gpu.peer_states(gpus, "OK"),
        "serving-processes": lambda: process_scan(server),
        "process-tree": lambda: process_tree(server),
        "server-maps": lambda: server_maps(server),
    }
    tools = {key: _rendered(render) for key, render in made.items()}
    return tools | {"nvidia-smi-xml": lambda machine: _smi_now(machine, driver, gpus)}


def _smi_now(machine: SimulatedMachine, driver: Seed, gpus: Sequence[Seed]) -> ToolAnswer:
    return ToolAnswer(simulated_gpu.smi_xml(driver, [as_set(machine, gpu) for gpu in gpus]))


def _rendered(render: Callable[[], str]) -> ToolSource:
    return lambda machine: ToolAnswer(render())
