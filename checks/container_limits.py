"""The container's limits: locked memory, memory, CPUs and NUMA nodes."""

import re

from gpudoctor.checks.container_changes import lock_all, more_memory, no_quota, raised_memlock
from gpudoctor.checks.container_conf import unlimited_memlock
from gpudoctor.formats.cpulist import format_cpulist
from gpudoctor.formats.serving import Server
from gpudoctor.model import (
    CgroupLimit,
    Class,
    Evidence,
    Impact,
    Listing,
    Needs,
    ProcessLimit,
    Reader,
    Reason,
    Unknown,
    Verdict,
    Worked,
    check,
    good,
    info,
    issue,
    non_issue,
    not_read,
    unknown,
)
from gpudoctor.probes.container import (
    CONTAINER_CONF,
    CONTAINER_GPU_NODES,
    CONTAINER_GROUPS,
    CONTAINER_INIT,
    ContainerConf,
    Group,
    Init,
    Nodes,
    gpu_minors,
)
from gpudoctor.probes.container_gpu import CONTAINER_GPU_PLACES
from gpudoctor.probes.kernel import HOST_MEMORY, NODE_CPUS
from gpudoctor.probes.served import PARENTS, SERVERS_HERE, Parents

_GIB = 1 << 30
_LIMIT = re.compile(r"(?:\d+|unlimited)(?::(?:\d+|unlimited))?")
_ENOUGH_LOCKED = 8 * _GIB

HAS_RDMA: Reader[bool] = Reader(
    "has-rdma",
    (Listing("rdma-devices", ("/sys/class/infiniband/*",)),),
    Evidence.present,
    tolerant=True,
)


@check(
    "lxc-memlock",
    "Locked memory limit (RLIMIT_MEMLOCK)",
    reads=(),
    optional=(CONTAINER_INIT, HAS_RDMA, CONTAINER_CONF, SERVERS_HERE, PARENTS),
    why="A widespread reading says that CUDA pinned memory is charged to this limit. It is not: "
    "NVIDIA's module pins pages without any test of it. RDMA registration, mlock() and io_uring "
    "buffers are. The odd value is systemd's: it raises its own limit to an eighth of the memory, "
    "and containers inherit that. Services inside may have their own limit.",
    source="NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/os-mlock.c; systemd src/core/main.c "
    "(bump_rlimit_memlock); NCCL troubleshooting guide",
    scope="container",
    changes=(ProcessLimit, Worked),
)
def memlock(
    init: Init | Unknown,
    rdma: bool | Unknown,
    conf: ContainerConf | Unknown,
    servers: tuple[Server, ...] | Unknown,
    parents: Parents | Unknown,
) -> Verdict:
    """Judge the limit of the container's first process by whether RDMA is there."""
    if isinstance(init, Unknown):
        return _asked_memlock(init, conf)
    if isinstance(init.limits, Unknown):
        return not_read(init.limits)
    soft = init.limits["Max locked memory"].soft
    if soft is None:
        return good("Locked memory is unlimited in the container", "unlimited", "unlimited")
    if lock_all(servers):
        seen = f"unlimited for the servers; {soft} bytes for the first process"
        return good("Locked memory is unlimited for the servers", seen, "unlimited")
    if isinstance(rdma, Unknown):
        return not_read(rdma)
    seen = f"{soft} bytes ({soft / _GIB:.3g} GiB), {'RDMA' if rdma else 'no RDMA'} devices"
    raised = raised_memlock(servers, parents)
    changes = (*raised, *unlimited_memlock(conf))
    live = "" if raised else "Live, from the host: prlimit --pid PID --memlock=unlimited. "
    remedy = (
        f"{live}To last: lxc.prlimit.memlock: unlimited (above the first [ of the conf), docker "
        "--ulimit memlock=-1, or LimitMEMLOCK=infinity of the service inside."
    )
    if rdma:
        return issue(
            "RDMA is present, and locked memory is limited",
            Class.P0,
            Impact.MEDIUM,
            seen,
            "unlimited",
            why="Registering memory with an RDMA device counts against this limit and fails at it "
            "(ibv_reg_mr). CUDA's own pinned memory does not count.",
            remedy=remedy,
            changes=changes,
        )
    if soft >= _ENOUGH_LOCKED:
        return non_issue("Locked memory is limited, and nothing here is charged to it", seen)
    return issue(
        "Little locked memory is allowed",
        Class.P2,
        Impact.LOW,
        seen,
        "8 GiB or more, or unlimited",
        remedy=remedy,
        changes=changes,
    )


