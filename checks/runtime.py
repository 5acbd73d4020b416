"""Panel 10: the serving engine and its Python stack, as they run now."""

import re

from gpudoctor.checks.runtime_env import (
    alloc_conf,
    cuda_visible_devices,
    debug_env,
    omp_threads,
)
from gpudoctor.checks.runtime_limits import memlock, nofile
from gpudoctor.checks.runtime_packages import (
    engine_version,
    kernel_packages,
    torch_cuda,
    torch_version,
)
from gpudoctor.checks.runtime_servers import flags_of, label, per_server, where
from gpudoctor.checks.runtime_speed import baseline, cuda_graph, tp_topology
from gpudoctor.formats.proc_maps import Mapped
from gpudoctor.formats.serving import Server
from gpudoctor.model import (
    Class,
    Impact,
    Needs,
    Reason,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    unknown,
)
from gpudoctor.probes.model_config import model_of
from gpudoctor.probes.nccl import ranks_of
from gpudoctor.probes.server_packages import MAPPED
from gpudoctor.probes.serving import SERVERS
from gpudoctor.tables.software import at_least

__all__ = [
    "alloc_conf",
    "baseline",
    "cuda_graph",
    "cuda_visible_devices",
    "debug_env",
    "engine_version",
    "kernel_packages",
    "memlock",
    "nofile",
    "omp_threads",
    "torch_cuda",
    "torch_version",
    "tp_topology",
]

_RESTART = Needs.SERVER_RESTART


@check(
    "rt-server-found",
    "Serving engine",
    reads=(SERVERS,),
    why="Everything else in this panel is about the process that serves.",
    source="/proc/PID/cmdline, status and cgroup",
    scope="server",
)
def server_found(servers: tuple[Server, ...]) -> Verdict:
    """Name what serves."""
    lines = []
    for server in servers:
        model = model_of(server) or "model not named"
        lines.append(
            f"{label(server)} (pid {server.pid}, {len(server.workers)} workers) {where(server)}, "
            f"{model}, {ranks_of(flags_of(server))} GPU(s) a replica"
        )
    count = f"{len(servers)} serving engines run" if len(servers) > 1 else "A serving engine runs"
    return info(count, "; ".join(lines))


@check(
    "rt-python",
    "Python",
    reads=(SERVERS,),
    optional=(MAPPED,),
    why="The engines' wheels are built for Python 3.10 to 3.13.",
    source="/proc/PID/exe and maps; the Python classifiers of the engines' packages",
    scope="server",
)
def python(servers: tuple[Server, ...], mapped: dict[int, Mapped] | Unknown) -> list[Verdict]:
    """Judge the interpreter of each server."""
    known = {} if isinstance(mapped, Unknown) else mapped
    return per_server(servers, lambda s: _python(s, known.get(s.pid, Mapped())), lambda s: s)


def _python(server: Server, mapped: Mapped) -> Verdict:
    texts = (server.exe, *mapped.site_packages)
    found = next((m for t in texts if (m := re.search(r"python(3\.\d+)(t?)(?:/|$)", t))), None)
    if found is None:
        if not server.exe:
            return unknown(Reason.NO_PERMISSION, f"/proc/{server.pid}/exe: run as root")
        if "python" in server.exe:
            return unknown(Reason.NOT_PRESENT, f"{server.exe} does not tell its version")
        return info("The engine is no Python program", server.exe)
    version = found.group(1)
    if found.group(2):
        return info("Free-threaded Python", version + "t", "3.10 to 3.13")
    if not at_least(version, "3.10"):
        return issue(
            "Python is older than the engines' wheels support",
            Class.P0,
            Impact.LOW,
            version,
            "3.10 to 3.13",
            needs=_RESTART,
            remedy="Install the engine into a new environment with Python 3.12 and restart it.",
        )
    if at_least(version, "3.14"):
        return info("Python is newer than 3.13", version, "3.10 to 3.13")
    return good("Python fits the wheels", version, "3.10 to 3.13")


_SHOWN = {
    "model": ("model-path", "model", "model-id", "m"),
    "tp": ("tensor-parallel-size", "tp-size", "tp", "num-shard"),
    "pp": ("pipeline-parallel-size", "pp-size", "pp"),
    "dp": ("data-parallel-size", "dp-size", "dp"),
    "ep": ("expert-parallel-size", "ep-size", "ep", "enable-expert-parallel"),
    "memory": ("mem-fraction-static", "gpu-memory-utilization"),
    "max running": ("max-running-requests", "max-num-seqs", "parallel"),
    "quantization": ("quantization", "q", "quantize"),
    "KV cache": ("kv-cache-dtype",),
    "attention": ("attention-backend",),
    "MoE": ("moe-runner-backend",),
    "speculative": ("speculative-algorithm", "speculative-algo", "speculative-config"),
    "config file": ("config",),
}


@check(
    "rt-launch-flags",
    "Launch flags",
    reads=(SERVERS,),
    why="Context for every other row of this panel. Flags in a --config file are not seen here.",
    source="/proc/PID/cmdline",
    scope="server",
)
def launch_flags(servers: tuple[Server, ...]) -> list[Verdict]:
    """Show what decides how the engine runs."""
    return per_server(servers, lambda s: info("Launch flags", _shown(s)), lambda s: s)


def _shown(server: Server) -> str:
    flags = flags_of(server)
    parts = [f"{name} {value or 'on'}" for name, names in _SHOWN.items()
             if (value := flags.get(*names)) is not None]  # fmt: skip
    if flags.positional and flags.get(*_SHOWN["model"]) is None:
        parts.insert(0, f"model {flags.positional[0]}")
    return ", ".join(parts) or "no known flags"
