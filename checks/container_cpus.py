"""The container's CPUs: how many, at what quota, and of which NUMA nodes."""

from gpudoctor.checks.container_changes import no_quota
from gpudoctor.formats.cpulist import format_cpulist
from gpudoctor.model import (
    CgroupLimit,
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
from gpudoctor.probes.container import (
    CONTAINER_CONF,
    CONTAINER_GPU_NODES,
    CONTAINER_GROUPS,
    ContainerConf,
    Group,
    Nodes,
    gpu_minors,
)
from gpudoctor.probes.container_gpu import CONTAINER_GPU_PLACES
from gpudoctor.probes.kernel import NODE_CPUS


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