def _asked_memlock(why: Unknown, conf: ContainerConf | Unknown) -> Verdict:
    """Say what the configuration asks for, where the limit in force could not be read."""
    if isinstance(conf, Unknown):
        return not_read(why)
    asked = conf.conf.last("lxc.prlimit.memlock")
    refused = next((line for line in conf.conf.refused if "prlimit.memlock" in line), None)
    if asked is None and refused is None:
        return unknown(why.reason, "no lxc.prlimit.memlock is set; the limit in force is not known")
    seen = f"{conf.path}: {refused or asked}"
    if asked is None or not _LIMIT.fullmatch(asked):
        return issue(
            "The configuration's memlock limit is no value that LXC takes",
            Class.P0,
            Impact.LOW,
            seen,
            "a number of bytes, or unlimited",
            needs=Needs.CONTAINER_RESTART,
            why="LXC takes `soft:hard` or one value, each a number or the word unlimited; -1 is "
            "Docker's spelling. A line that is not understood sets nothing.",
            remedy="Write `lxc.prlimit.memlock: unlimited` above the first [ of the file, then "
            "restart the container; undo: the old line.",
            changes=unlimited_memlock(conf),
        )
    return info("What the configuration asks of locked memory", seen)


@check(
    "lxc-memory-limit",
    "Memory limit of the container",
    reads=(CONTAINER_GROUPS,),
    optional=(HOST_MEMORY,),
    why="At memory.high the kernel slows the container down, at memory.max it kills. Page cache "
    "counts: loading hundreds of GB of weights runs into it; steady decode does not.",
    source="kernel.org admin-guide/cgroup-v2.rst; proxmox/pve-container (memory.high)",
    scope="container",
    changes=(CgroupLimit,),
)
def memory_limit(groups: tuple[Group, ...], memory: dict[str, int] | Unknown) -> Verdict:
    """Judge the tightest limit, what hit it, and how near it is."""
    limits = [g.memory_max for g in groups if g.memory_max is not None]
    highs = [g.memory_high for g in groups if g.memory_high is not None]
    events = {name: max(_event(g, name) for g in groups) for name in ("high", "oom", "oom_kill")}
    now = max(g.memory_now for g in groups)
    if not any(g.has_memory for g in groups):
        return unknown(Reason.NOT_PRESENT, "no memory counters in the container's cgroup")
    hits = ", ".join(f"{name} {count}" for name, count in events.items())
    bounds = f"max {_size(limits)}, high {_size(highs)}, in use {now / _GIB:.1f} GiB"
    seen, wanted = f"{bounds}; since its start: {hits}", "no limit hit"
    changes = more_memory(groups, memory)
    remedy = "On Proxmox: pct set ID --memory MiB (live, and lasts); docker update --memory."
    if any(events.values()):
        return issue(
            "The container has hit its memory limit since it started",
            Class.P0,
            Impact.HIGH,
            seen,
            wanted,
            remedy=f"{remedy} The hits are counted from its start, and stay when it is raised.",
            changes=changes,
        )
    high = min(highs or limits, default=None)
    if high and now > 0.95 * high:
        return issue(
            "The container is close to its memory limit",
            Class.P0,
            Impact.MEDIUM,
            seen,
            "below 95 % of the limit",
            why="Most of it is usually page cache, which is given back; what hurts is loading.",
            remedy=remedy,
            changes=changes,
        )
    return good("The container has not hit a memory limit", seen, wanted)


def _event(group: Group, name: str) -> int:
    return dict(group.events).get(name, 0)


def _size(values: list[int]) -> str:
    return f"{min(values) / _GIB:.1f} GiB" if values else "unlimited"


