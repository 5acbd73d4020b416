"""Panel 10, what the server was started in: its environment."""

from collections.abc import Mapping

from gpudoctor.checks.runtime_servers import env_of, flags_of, per_server
from gpudoctor.checks.server_unit import set_in_unit, unset_in_unit
from gpudoctor.formats.engines import Engine
from gpudoctor.formats.serving import Server
from gpudoctor.model import (
    Class,
    Impact,
    Needs,
    Unknown,
    Verdict,
    Worked,
    check,
    good,
    info,
    issue,
)
from gpudoctor.probes.cpu import CPUS_ONLINE
from gpudoctor.probes.nccl import ranks_of
from gpudoctor.probes.pci import GPU_FUNCTIONS, PciFunction
from gpudoctor.probes.serving import SERVERS

_RESTART = Needs.SERVER_RESTART
_OFF = {"", "0", "false", "off", "no"}
_AT_EXEC = " The environment is the one at exec; the engine may change it later."


def _restart(name: str) -> str:
    return f"Change {name} in the server's environment and restart it."


@check(
    "rt-cuda-visible-devices",
    "CUDA_VISIBLE_DEVICES",
    reads=(SERVERS,),
    optional=(GPU_FUNCTIONS,),
    why="It maps ranks to GPUs. The engines' custom all-reduce reads each item as a number: UUIDs "
    "raise ValueError. With mixed models CUDA orders GPUs by speed unless "
    "CUDA_DEVICE_ORDER=PCI_BUS_ID." + _AT_EXEC,
    source="sglang and vllm custom_all_reduce.py; CUDA C++ programming guide (environment)",
    scope="server",
    changes=(Worked,),
)
def cuda_visible_devices(
    servers: tuple[Server, ...], gpus: tuple[PciFunction, ...] | Unknown
) -> list[Verdict]:
    """Judge the form of the list, and its order where GPU models differ."""
    models = 1 if isinstance(gpus, Unknown) else len({gpu.device for gpu in gpus})
    return per_server(servers, lambda s: _visible(s, models), lambda s: s)


def _visible(server: Server, models: int) -> Verdict:
    env = env_of(server)
    if isinstance(env, Verdict):
        return env
    names = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    observed = ", ".join(f"{n}={env[n]}" for n in names if n in env) or "unset"
    text = env.get("CUDA_VISIBLE_DEVICES")
    items = [item.strip() for item in (text or "").split(",")]
    ranks = ranks_of(flags_of(server))
    if text is not None and ranks > 1 and any(i.startswith(("GPU-", "MIG-")) for i in items):
        return issue(
            "CUDA_VISIBLE_DEVICES lists UUIDs, which custom all-reduce cannot read",
            Class.P0,
            Impact.MEDIUM,
            observed,
            "numbers, or unset",
            needs=_RESTART,
            remedy=_restart("CUDA_VISIBLE_DEVICES (use numbers)"),
        )
    if models > 1 and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return issue(
            "GPU models differ and CUDA orders them by speed, not by slot",
            Class.P0,
            Impact.LOW,
            observed,
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
            needs=_RESTART,
            remedy=_restart("CUDA_DEVICE_ORDER (set PCI_BUS_ID)"),
            changes=set_in_unit(server, "CUDA_DEVICE_ORDER", "PCI_BUS_ID") if text is None else (),
        )
    if text is None or (all(item.isdigit() for item in items) and len(items) >= ranks):
        return good("Ranks map to GPUs by number", observed)
    return info("CUDA_VISIBLE_DEVICES is set", f"{observed}; {ranks} GPU(s) a replica")


@check(
    "rt-alloc-conf",
    "PyTorch allocator",
    reads=(SERVERS,),
    why="expandable_segments only reduces fragmentation, but its memory cannot be shared by CUDA "
    "IPC: third-party PCIe all-reduce kernels crash with it." + _AT_EXEC,
    source="PyTorch CUDA memory management notes (PYTORCH_CUDA_ALLOC_CONF, PYTORCH_ALLOC_CONF)",
    scope="server",
)
def alloc_conf(servers: tuple[Server, ...]) -> list[Verdict]:
    """Judge the allocator's settings."""
    return per_server(servers, _alloc, lambda s: s)


