"""What is seen beside a benchmark: who else uses the engine and its GPUs, and the conditions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpudoctor.audit import run_audit
from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.formats.prometheus import totals
from gpudoctor.hosts.target import Target
from gpudoctor.model import Evidence, Facts, Files, Reader, Unknown
from gpudoctor.model.bench import Conditions, Serving
from gpudoctor.probes.gpu import GPUS
from gpudoctor.probes.gpu_processes import GPU_PROCESSES, Processes
from gpudoctor.probes.identity import IDENTITY
from gpudoctor.text import one_line

# How each engine counts the requests that it is answering.
_RUNNING = (
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "llamacpp:requests_processing",
    "tgi_batch_current_size",
)
_FIXED = frozenset({"GPUs"})


def _load(files: Evidence) -> dict[str, str]:
    """Return the load average of a minute, and the share of time that work waited for a CPU."""
    texts = files.texts()
    told = {}
    if words := texts.get("/proc/loadavg", "").split():
        told["load average"] = one_line(words[0], 20)
    for word in texts.get("/proc/pressure/cpu", "").split():
        if word.startswith("avg10=") and "work waited for a CPU" not in told:
            told["work waited for a CPU"] = f"{one_line(word[6:], 20)} % of 10 s"
    if not told:
        raise ValueError("no load was read")
    return told


LOAD: Reader[dict[str, str]] = Reader(
    "bench-load", (Files("bench-load", ("/proc/loadavg", "/proc/pressure/cpu")),), _load
)


@dataclass(frozen=True, slots=True)
class Seen:
    """The conditions at one moment, and who else computes on the engine's GPUs, in words."""

    conditions: Conditions
    others: str = ""


async def look(target: Target, serving: Serving, workers: frozenset[int] = frozenset()) -> Seen:
    """Return what is seen now, over a login of its own; `workers` are the engine's pids there.

    Takes a target that is not connected. Raises HostUnreachable.
    """
    result = await run_audit(target, (), (IDENTITY, GPUS, GPU_PROCESSES, LOAD))
    facts = Facts(result.evidence)
    gpus, processes = facts[GPUS], facts[GPU_PROCESSES]
    values = {"engine start": str(serving.started or "")}
    values |= {"boot": result.identity.boot_id, "kernel": result.identity.kernel}
    load = facts[LOAD]
    readings = {} if isinstance(load, Unknown) else dict(load)
    if not isinstance(gpus, Unknown):
        values["GPUs"] = str(len(gpus))
        readings |= _gpu_readings(gpus)
    others = "" if isinstance(processes, Unknown) else _others(processes, workers)
    kept = {name: value for name, value in values.items() if value}
    return Seen(Conditions(kept, _FIXED, readings), others)


def _others(processes: Processes, workers: frozenset[int]) -> str:
    """Return who else computes on the GPUs that the engine uses, or nothing."""
    held = [
        {process.pid for process in found}
        for found in processes.values()
        if not isinstance(found, Unknown)
    ]
    mine = [pids for pids in held if pids & workers]
    others = set().union(*mine) - workers
    if not others:
        return ""
    pids = ", ".join(map(str, sorted(others)[:4]))
    return f"other processes compute on its GPUs (pid {pids})"


def running(metrics: str) -> int | None:
    """Return how many requests an engine says that it is answering, or None where it does not."""
    counts: Mapping[str, float] = totals(metrics)
    found = [counts[name] for name in _RUNNING if name in counts]
    return round(max(found)) if found else None


def _gpu_readings(gpus: tuple[Gpu, ...]) -> dict[str, str]:
    """Return the range over the GPUs of what moves."""
    rows = {
        "SM clock": ([gpu.clocks.sm for gpu in gpus], "MHz"),
        "temperature": ([gpu.temperature.gpu for gpu in gpus], "°C"),
        "power": ([gpu.power.draw for gpu in gpus], "W"),
    }
    return {name: text for name, (values, unit) in rows.items() if (text := _range(values, unit))}


def _range(values: list[Any], unit: str) -> str:
    known = [value for value in values if not isinstance(value, Unknown)]
    if not known:
        return ""
    low, high = min(known), max(known)
    return f"{low:g} {unit}" if low == high else f"{low:g} to {high:g} {unit}"
