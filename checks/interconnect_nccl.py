"""Panel 9, the part that servers decide: NCCL's cutoff, settings, version and hang risks."""

import re
from collections import Counter

from gpudoctor.checks.interconnect_peers import Peers, gpus_of, hazard_of, peers_of, unread
from gpudoctor.checks.runtime_servers import flags_of, per_server
from gpudoctor.checks.server_unit import set_in_unit, unset_in_unit
from gpudoctor.formats.cpuinfo import Cpu
from gpudoctor.formats.engines import Engine
from gpudoctor.formats.topo import Topology
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
    non_issue,
    per_target,
)
from gpudoctor.probes.cpu import CPU
from gpudoctor.probes.gpu_paths import GPU_GROUPS, GPU_PATHS, GpuPath, IommuGroup
from gpudoctor.probes.nccl import (
    NCCL_JOBS,
    NCCL_VERSIONS,
    P2P_STATES,
    TOPOLOGY,
    NcclJob,
)
from gpudoctor.probes.pci import GPU_FUNCTIONS, PciFunction
from gpudoctor.tables.drivers import arch_of
from gpudoctor.tables.software import at_least

_RESTART = Needs.SERVER_RESTART
_AFTER_EXEC = (
    " The environment is the one at exec: SGLang itself sets NCCL_CUMEM_ENABLE, NCCL_NVLS_ENABLE "
    "and CUDA_DEVICE_MAX_CONNECTIONS later, which /proc does not show."
)


@check(
    "nccl-p2p-level",
    "NCCL's peer-to-peer cutoff",
    reads=(NCCL_JOBS, TOPOLOGY, CPU),
    optional=(P2P_STATES, GPU_GROUPS, GPU_PATHS),
    why="By default NCCL uses P2P only within PCIe switches (PXB); on AMD anywhere, but only for "
    "up to two GPUs. GPUs farther apart exchange data through host memory (SHM). A measurement "
    "on four GPUs of one EPYC socket found 24-42 % less bus bandwidth that way; for the tiny "
    "messages of decode the gain is latency. With many concurrent requests P2P can be slower: "
    "measure both." + _AFTER_EXEC,
    source="NVIDIA/nccl src/graph/paths.cc; NVIDIA/nccl pull request 2080, issue 1829",
    scope="server",
    changes=(Worked,),
)
def p2p_level(
    jobs: tuple[NcclJob, ...],
    topology: Topology,
    cpu: Cpu,
    states: dict[tuple[str, str], str] | Unknown,
    groups: dict[str, IommuGroup | None] | Unknown,
    paths: tuple[GpuPath, ...] | Unknown,
) -> list[Verdict]:
    """Judge each server's pairs against the cutoff that is in force."""
    first = _first(groups if isinstance(groups, Unknown) else hazard_of(groups, paths))
    known = {} if isinstance(states, Unknown) else states
    refused = {pair for pair, state in known.items() if state not in {"OK", "U"}}
    return per_server(
        jobs, lambda job: _level(job, topology, cpu, refused, first), lambda job: job.server
    )


_SAFE = "As nothing redirects peer-to-peer traffic here"


def _first(hazard: str | Unknown) -> str:
    """Return what must be so before P2P is switched on, as the beginning of a sentence."""
    if isinstance(hazard, Unknown):
        return (
            "Once it is certain that nothing redirects peer-to-peer traffic (nccl-p2p-hang-risk "
            "could not tell here)"
        )
    if hazard:
        return (
            f"Not yet: {hazard}, and P2P may hang on that (see nccl-p2p-hang-risk for the cure); "
            "once that is gone"
        )
    return _SAFE


def _level(
    job: NcclJob, topology: Topology, cpu: Cpu, refused: set[tuple[str, str]], first: str
) -> Verdict:
    peers = peers_of(job, topology, cpu)
    if isinstance(peers, Unknown):
        return unread(peers)
    if job.ranks < 2 or not peers.links:
        return info("The server runs on one GPU: no P2P", f"{job.ranks} GPU(s) a replica")
    beyond, pairs = Counter(peers.beyond.values()), len(peers.links)
    cutoff = f"cutoff {peers.level} ({'set' if peers.pinned else 'default, NCCL_P2P_* unset'})"
    if refused.issuperset(peers.beyond or peers.links):
        return info(
            "The driver permits no P2P between these GPUs, so NCCL's cutoff does not matter",
            f"{cutoff}; {len(peers.beyond or peers.links)} of {pairs} pairs refused by the driver",
            why="NCCL exchanges data through host memory here whatever NCCL_P2P_LEVEL says: the "
            "driver itself refuses P2P for these pairs (see nccl-p2p-capability).",
        )
    if not beyond:
        return good("NCCL may use P2P between all GPUs of the server", f"{cutoff}, {pairs} pairs")
    kinds = ", ".join(f"{n} {kind}" for kind, n in beyond.items())
    return _beyond(job, peers, f"{cutoff}; without P2P: {kinds} of {pairs} pairs", first)


