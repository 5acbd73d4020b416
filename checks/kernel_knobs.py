"""Panel 4: what the running kernel does with CPUs and memory, and can be told to do otherwise."""

from collections.abc import Sequence
from typing import NamedTuple

from gpudoctor.checks.kernel_knobs_cpu import boost, governor, preference
from gpudoctor.checks.kernel_knobs_idle import cstate_exit, dma_latency
from gpudoctor.checks.kernel_knobs_memory import (
    dirty,
    max_map_count,
    overcommit,
    swappiness,
    zone_reclaim,
)
from gpudoctor.checks.kernel_knobs_pages import ksm, thp_defrag, thp_enabled
from gpudoctor.checks.kernel_knobs_sched import autogroup, isolation, mitigations, timer_migration
from gpudoctor.model import (
    Class,
    Evidence,
    Files,
    Impact,
    Reader,
    Sysctl,
    Sysfs,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
)
from gpudoctor.probes.kernel import (
    INSIDE_CONTAINER,
    KERNEL_LOG_READ,
    NUMA_NODES,
    KernelLog,
    number_in,
    vouched,
)

__all__ = [
    "autogroup",
    "boost",
    "clocksource",
    "cstate_exit",
    "dirty",
    "dma_latency",
    "governor",
    "isolation",
    "ksm",
    "max_map_count",
    "migration_cost",
    "mitigations",
    "nmi_watchdog",
    "numa_balancing",
    "overcommit",
    "preference",
    "pressure",
    "swappiness",
    "thp_defrag",
    "thp_enabled",
    "timer_migration",
    "zone_reclaim",
]

NUMA_BALANCING = number_in("numa-balancing", "/proc/sys/kernel/numa_balancing")


