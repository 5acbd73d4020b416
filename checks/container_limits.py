"""The container's limits: locked memory and memory."""

import re

from gpudoctor.checks.container_changes import Options, lock_all, more_memory, raised_memlock
from gpudoctor.checks.container_conf import unlimited_memlock
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
    CONTAINER_GROUPS,
    CONTAINER_INIT,
    ContainerConf,
    Group,
    Init,
)
from gpudoctor.probes.kernel import HOST_MEMORY
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
    raised = raised_memlock(servers, parents)
    live = "" if raised else "Live, from the host: prlimit --pid PID --memlock=unlimited. "
    remedy = (
        f"{live}To last: lxc.prlimit.memlock: unlimited (above the first [ of the conf), docker "
        "--ulimit memlock=-1, or LimitMEMLOCK=infinity of the service inside."
    )
    return _limited_memlock(soft, rdma, remedy, (*raised, *unlimited_memlock(conf)))


def _limited_memlock(soft: int, rdma: bool, remedy: str, changes: Options) -> Verdict:
    """Judge a limit of so many bytes by whether anything is charged to it."""
    seen = f"{soft} bytes ({soft / _GIB:.3g} GiB), {'RDMA' if rdma else 'no RDMA'} devices"
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
