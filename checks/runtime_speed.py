"""Panel 10, what decides decode speed: CUDA graphs, ranks over sockets, and the speed itself."""

import json
from collections.abc import Mapping

from gpudoctor.checks.runtime_servers import flags_of, per_server
from gpudoctor.formats.engines import Engine
from gpudoctor.formats.launch_flags import Flags
from gpudoctor.formats.serving import Server
from gpudoctor.formats.topo import Topology
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
from gpudoctor.probes.nccl import TOPOLOGY, ranks_of
from gpudoctor.probes.pci import GPU_FUNCTIONS, PciFunction
from gpudoctor.probes.server_metrics import DECODE_SPEED, DecodeSpeed
from gpudoctor.probes.serving import SERVERS
from gpudoctor.tables.software import DecodeReference, decode_reference

_RESTART = Needs.SERVER_RESTART


@check(
    "rt-cuda-graph",
    "CUDA graphs",
    reads=(SERVERS,),
    why="Without CUDA graphs every kernel of every layer is launched by the CPU. On eight RTX PRO "
    "6000, making graphs work raised one stream from 4.36 to 10.26 tok/s. Flags tell what was "
    "asked for; the engine's log (`cuda graph: True`) tells what each batch used.",
    source="sgl-project/sglang issue 24047; docs.vllm.ai design/debug_vllm_compile",
    scope="server",
)
def cuda_graph(servers: tuple[Server, ...]) -> list[Verdict]:
    """Judge the flags that turn graphs off or cap their batch size."""
    return per_server(servers, _graph, lambda s: s)


def _graph(server: Server) -> Verdict:
    flags = flags_of(server)
    if server.engine not in {Engine.SGLANG, Engine.VLLM}:
        return info(f"{server.engine} has no flags for CUDA graphs that are judged here")
    off = _graphs_off(server.engine, flags)
    if off:
        return issue(
            "CUDA graphs are turned off",
            Class.P0,
            Impact.HIGH,
            off,
            "on",
            needs=_RESTART,
            remedy=f"Start the server without {off}.",
        )
    if flags.get("config") is not None:
        return info("No flag turns CUDA graphs off; the --config file was not read")
    largest = flags.number("cuda-graph-max-bs", "max-cudagraph-capture-size")
    running = flags.number("max-running-requests", "max-num-seqs")
    if largest and running and largest < running:
        return issue(
            "Batches larger than the largest CUDA graph run without one",
            Class.P0,
            Impact.MEDIUM,
            f"graphs up to {largest}, requests up to {running}",
            f"graphs up to {running}",
            needs=_RESTART,
            remedy="Raise the CUDA graph batch size, or lower the number of running requests.",
        )
    return good("CUDA graphs are not turned off", "on by default")


def _graphs_off(engine: Engine, flags: Flags) -> str:
    """Return the flag that turns graphs off, or an empty string."""
    if engine is Engine.SGLANG:
        return "--disable-cuda-graph" if flags.on("disable-cuda-graph") else ""
    if flags.on("enforce-eager"):
        return "--enforce-eager"
    if "O0" in flags.values or flags.get("O", "optimization-level") == "0":
        return "-O0"
    config = flags.get("compilation-config", "cc") or ""
    if config == "0" or _mode(config) == "NONE":
        return f"--compilation-config {config}"
    nested = flags.get("compilation-config.cudagraph-mode", "cc.cudagraph-mode") or ""
    return "cudagraph_mode NONE" if nested.upper() == "NONE" else ""


def _mode(config: str) -> str:
    try:
        data = json.loads(config)
    except json.JSONDecodeError:
        return ""
    return str(data.get("cudagraph_mode", "")).upper() if isinstance(data, dict) else ""


@check(
    "rt-tp-topology",
    "Ranks over sockets",
    reads=(SERVERS, TOPOLOGY),
    why="An all-reduce that crosses sockets takes two to three times as long (13 against 25-48 "
    "\u00b5s for small messages).",
    source="community measurements (voipmonitor/rtx6kpro); nvidia-smi topo -m",
    scope="server",
)
def tp_topology(servers: tuple[Server, ...], topology: Topology) -> list[Verdict]:
    """Judge whether a server that fits one NUMA node is spread over several."""
    return per_server(servers, lambda s: _spread(s, topology), lambda s: s)