def _alloc(server: Server) -> Verdict:
    env = env_of(server)
    if isinstance(env, Verdict):
        return env
    name = next((n for n in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF") if n in env), None)
    if name is None:
        return good("The allocator has its defaults", "unset")
    observed = f"{name}={env[name]}"
    options = dict(part.strip().partition(":")[::2] for part in env[name].split(","))
    oneshot = [n for n, v in env.items() if "ONESHOT" in n and v.lower() not in _OFF]
    if options.get("expandable_segments", "").lower() == "true" and oneshot:
        return issue(
            "expandable_segments together with an IPC all-reduce kernel: it crashes",
            Class.P0,
            Impact.HIGH,
            f"{observed}, {', '.join(oneshot)}",
            "one of them off",
            needs=_RESTART,
            remedy=_restart(name),
        )
    split = options.get("max_split_size_mb", "")
    if split.isdigit() and int(split) < 64:
        return issue(
            "max_split_size_mb is tiny: the allocator cannot reuse larger blocks",
            Class.P0,
            Impact.LOW,
            observed,
            "unset",
            needs=_RESTART,
            remedy=_restart(name),
        )
    if options.get("backend") == "cudaMallocAsync":
        return info("cudaMallocAsync: memory of CUDA graphs is handled differently", observed)
    return good("Allocator settings are sound", observed)


@check(
    "rt-omp-threads",
    "OMP_NUM_THREADS",
    reads=(SERVERS, CPUS_ONLINE),
    why="Each rank starts that many CPU threads, by default one a CPU: with many ranks they pile "
    "up in spikes. vLLM sets 1 for its workers itself." + _AT_EXEC,
    source="PyTorch CPU threading notes; vllm-project/vllm multiprocessing executor",
    scope="server",
    changes=(Worked,),
)
def omp_threads(servers: tuple[Server, ...], cpus: frozenset[int]) -> list[Verdict]:
    """Judge threads a rank against CPUs a rank."""
    return per_server(servers, lambda s: _omp(s, len(cpus)), lambda s: s)


def _omp(server: Server, cpus: int) -> Verdict:
    env = env_of(server)
    if isinstance(env, Verdict):
        return env
    text, ranks = env.get("OMP_NUM_THREADS"), ranks_of(flags_of(server))
    observed = f"{text or 'unset'}; {cpus} CPUs, {ranks} rank(s)"
    wanted = "1 to 16"
    if text is not None and not text.isdigit():
        return info("OMP_NUM_THREADS is no plain number", observed, wanted)
    if text is None:
        if server.engine is Engine.VLLM or cpus < 128 or ranks < 8:
            return good("Unset, without many ranks on many CPUs", observed)
        impact, summary = Impact.LOW, "Unset: every rank may start a thread for each CPU"
    elif int(text) <= 16:
        return good("Few CPU threads a rank", observed, wanted)
    elif int(text) * ranks <= cpus:
        return info("More CPU threads a rank than are of use", observed, wanted)
    else:
        impact, summary = Impact.MEDIUM, "The ranks start more CPU threads than there are CPUs"
    remedy = _restart("OMP_NUM_THREADS (set 8)")
    return issue(
        summary,
        Class.P0,
        impact,
        observed,
        wanted,
        needs=_RESTART,
        remedy=remedy,
        changes=set_in_unit(server, "OMP_NUM_THREADS", "8"),
    )


_DEBUG: dict[str, tuple[set[str] | None, Impact]] = {
    "CUDA_LAUNCH_BLOCKING": (None, Impact.HIGH),
    "VLLM_TRACE_FUNCTION": (None, Impact.HIGH),
    "NCCL_DEBUG": ({"info", "trace"}, Impact.LOW),
    "TORCH_DISTRIBUTED_DEBUG": ({"detail"}, Impact.LOW),
    "VLLM_LOGGING_LEVEL": ({"debug"}, Impact.LOW),
    "CUDA_DEVICE_WAITS_ON_EXCEPTION": (None, Impact.LOW),
    "TORCH_SHOW_CPP_STACKTRACES": (None, Impact.LOW),
    "NVIDIA_TF32_OVERRIDE": (None, Impact.LOW),
}


@check(
    "rt-debug-env",
    "Debugging variables",
    reads=(SERVERS,),
    why="CUDA_LAUNCH_BLOCKING and VLLM_TRACE_FUNCTION serialise every launch; the others cost "
    "logging. vLLM's guide says to unset them after debugging." + _AT_EXEC,
    source="docs.vllm.ai usage/troubleshooting; CUDA C++ programming guide (environment)",
    scope="server",
    changes=(Worked,),
)
def debug_env(servers: tuple[Server, ...]) -> list[Verdict]:
    """Judge what was left on."""
    return per_server(servers, _debug, lambda s: s)


def _debug(server: Server) -> Verdict:
    env = env_of(server)
    if isinstance(env, Verdict):
        return env
    left = {name: impact for name, (_, impact) in _DEBUG.items() if _is_on(env, name)}
    if not left:
        return good("No debugging variable is on")
    return issue(
        "Debugging variables are on",
        Class.P0,
        min(left.values(), key=lambda impact: impact.rank),
        ", ".join(f"{name}={env[name]}" for name in left),
        "unset",
        needs=_RESTART,
        remedy=f"Unset {', '.join(left)} in the server's environment and restart it.",
        changes=unset_in_unit(server, left),
    )


def _is_on(env: Mapping[str, str], name: str) -> bool:
    values, value = _DEBUG[name][0], env.get(name, "").strip().lower()
    return value in values if values is not None else value not in _OFF
