"""Panel 4: what the running kernel does with CPUs and memory, and can be told to do otherwise."""

from gpudoctor.model import (
    Class,
    Files,
    Impact,
    Reader,
    Sysctl,
    Verdict,
    check,
    good,
    info,
    issue,
)
from gpudoctor.probes.kernel import NUMA_NODES

_BALANCING = "/proc/sys/kernel/numa_balancing"
NUMA_BALANCING: Reader[int] = Reader(
    "numa-balancing",
    (Files("numa-balancing", (_BALANCING,)),),
    lambda evidence: int(evidence.get(_BALANCING)),
)


@check(
    "kern-numa-balancing",
    "Automatic NUMA balancing",
    reads=(NUMA_BALANCING, NUMA_NODES),
    why="The kernel unmaps host pages to sample who uses them: minor faults and migrations in the "
    "loading and streaming paths (stalls of 16-31 ms were seen). A running decode loop gains "
    "little: GPU memory and pinned pages are never migrated.",
    source="kernel.org admin-guide/sysctl/kernel.rst (numa_balancing); tuned network-latency",
)
def numa_balancing(mode: int, nodes: int) -> Verdict:
    """Judge the bit mask: 1 normal, 2 memory tiering."""
    if mode == 0 or nodes < 2:
        return good(
            "Automatic NUMA balancing is off" if mode == 0 else "One NUMA node: nothing to balance",
            observed=f"{mode}, {nodes} node(s)",
            expected="0",
        )
    if not mode & 1:
        return info("NUMA balancing only tiers memory", observed=str(mode), expected="0")
    return issue(
        "Automatic NUMA balancing is on",
        Class.P0,
        Impact.LOW,
        observed=f"{mode} on {nodes} nodes",
        expected="0",
        changes=((Sysctl("kernel.numa_balancing", "0"),),),
    )
