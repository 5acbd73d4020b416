"""Kernel knobs of the CPUs: clocks, idle states and their latency."""

from collections.abc import Sequence

from gpudoctor.model import (
    Class,
    Evidence,
    Files,
    Impact,
    Reader,
    Reason,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    non_issue,
    unknown,
)
from gpudoctor.probes.cpu import (
    CPU_FREQ,
    DMA_LATENCY,
    IDLE_STATES,
    CpuFreq,
    IdleState,
    counted,
)

_CPU = "/sys/devices/system/cpu"
_SET_GOVERNOR = (
    "Write performance to every /sys/devices/system/cpu/cpufreq/policy*/scaling_governor "
    "(cpupower frequency-set -g performance); put the old words back to undo."
)


@check(
    "kern-governor",
    "CPU frequency governor",
    reads=(CPU_FREQ,),
    why="Under a load-following governor the launch and scheduler threads reach their clock late, "
    "after each short idle. A loop of CUDA graphs hides most of that.",
    source="kernel.org admin-guide/pm/cpufreq.rst; tuned latency-performance profile",
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
        remedy=_SET_GOVERNOR,
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
        remedy=_SET_GOVERNOR,
        why=why + " Measure before expecting a gain.",
    )


@check(
    "kern-epp",
    "Energy-performance preference",
    reads=(CPU_FREQ,),
    why="The preference hints to the CPU how eagerly to raise its clock.",
    source="Linux drivers/cpufreq/amd-pstate.c; kernel.org admin-guide/pm/amd-pstate.rst",
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
        remedy="Write performance to every cpufreq/policy*/energy_performance_preference (refused "
        "as busy while the governor is performance, which implies it).",
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
)
def boost(switches: dict[str, int]) -> Verdict:
    """Judge the global switch and the policies' own."""
    off = sorted(path for path, value in switches.items() if value == 0)
    if not off:
        return good("CPU boost is allowed", f"on in {len(switches)} switch(es)", "on")
    switch = off[0]
    return issue(
        "CPU boost is switched off",
        Class.P0,
        Impact.MEDIUM,
        f"off in {len(off)} of {len(switches)} switch(es), first {switch}",
        "on",
        remedy=f"Write {int(switch != _NO_TURBO)} to {switch} (undo: "
        f"{int(switch == _NO_TURBO)}); an invalid-argument error means that the firmware has boost "
        "disabled.",
    )


# Microseconds: below the first nothing sleeps deeply, from the second on waking is felt.
SHALLOW, DEEP = 20, 50
_HOLD = (
    "Hold a latency request of 10 µs while serving: systemd-run --unit=gpudoctor-latency python3 "
    "-c \"import os,struct,signal;f=os.open('/dev/cpu_dma_latency',os.O_WRONLY);"
    "os.write(f,struct.pack('i',10));signal.pause()\"; stopping the unit undoes it. Or write 20 to "
    "cpu*/power/pm_qos_resume_latency_us. Costs idle watts and may cost boost headroom."
)


@check(
    "kern-cstate-exit",
    "Exit latency of CPU idle states",
    reads=(IDLE_STATES,),
    optional=(DMA_LATENCY,),
    why="The latency is the declared worst case (not a measurement), paid only when a CPU wakes "
    "from idle. Threads that poll never idle: at most a few times that per step, under 1 % of a "
    "decode step of tens of milliseconds. It is more where the engine sleeps between steps.",
    source="kernel.org admin-guide/pm/cpuidle.rst; power/pm_qos_interface.rst; tuned profiles",
)
def cstate_exit(states: Sequence[IdleState], held: int | Unknown) -> Verdict:
    """Judge the deepest enabled state against the latency that somebody asks for."""
    seen = "; ".join(_described(state) for state in states)
    deepest = max((state.latency for state in states if state.enabled), default=0)
    if deepest <= SHALLOW:
        return good("No enabled idle state wakes slowly", seen, f"at most {SHALLOW} µs")
    if isinstance(held, int) and held <= SHALLOW:
        return good(
            "A latency request keeps the CPUs out of deep idle states",
            f"request {held} µs; {seen}",
            f"at most {SHALLOW} µs",
        )
    if deepest < DEEP or (isinstance(held, int) and held < deepest):
        return info("Idle states wake within tens of microseconds", seen, f"below {DEEP} µs")
    if isinstance(held, Unknown) and held.reason is not Reason.NOT_PRESENT:
        return unknown(
            held.reason,
            f"an idle state of {deepest} µs is enabled, but whether a latency request excludes it "
            f"could not be read ({held})",
            observed=seen,
        )
    return issue(
        "A deep idle state is enabled",
        Class.P0,
        Impact.LOW,
        seen,
        f"at most {SHALLOW} µs",
        remedy=_HOLD,
    )


def _described(state: IdleState) -> str:
    where = "on" if state.enabled == state.total else f"on {state.enabled} of {state.total} CPUs"
    switched = where if state.enabled else "off"
    return f"{state.name} {state.latency} µs {switched}, used {state.usage} times"


@check(
    "kern-dma-latency",
    "CPU wake-up latency asked for",
    reads=(DMA_LATENCY,),
    why="Shows whether somebody (tuned, a latency helper) holds /dev/cpu_dma_latency and so keeps "
    "the CPUs out of deep idle states.",
    source="kernel.org power/pm_qos_interface.rst",
)
def dma_latency(held: int) -> Verdict:
    """Judge the aggregate of all requests, in µs."""
    if held <= SHALLOW:
        return good("Somebody holds a low CPU latency", f"{held} µs", f"at most {SHALLOW} µs")
    if held >= 2_000_000_000:
        return info("Nobody asks for a CPU latency", "no request (2000 s)")
    return info("A CPU latency is asked for", f"{held} µs")
