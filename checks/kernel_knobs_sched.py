"""Kernel knobs of scheduling that matter only beside something else: groups, isolation, timers."""

import re
from collections.abc import Sequence

from gpudoctor.formats.cmdline import Cmdline
from gpudoctor.formats.cpulist import format_cpulist, parse_cpulist
from gpudoctor.formats.serving import Server
from gpudoctor.model import (
    Class,
    Evidence,
    Files,
    Impact,
    Reader,
    Reason,
    Side,
    Sysctl,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    not_read,
)
from gpudoctor.probes.kernel import KERNEL_PARAMETERS, number_in
from gpudoctor.probes.serving import SERVERS

_CPU = "/sys/devices/system/cpu"

AUTOGROUP = number_in("sched-autogroup", "/proc/sys/kernel/sched_autogroup_enabled")
_ALL_ALIKE = "A busy terminal session no longer counts as one: its threads compete with all others"
# The scopes that systemd makes for a login and for a pane of tmux.
_SESSION = re.compile(r"/(session|tmux-spawn)-[^/]+\.scope$")


@check(
    "kern-sched-autogroup",
    "Scheduler autogroups",
    reads=(AUTOGROUP,),
    optional=(SERVERS,),
    why="A server that was started from a terminal session (tmux, ssh) competes with the others as "
    "one group; services of systemd are not affected.",
    source="kernel.org admin-guide/kernel-parameters.txt (noautogroup)",
    changes=(Sysctl,),
)
def autogroup(value: int, servers: Sequence[Server] | Unknown) -> Verdict:
    """Judge the switch; only a server from a terminal would feel it."""
    if value == 0:
        return good("Scheduler autogroups are off", "0", "0")
    found = () if isinstance(servers, Unknown) else servers
    manual = [str(server.pid) for server in found if _from_terminal(server)]
    if not manual:
        return info(
            "Scheduler autogroups are on: felt only by a server from a terminal", str(value)
        )
    return issue(
        "A server that was started from a terminal shares its group's time",
        Class.P0,
        Impact.LOW,
        f"{value}, server {', '.join(manual)} in a session",
        "0",
        changes=((Sysctl("kernel.sched_autogroup_enabled", "0", caution=_ALL_ALIKE),),),
    )


def _from_terminal(server: Server) -> bool:
    return server.side is Side.HOST and any(_SESSION.search(line) for line in server.cgroup)


def _isolated(evidence: Evidence) -> frozenset[int] | Unknown:
    text = evidence.get(f"{_CPU}/isolated")
    return text if isinstance(text, Unknown) else parse_cpulist(text)


ISOLATED: Reader[frozenset[int]] = Reader(
    "isolated-cpus", (Files("isolated-cpus", (f"{_CPU}/isolated",)),), _isolated
)
TIMER_MIGRATION = number_in("timer-migration", "/proc/sys/kernel/timer_migration")
_AWAKE = "Timers of idle CPUs wake those CPUs: a little more power while idle"


@check(
    "kern-timer-migration",
    "Timer migration",
    reads=(TIMER_MIGRATION, ISOLATED),
    why="Timers that move to other CPUs matter only where CPUs are isolated.",
    source="tuned cpu-partitioning profile",
    changes=(Sysctl,),
)
def timer_migration(value: int, isolated: frozenset[int]) -> Verdict:
    """Judge the switch where CPUs are isolated."""
    seen = f"{value}, isolated CPUs {format_cpulist(isolated) or 'none'}"
    if value == 0 or not isolated:
        return info("Timer migration does not matter here", seen)
    return issue(
        "Timers may move to isolated CPUs",
        Class.P2,
        Impact.LOW,
        seen,
        "0 beside isolated CPUs",
        changes=((Sysctl("kernel.timer_migration", "0", caution=_AWAKE),),),
    )


@check(
    "kern-isolation",
    "Isolated CPUs",
    reads=(KERNEL_PARAMETERS,),
    optional=(ISOLATED,),
    why="The load balancer skips isolated CPUs: a server that is not pinned does not use them, and "
    "one that is confined to them piles its threads up. Its own affinity is judged elsewhere.",
    source="kernel.org admin-guide/kernel-parameters.txt (isolcpus, nohz_full, rcu_nocbs)",
)
def isolation(parameters: Cmdline, isolated: frozenset[int] | Unknown) -> Verdict:
    """Say which CPUs are set apart, and how."""
    if isinstance(isolated, Unknown) and isolated.reason is not Reason.NOT_IN_RECORDING:
        return not_read(isolated)
    asked = [
        f"{key}={value}"
        for key in ("isolcpus", "nohz_full", "rcu_nocbs")
        if (value := parameters.last(key)) is not None
    ]
    words = " ".join(asked) or "no parameter"
    if isinstance(isolated, Unknown):
        return info("What the command line asks of CPU isolation", words)
    if not isolated and not asked:
        return info("No CPU is isolated", "none")
    return info("CPUs are isolated", f"{format_cpulist(isolated) or 'none'}; {words}")


_VULNERABILITIES = f"{_CPU}/vulnerabilities"
MITIGATIONS: Reader[dict[str, str]] = Reader(
    "cpu-vulnerabilities",
    (Files("cpu-vulnerabilities", (f"{_VULNERABILITIES}/*",)),),
    lambda evidence: {path.rsplit("/", 1)[-1]: text for path, text in evidence.texts().items()},
)


@check(
    "kern-mitigations",
    "CPU vulnerability mitigations",
    reads=(MITIGATIONS,),
    why="Mitigations cost a few percent of system calls. They are security: gpudoctor does not "
    "recommend turning them off.",
    source="kernel.org admin-guide/hw-vuln",
)
def mitigations(states: dict[str, str]) -> Verdict:
    """Say which are mitigated and which are open."""
    open_ones = sorted(name for name, text in states.items() if text.startswith("Vulnerable"))
    mitigated = sum(text.startswith("Mitigation") for text in states.values())
    seen = f"{mitigated} mitigated, {len(open_ones)} open"
    if open_ones:
        return info(f"The CPU is open to: {', '.join(open_ones)}", seen)
    return info("CPU vulnerabilities are mitigated or do not apply", seen)
