"""Kernel knobs of the CPUs' clocks."""

from collections.abc import Sequence

from gpudoctor.model import (
    Change,
    Class,
    Evidence,
    Files,
    Impact,
    Reader,
    Reason,
    Sysfs,
    Verdict,
    check,
    good,
    info,
    issue,
    non_issue,
    unknown,
)
from gpudoctor.probes.cpu import CPU_FREQ, CpuFreq, counted

_CPU = "/sys/devices/system/cpu"
_PERFORMANCE = "performance"


def _faster(freq: CpuFreq, name: str, caution: str, beside: str = "") -> tuple[Change, ...]:
    """Return the change that sets a file of every policy to performance."""
    paths = freq.other_than(name, _PERFORMANCE)
    told = f"{name} = {_PERFORMANCE} ({len(paths)} policies)"
    return (
        Sysfs(
            paths,
            _PERFORMANCE,
            beside=beside,
            told=told if len(paths) > 1 else "",
            group="cpufreq",
            caution=caution,
        ),
    )


def _performance(freq: CpuFreq) -> tuple[tuple[Change, ...], ...]:
    """Return the governor's change; with EPP the kernel then forces the preference too."""
    caution = (
        "Takes more power when idle; tuned, TLP and their like may set it back; a governor that an "
        "undo brings back has its own settings at their defaults"
    )
    return (_faster(freq, "scaling_governor", caution, "energy_performance_preference"),)


@check(
    "kern-governor",
    "CPU frequency governor",
    reads=(CPU_FREQ,),
    why="Under a load-following governor the launch and scheduler threads reach their clock late, "
    "after each short idle. A loop of CUDA graphs hides most of that.",
    source="kernel.org admin-guide/pm/cpufreq.rst; tuned latency-performance profile",
    changes=(Sysfs,),
)
def governor(freq: CpuFreq) -> Verdict:
    """Judge all policies together: one line, however many CPUs."""
    seen = counted(freq.governors)
    if not freq.governors:
        return unknown(Reason.NOT_PRESENT, "the CPU frequency policies show no governor")
    if set(freq.governors) == {"performance"}:
        return good("The CPU governor is performance", seen, "performance")
    if freq.hardware_led and set(freq.governors) <= {"performance", "powersave"}:
        return _hardware_led(freq, seen)
    lowest = set(freq.governors) == {"powersave"}
    return issue(
        "The CPU governor holds the lowest clock"
        if lowest
        else "The CPU governor follows the load",
        Class.P0,
        Impact.MEDIUM,
        f"{seen} ({freq.driver or 'driver not shown'})",
        "performance",
        changes=_performance(freq),
    )


def _hardware_led(freq: CpuFreq, seen: str) -> Verdict:
    """Judge powersave where the CPU picks its clock by the energy preference."""
    why = (
        f"With {freq.driver} in active mode powersave is not the lowest clock: the CPU itself "
        "picks clocks, guided by the energy-performance preference."
    )
    observed = f"{seen}; preference {counted(freq.preferences) or 'not shown'} ({freq.driver})"
    if set(freq.preferences) == {"performance"}:
        return info("powersave, but with the preference performance", observed, why=why)
    return issue(
        "powersave with a preference below performance",
        Class.P0,
        Impact.LOW,
        observed,
        "performance",
        changes=_performance(freq),
        why=why + " Measure before expecting a gain.",
    )


@check(
    "kern-epp",
    "Energy-performance preference",
    reads=(CPU_FREQ,),
    why="The preference hints to the CPU how eagerly to raise its clock.",
    source="Linux drivers/cpufreq/amd-pstate.c; kernel.org admin-guide/pm/amd-pstate.rst",
    changes=(Sysfs,),
)
def preference(freq: CpuFreq) -> Verdict:
    """Judge the preference where the driver has one."""
    if not freq.preferences:
        return non_issue(
            "There is no energy-performance preference with this driver",
            f"driver {freq.driver or 'not shown'}",
            why="Only amd-pstate-epp and intel_pstate in active mode have one; with acpi-cpufreq "
            "and other drivers the file does not exist and nothing is missing.",
        )
    seen = counted(freq.preferences)
    if set(freq.preferences) == {"performance"}:
        return good("The energy preference is performance", seen, "performance")
    return issue(
        "The energy preference is below performance",
        Class.P0,
        Impact.LOW,
        seen,
        "performance",
        changes=(_faster(freq, "energy_performance_preference", "Takes more power at part load"),),
    )


_BOOST = f"{_CPU}/cpufreq/boost"
_NO_TURBO = f"{_CPU}/intel_pstate/no_turbo"


def _boost(evidence: Evidence) -> dict[str, int]:
    """Return 1 (boost allowed) or 0 for each switch by path; no_turbo is turned round."""
    switches = {path: int(text) for path, text in evidence.texts().items()}
    return {path: value ^ 1 if path == _NO_TURBO else value for path, value in switches.items()}


BOOST: Reader[dict[str, int]] = Reader(
    "cpu-boost",
    (Files("cpu-boost", (_BOOST, _NO_TURBO, f"{_CPU}/cpufreq/policy*/boost")),),
    _boost,
)


@check(
    "kern-boost",
    "CPU boost",
    reads=(BOOST,),
    why="Boost is a large part of a server CPU's single-thread speed, and one thread a GPU feeds "
    "the launches.",
    source="kernel.org admin-guide/pm/cpufreq.rst (boost), intel_pstate.rst (no_turbo)",
    changes=(Sysfs,),
)
def boost(switches: dict[str, int]) -> Verdict:
    """Judge the global switch and the policies' own."""
    off = sorted(path for path, value in switches.items() if value == 0)
    if not off:
        return good("CPU boost is allowed", f"on in {len(switches)} switch(es)", "on")
    return issue(
        "CPU boost is switched off",
        Class.P0,
        Impact.MEDIUM,
        f"off in {len(off)} of {len(switches)} switch(es), first {off[0]}",
        "on",
        changes=(_boosted(off),),
    )


def _boosted(off: Sequence[str]) -> tuple[Change, ...]:
    """Return the change of the switch for all CPUs where it is off, since it sets the others."""
    caution = "More heat and power; the kernel refuses it where the firmware has boost disabled"
    for path, value in ((_NO_TURBO, "0"), (_BOOST, "1")):
        if path in off:
            return (Sysfs((path,), value, caution=caution),)
    told = f"boost = 1 ({len(off)} policies)" if len(off) > 1 else ""
    return (Sysfs(tuple(off), "1", told=told, caution=caution),)