@check(
    "kern-numa-balancing",
    "Automatic NUMA balancing",
    reads=(NUMA_BALANCING, NUMA_NODES),
    why="The kernel unmaps host pages to sample who uses them: minor faults and migrations in the "
    "loading and streaming paths (stalls of 16-31 ms were seen). A running decode loop gains "
    "little: GPU memory and pinned pages are never migrated.",
    source="kernel.org admin-guide/sysctl/kernel.rst (numa_balancing); tuned network-latency; "
    "deepseek-ai/DeepEP issue 624",
    changes=(Sysctl,),
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


NMI_WATCHDOG = number_in("nmi-watchdog", "/proc/sys/kernel/nmi_watchdog")
_UNSEEN = "Hard lock-ups of a CPU are no longer detected and reported"


@check(
    "kern-nmi-watchdog",
    "NMI watchdog",
    reads=(NMI_WATCHDOG,),
    why="It uses one performance counter of each CPU and interrupts now and then: jitter only. "
    "Without it, hard lock-ups are no longer reported. On is the kernel's default.",
    source="kernel.org admin-guide/sysctl/kernel.rst (nmi_watchdog); tuned profiles",
    changes=(Sysctl,),
)
def nmi_watchdog(value: int) -> Verdict:
    """Judge the switch."""
    if value == 0:
        return good("The NMI watchdog is off", "0", "0")
    return issue(
        "The NMI watchdog is on",
        Class.P0,
        Impact.LOW,
        str(value),
        "0",
        changes=((Sysctl("kernel.nmi_watchdog", "0", caution=_UNSEEN),),),
    )


_COST = "/sys/kernel/debug/sched/migration_cost_ns"
_OLD_COST = "/proc/sys/kernel/sched_migration_cost_ns"
_OLD_COST_KEY = "kernel.sched_migration_cost_ns"


class MigrationCost(NamedTuple):
    """Nanoseconds, and the file that tells: debugfs (5.13 and later) or the sysctl before."""

    cost: int
    path: str


def _migration_cost(evidence: Evidence) -> MigrationCost:
    texts = evidence.texts()
    path = _COST if texts.get(_COST) else _OLD_COST
    return MigrationCost(int(texts[path]), path)


MIGRATION_COST: Reader[MigrationCost] = Reader(
    "sched-migration-cost", (Files("sched-migration-cost", (_COST, _OLD_COST)),), _migration_cost
)


@check(
    "kern-sched-migration-cost",
    "Scheduler migration cost",
    reads=(MIGRATION_COST,),
    why="A lower value lets the scheduler move threads to cold caches more eagerly; a popular "
    "recipe sets 50000 to raise it, and lowers it. Since 5.13 it lives in debugfs, and recipes "
    "that set the old sysctl fail silently.",
    source="Linux kernel/sched/debug.c",
    changes=(Sysctl, Sysfs),
)
def migration_cost(now: MigrationCost) -> Verdict:
    """Judge against the default of 500000 ns."""
    seen = f"{now.cost} ns"
    if now.cost >= 500_000:
        return good("Threads are not moved more eagerly than by default", seen, "500000 ns")
    old = now.path == _OLD_COST
    default = Sysctl(_OLD_COST_KEY, "500000") if old else Sysfs((_COST,), "500000")
    return issue(
        "Threads are moved more eagerly than by default",
        Class.P0,
        Impact.LOW,
        seen,
        "500000 ns or more",
        changes=((default,),),
    )


_CLOCK = "/sys/devices/system/clocksource/clocksource0"
_TSC = Sysfs(
    (f"{_CLOCK}/current_clocksource",),
    "tsc",
    risk="medium",
    caution="The kernel chose another clock at boot; should it find the TSC unsteady, it goes back "
    "by itself, and clocks may jump a little",
)
_UNREAD_LOG = (
    "The kernel log, which tells whether the kernel found the TSC unsteady, could not be read: "
    "audit as root, or look for `Marking TSC unstable` in it first."
)
_DISTRUSTED = (
    "The kernel does not trust the TSC here (see the kernel log): look for a firmware update; "
    "forcing clocksource=tsc risks a wrong clock."
)
_FAST = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv", "xen", "timebase")


def _clocks(evidence: Evidence) -> tuple[str, tuple[str, ...]]:
    """Return the clock source in use and those available."""
    texts = evidence.texts()
    available = tuple(texts.get(f"{_CLOCK}/available_clocksource", "").split())
    return texts[f"{_CLOCK}/current_clocksource"].strip(), available


CLOCKS: Reader[tuple[str, tuple[str, ...]]] = Reader(
    "clocksource",
    (Files("clocksource", tuple(f"{_CLOCK}/{w}_clocksource" for w in ("current", "available"))),),
    _clocks,
)


@check(
    "kern-clocksource",
    "Clock source",
    reads=(CLOCKS,),
    optional=(KERNEL_LOG_READ,),
    why="With HPET or the ACPI timer every reading of the clock is a slow device access; Python "
    "and CUDA polling read it constantly.",
    source="kernel.org admin-guide/kernel-parameters.txt (clocksource=)",
    changes=(Sysfs,),
)
def clocksource(clocks: tuple[str, Sequence[str]], log: KernelLog | Unknown) -> Verdict:
    """Judge the source in use; tsc is offered only where the kernel still lists it."""
    current, available = clocks
    if current.startswith(_FAST):
        return good("The clock is read without leaving the CPU", current, "tsc or the like")
    if current not in {"hpet", "acpi_pm"}:
        return info("An uncommon clock source is in use", current, "tsc or the like")
    offered = "tsc" in available
    trusted = isinstance(log, KernelLog) and not log.matching("Marking TSC unstable")
    untried = offered and isinstance(log, Unknown)
    return issue(
        "The clock is read from a slow device",
        Class.P0 if offered and (trusted or untried) else Class.FW,
        Impact.MEDIUM,
        f"{current}; available: {' '.join(available) or 'not shown'}",
        "tsc",
        changes=((_TSC,),) if offered and trusted else (),
        remedy="" if offered and trusted else _UNREAD_LOG if untried else _DISTRUSTED,
    )


_PSI = ("cpu", "memory", "io")


def _pressure(evidence: Evidence, inside: str | Unknown) -> dict[str, float] | Unknown:
    """Return the percent of the last minute in which some task waited, by resource."""
    if refusal := vouched(inside, "pressure") or evidence.problem:
        return refusal
    found = {}
    for name in _PSI:
        line = evidence.texts()[f"/proc/pressure/{name}"].splitlines()[0]
        fields = dict(word.split("=") for word in line.split()[1:])
        found[name] = float(fields["avg60"])
    return found


PRESSURE: Reader[dict[str, float]] = Reader(
    "pressure",
    (Files("pressure", tuple(f"/proc/pressure/{name}" for name in _PSI)), INSIDE_CONTAINER),
    _pressure,
    tolerant=True,
)


@check(
    "kern-psi",
    "Pressure stall information",
    reads=(PRESSURE,),
    why="The direct evidence of contention: the share of the last minute that some task waited.",
    source="kernel.org accounting/psi.rst",
)
def pressure(waits: dict[str, float]) -> Verdict:
    """Judge the shares of one minute, in percent."""
    seen = ", ".join(f"{name} {waits[name]:.1f} %" for name in _PSI)
    wanted = "cpu below 20, memory below 1, io below 5 %"
    if waits["memory"] >= 5:
        return issue("Tasks wait for memory", Class.P0, Impact.HIGH, seen, wanted, remedy=_LESS)
    if waits["cpu"] >= 50:
        return issue("Tasks wait for CPUs", Class.P0, Impact.MEDIUM, seen, wanted, remedy=_LESS)
    if waits["cpu"] < 20 and waits["memory"] < 1 and waits["io"] < 5:
        return good("Nothing waits noticeably", seen, wanted)
    return info("Some tasks wait", seen, wanted)


_LESS = "Look which other work runs here (top, systemd-cgtop) and move or limit it."
