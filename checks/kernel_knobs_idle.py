"""Kernel knobs of the CPUs' idle states, and of the latency to wake from them."""

from collections.abc import Sequence

from gpudoctor.model import (
    Change,
    Class,
    Impact,
    LatencyHold,
    Reason,
    Sysfs,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    unknown,
)
from gpudoctor.probes.cpu import DMA_LATENCY, IDLE_STATES, IdleState

# Microseconds: below the first nothing sleeps deeply, from the second on waking is felt.
SHALLOW, DEEP = 20, 50
# More than the exit latency of a shallow state, less than that of a deep one.
HELD = 10
_COSTS = "Takes more power when idle, and may leave less of it for boost"


def _awake(states: Sequence[IdleState]) -> tuple[tuple[Change, ...], ...]:
    """Return the ways to keep CPUs out of the deep states that they may enter."""
    deep = [state for state in states if state.latency > SHALLOW]
    limits = tuple(dict.fromkeys(limit for state in deep for limit in state.limits))
    switches = tuple(switch for state in deep for switch in state.switches)
    return (
        (LatencyHold(HELD, group="cpu-idle", caution=_COSTS),),
        (
            Sysfs(
                limits,
                str(SHALLOW),  # 0 would be no limit at all
                told=f"pm_qos_resume_latency_us = {SHALLOW} ({len(limits)} CPUs)",
                group="cpu-idle",
                caution=_COSTS,
            ),
        ),
        (
            Sysfs(
                switches,
                "1",
                told=f"{', '.join(s.name for s in deep if s.switches)} disabled "
                f"({len(switches)} files cpu*/cpuidle/state*/disable)",
                group="cpu-idle",
                risk="medium",
                caution="Takes tens to hundreds of watts more when idle, leaves less for boost and "
                "heats the CPUs; CPUs that come online later are not covered",
            ),
        ),
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
    changes=(LatencyHold, Sysfs),
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
        changes=_awake(states),
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