def _beyond(job: NcclJob, peers: Peers, observed: str, first: str) -> Verdict:
    """Judge GPUs that NCCL lets exchange data through host memory only."""
    beyond = set(peers.beyond.values())
    wanted = "SYS" if "SYS" in beyond else "PHB"
    if job.get("NCCL_P2P_DISABLE") == "1":
        fast = any(link.startswith("NV") for link in beyond)
        return issue(
            "NCCL_P2P_DISABLE=1 sends all GPU-to-GPU traffic through host memory",
            Class.P0,
            Impact.HIGH if fast else Impact.LOW,
            observed,
            "unset, unless many concurrent requests were measured to be faster so",
            needs=_RESTART,
            remedy=f"{first}, unset NCCL_P2P_DISABLE in the server's environment, restart it and "
            "measure both ways. Undo: set it again.",
            changes=unset_in_unit(job.server, ["NCCL_P2P_DISABLE"]) if first == _SAFE else (),
        )
    return issue(
        "NCCL sends GPU-to-GPU traffic through host memory: the GPUs are beyond its P2P cutoff",
        Class.P0,
        Impact.MEDIUM,
        observed,
        f"NCCL_P2P_LEVEL={wanted}",
        needs=_RESTART,
        remedy=f"{first}, start the server with NCCL_P2P_LEVEL={wanted}; "
        "check once with NCCL_DEBUG=INFO for `via P2P/`. Undo: unset it.",
        changes=set_in_unit(job.server, "NCCL_P2P_LEVEL", wanted)
        if first == _SAFE and not peers.pinned
        else (),
    )


_TUNING = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_NTHREADS", "NCCL_BUFFSIZE", "NCCL_MIN_NCHANNELS",
           "NCCL_MAX_NCHANNELS", "NCCL_GRAPH_FILE", "NCCL_TOPO_FILE")  # fmt: skip


@check(
    "nccl-env",
    "NCCL settings",
    reads=(NCCL_JOBS, TOPOLOGY, CPU),
    why="NVIDIA advises against leaving tuning and debugging variables in production."
    + _AFTER_EXEC,
    source="NVIDIA NCCL user guide, environment variables",
    scope="server",
    changes=(Worked,),
)
def nccl_env(jobs: tuple[NcclJob, ...], topology: Topology, cpu: Cpu) -> list[Verdict]:
    """Judge each server's NCCL_ variables and nccl.conf files."""
    return per_server(jobs, lambda job: _env(job, topology, cpu), lambda job: job.server)


def _env(job: NcclJob, topology: Topology, cpu: Cpu) -> Verdict:
    peers = peers_of(job, topology, cpu)
    if isinstance(peers, Unknown):
        return unread(peers)
    settings = peers.settings
    observed = ", ".join(f"{k}={v}" for k, v in sorted(settings.items())) or "no NCCL_ variable"
    faults = _faults(settings, peers)
    if faults:
        impact, said = min(faults, key=lambda fault: fault[0].rank)
        names = [re.split("[= ]", text)[0] for _, text in faults]
        return issue(
            said,
            Class.P0,
            impact,
            observed,
            "unset",
            needs=_RESTART,
            remedy=f"Remove {', '.join(names)} from the server's environment (or its nccl.conf) "
            "and restart it. Undo: set it again.",
            changes=unset_in_unit(job.server, names),
        )
    tuned = [name for name in _TUNING if name in settings]
    if tuned:
        return info("NCCL tuning is pinned: test it again after each upgrade", observed)
    return good("No NCCL setting that hurts", observed)