@check(
    "lxc-cpu-limit",
    "CPU limit of the container",
    reads=(CONTAINER_GROUPS, CONTAINER_GPU_NODES),
    why="Each GPU has one busy thread that polls; throttling it stalls all ranks at the slowest.",
    source="kernel.org admin-guide/cgroup-v2.rst (cpu.max, cpu.stat)",
    scope="container",
    changes=(CgroupLimit,),
)
def cpu_limit(groups: tuple[Group, ...], nodes: Nodes) -> Verdict:
    """Judge quota, throttling since the start, and CPUs against the number of GPUs."""
    gpus = len(gpu_minors(nodes))
    quotas = [g.cpu_quota for g in groups if g.cpu_quota is not None]
    cpus = min((len(g.cpus) for g in groups if g.cpus), default=0)
    if not cpus:
        return unknown(Reason.NOT_PRESENT, "the container's cgroup does not list its CPUs")
    share = max((_throttled(g) for g in groups), default=0.0)
    usable = min([float(cpus), *quotas])
    seen = f"{cpus} CPUs, quota {min(quotas) if quotas else 'none'}, {gpus} GPUs"
    more = "On Proxmox: pct set ID --cpulimit 0, --cores N (live, and last); docker update --cpus."
    changes = no_quota(groups)
    if quotas and share >= 0.01:
        return issue(
            "The container's CPUs have been throttled",
            Class.P0,
            Impact.HIGH,
            f"{seen}; throttled in {share:.1%} of the periods since its start",
            "no throttling",
            remedy=more,
            changes=changes,
        )
    if not gpus:
        return info("No GPU is in the container: its CPUs serve something else", seen)
    if usable < gpus + 4:
        return issue(
            "The container has few CPUs for its GPUs",
            Class.P0,
            Impact.MEDIUM,
            seen,
            f"at least {gpus + 4}",
            remedy=more,
            changes=changes if cpus >= gpus + 4 else (),
        )
    if quotas or usable < 2 * gpus + 8:
        return info("The container's CPUs are bounded", seen, f"{2 * gpus + 8}, no quota")
    return good("The container has CPUs enough", seen, f"{2 * gpus + 8}, no quota")


def _throttled(group: Group) -> float:
    """Return the share of periods since the container's start in which it was throttled."""
    stat = dict(group.cpu_stat)
    return stat.get("nr_throttled", 0) / max(1, stat.get("nr_periods", 0))


@check(
    "lxc-cpuset-numa",
    "CPUs and memory of the GPUs' NUMA nodes",
    reads=(CONTAINER_GROUPS, CONTAINER_GPU_PLACES, NODE_CPUS),
    optional=(CONTAINER_CONF,),
    why="A thread on the other node pays about 100 ns more for each poll and doorbell, and its "
    "copies cross the sockets. Proxmox's cores: hands out CPUs without regard to nodes.",
    source="kernel.org admin-guide/cgroup-v2.rst (cpuset)",
    scope="container",
)
def cpuset_numa(
    groups: tuple[Group, ...],
    places: dict[int, int],
    nodes: dict[int, frozenset[int]],
    conf: ContainerConf | Unknown,
) -> Verdict:
    """Judge whether each node that has one of the container's GPUs is among its CPUs and memory."""
    group = groups[0]
    if not group.cpus or not group.mems:
        return unknown(Reason.NOT_PRESENT, "the container's cgroup lists no CPUs and nodes")
    seen = f"CPUs {format_cpulist(group.cpus)}, memory nodes {format_cpulist(group.mems)}"
    if len(nodes) < 2:
        return good("One NUMA node: nothing to choose", seen)
    told = {node for node in places.values() if node >= 0}
    if not told:
        return unknown(Reason.NOT_PRESENT, "the firmware does not tell the GPUs' NUMA nodes")
    lacking = {n for n in told if n not in group.mems or not nodes.get(n, group.cpus) & group.cpus}
    if not lacking:
        return good("CPUs and memory of every GPU's node are there", seen)
    raw = isinstance(conf, ContainerConf) and bool(conf.conf.all("lxc.cgroup2.cpuset.cpus"))
    return issue(
        "A GPU's NUMA node is not among the container's CPUs or memory",
        Class.P0,
        Impact.MEDIUM,
        f"{seen}; GPUs on nodes {format_cpulist(told)}",
        f"nodes {format_cpulist(told)}",
        needs=Needs.CONTAINER_RESTART if raw else Needs.NOTHING,
        remedy="Give the container CPUs of those nodes: correct lxc.cgroup2.cpuset.cpus and "
        "restart it, or raise cores (pct set ID --cores N, live); docker update --cpuset-cpus.",
    )