def _spread(server: Server, topology: Topology) -> Verdict:
    ranks, total = ranks_of(flags_of(server)), len(topology.gpus)
    observed = f"{ranks} of {total} GPUs a replica"
    if ranks < 2 or ranks == total:
        return good("One GPU, or all of them", observed)
    nodes = {gpu: node for gpu, node in topology.numa.items() if node.isdigit()}
    env: Mapping[str, str] = {} if isinstance(server.env, Unknown) else server.env
    listed = [item.strip() for item in env.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if len(nodes) < total or not all(item.isdigit() for item in listed):
        return info("Which GPUs the ranks take is not certain", observed)
    used = {nodes.get(f"GPU{item}", "") for item in listed[:ranks]}
    roomy = [node for node in set(nodes.values()) if list(nodes.values()).count(node) >= ranks]
    if len(used) > 1 and roomy:
        return issue(
            "The ranks span sockets although one socket has enough GPUs",
            Class.P0,
            Impact.MEDIUM,
            f"{observed}, NUMA nodes {', '.join(sorted(used))}",
            f"GPUs of NUMA node {min(roomy)}",
            needs=_RESTART,
            remedy="Set CUDA_VISIBLE_DEVICES to GPUs of one NUMA node and restart the server.",
        )
    return good("The ranks stay together as far as they can", observed)


@check(
    "rt-baseline",
    "Decode speed of one stream",
    reads=(SERVERS, DECODE_SPEED),
    optional=(GPU_FUNCTIONS,),
    why="Shown to set expectations, not judged: kernels, CUDA graphs, NCCL's transport and "
    "speculative decoding make the multiples; settings of the system make single per cents.",
    source="the engine's own metrics",
    scope="server",
)
def baseline(
    servers: tuple[Server, ...], speed: DecodeSpeed, gpus: tuple[PciFunction, ...] | Unknown
) -> Verdict:
    """Set the engine's own number beside what is known for the same model and GPUs."""
    if speed.running != 1:
        return unknown(
            Reason.NEEDS_LOAD,
            f"{speed.running} requests run: the speed of one stream needs exactly one",
        )
    if speed.rate <= 0:
        return unknown(Reason.NEEDS_LOAD, "the engine has not reported a decode speed yet")
    devices = set() if isinstance(gpus, Unknown) else {gpu.device for gpu in gpus}
    server = servers[0]
    known = decode_reference(model_of(server), devices, ranks_of(flags_of(server)))
    observed = f"{speed.rate:.2f} tok/s"
    if speed.tpot is not None:
        observed += f", TPOT {speed.tpot:.2f} ms (mean since start)"
    if known is None:
        return info("One stream's speed; no reference for this model on these GPUs", observed)
    return _compared(speed.rate, observed, known, _speculates(server))


def _speculates(server: Server) -> bool:
    flags = flags_of(server)
    names = ("speculative-algorithm", "speculative-algo", "speculative-config")
    return flags.get(*names) is not None


def _compared(rate: float, observed: str, known: DecodeReference, spec: bool) -> Verdict:
    low, high = known.peers_spec if spec else known.peers
    middle = (low + high) / 2
    return info(
        "One stream decodes far from what others reach on the same GPUs"
        if rate < low / 2
        else "One stream decodes about as fast as others reach on the same GPUs",
        f"{observed}: {100 * rate / middle:.0f} % of what others measured ({low}-{high}), "
        f"{100 * rate / known.roofline:.1f} % of the roofline {known.roofline}, "
        f"{100 * rate / known.alternative:.1f} % of {known.alternative} "
        f"{known.alternative_assumes}",
        f"{low}-{high} tok/s ({known.source})",
        why=f"The roofline assumes {known.assumes}; nobody reaches it. Compare with what others "
        "measured: kernels, CUDA graphs, NCCL's transport and speculative decoding make the "
        "multiples; settings of the system make single per cents.",
    )