def _faults(settings: dict[str, str], peers: Peers) -> list[tuple[Impact, str]]:
    """Return what hurts, as (impact, words)."""
    found = []
    if settings.get("NCCL_SHM_DISABLE") == "1" and peers.beyond:
        found.append((Impact.HIGH, "NCCL_SHM_DISABLE=1 while GPUs are beyond the P2P cutoff"))
    protocols = settings.get("NCCL_PROTO", "").upper()
    on_pcie = not any(link.startswith("NV") for link in peers.links.values())
    if "LL128" in protocols and not protocols.startswith("^") and on_pcie:
        found.append((Impact.MEDIUM, "NCCL_PROTO forces LL128 on PCIe, which can corrupt data"))
    if settings.get("NCCL_DEBUG", "").upper() == "TRACE":
        found.append((Impact.LOW, "NCCL_DEBUG=TRACE"))
    if settings.get("NCCL_CHECK_POINTERS") == "1":
        found.append((Impact.LOW, "NCCL_CHECK_POINTERS=1"))
    return found


@check(
    "nccl-version",
    "NCCL version",
    reads=(NCCL_VERSIONS, GPU_FUNCTIONS),
    why="NCCL supports Blackwell from 2.25 on; 2.26.5 fixed falling back from cuMem buffers.",
    source="NVIDIA NCCL release notes; /proc/PID/maps; dist-info of nvidia-nccl",
    scope="server",
)
def nccl_version(versions: dict[int, str], gpus: tuple[PciFunction, ...]) -> list[Verdict]:
    """Judge the mapped library of each server."""
    archs = [arch_of(gpu.device) for gpu in gpus]
    blackwell = any(arch is not None and arch.sm >= 100 for arch in archs)
    judged = [(f"pid {pid}", _nccl(version, blackwell)) for pid, version in versions.items()]
    return [judged[0][1]] if len(judged) == 1 else per_target(judged)


def _nccl(version: str, blackwell: bool) -> Verdict:
    if at_least(version, "2.26.5"):
        return good("NCCL is recent enough", version, "2.26.5 or newer")
    if blackwell and not at_least(version, "2.25"):
        return issue(
            "NCCL is older than its Blackwell support",
            Class.P0,
            Impact.HIGH,
            version,
            "2.26.5 or newer",
            needs=_RESTART,
            remedy="Upgrade the nvidia-nccl wheel of the server's environment and restart it.",
        )
    return info("NCCL is older than 2.26.5", version, "2.26.5 or newer")


_FLAG = "disable-custom-all-reduce"


@check(
    "nccl-custom-allreduce",
    "Custom all-reduce",
    reads=(NCCL_JOBS, TOPOLOGY),
    why="SGLang and vLLM use their own all-reduce kernels for 2, 4, 6 or 8 GPUs of one node that "
    "are all joined by NVLink, or for exactly two PCIe GPUs with working P2P.",
    source="sgl-project/sglang and vllm-project/vllm, device_communicators/custom_all_reduce.py",
    scope="server",
)
def custom_allreduce(jobs: tuple[NcclJob, ...], topology: Topology) -> list[Verdict]:
    """Judge whether the engine's own all-reduce can run, and is let."""
    return per_server(jobs, lambda job: _allreduce(job, topology), lambda job: job.server)


def _allreduce(job: NcclJob, topology: Topology) -> Verdict:
    used = gpus_of(job, topology)
    links = {link for pair, link in topology.pairs().items() if set(pair) <= used}
    observed = f"{job.ranks} GPUs, links {', '.join(sorted(links)) or 'none'}"
    if job.server.engine not in {Engine.SGLANG, Engine.VLLM} or job.ranks < 2:
        return info("Custom all-reduce does not apply to this server", observed)
    off = flags_of(job.server).on(_FLAG)
    if job.ranks > 2 and not all(link.startswith("NV") for link in links):
        return non_issue(
            "Custom all-reduce is off, as it should be on more than two PCIe GPUs",
            observed,
            why="Stock engines refuse it on more than two GPUs without a full NVLink mesh: the "
            "log line is expected. Third-party PCIe kernels exist; the engines' own do not run "
            "here.",
        )
    if job.ranks not in {2, 4, 6, 8} or len(used) < job.ranks:
        return info("Custom all-reduce needs 2, 4, 6 or 8 GPUs of one node", observed)
    if not off:
        return good("Custom all-reduce may run", observed)
    if all(link.startswith("NV") for link in links):
        return issue(
            "A flag turns custom all-reduce off although NVLink joins all GPUs",
            Class.P0,
            Impact.MEDIUM,
            f"{observed}, --{_FLAG}",
            f"no --{_FLAG}",
            needs=_RESTART,
            remedy=f"Start the server without --{_FLAG}.",
        )
    return info("A flag turns custom all-reduce off", f"{observed}, --{_FLAG}")
