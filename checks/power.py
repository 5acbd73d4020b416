"""Panel 8: power, heat and the clocks that come of them."""

from gpudoctor.checks.per_gpu import Gpus, each, named, smi, unread, with_plan
from gpudoctor.checks.power_host import cpu_limits, cpu_temp, psu_capacity
from gpudoctor.checks.power_limit import gpu_limit
from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.model import (
    Class,
    Impact,
    Reason,
    Unknown,
    Verdict,
    Worked,
    check,
    good,
    info,
    issue,
    non_issue,
    unknown,
)
from gpudoctor.probes.gpu import GPUS
from gpudoctor.tables.gpu_limits import limit

# The checks of this panel that live in files of their own.
__all__ = ["cpu_limits", "cpu_temp", "gpu_limit", "psu_capacity"]


@check(
    "pwr-gpu-temp",
    "GPU temperature",
    reads=(GPUS,),
    why="Heat costs nothing until the margin is gone, then the clocks fall. From Ada on the "
    "driver gives the margin left (T.Limit), not a threshold to compare with.",
    source="NVML (nvmlDeviceGetMarginTemperature); nvidia-smi manual (temperature)",
    scope="gpu",
)
def gpu_temp(gpus: Gpus) -> list[Verdict]:
    """Judge the degrees left before the GPU slows down."""
    return each(gpus, _heat)


def _heat(gpu: Gpu) -> Verdict:
    heat = gpu.temperature
    if isinstance(heat.gpu, Unknown):
        return unread("GPU temperature", heat.gpu)
    margin = heat.margin
    if isinstance(margin, Unknown):
        margin = heat.slow_at if isinstance(heat.slow_at, Unknown) else heat.slow_at - heat.gpu
    if isinstance(margin, Unknown):
        return unread(f"margin of a GPU at {heat.gpu:g} \u00b0C", margin)
    wanted = limit("pwr-gpu-temp", "good")
    seen, expected = f"{heat.gpu:g} \u00b0C, {margin:g} \u00b0C left", f"{wanted:g} \u00b0C left"
    if margin >= wanted:
        return good("Cool enough", observed=seen, expected=expected)
    return issue(
        "The GPU is close to slowing down for heat",
        Class.FW,
        Impact.LOW if margin >= limit("pwr-gpu-temp", "low") else Impact.HIGH,
        observed=seen,
        expected=expected,
        remedy="Check fans, airflow, filters, blanking plates and the inlet temperature.",
    )


@check(
    "pwr-clocks",
    "GPU clocks",
    reads=(GPUS,),
    why="At idle low clocks are right. Under load a memory clock below its maximum slows decode "
    "one to one; the highest SM clock may lie a few per cent above what can be held.",
    source="nvidia-smi manual (clocks, max clocks)",
    scope="gpu",
    changes=(Worked,),
)
def clocks(gpus: Gpus) -> list[Verdict]:
    """Judge the clocks of GPUs that work, or that stand at full clocks anyway."""
    return with_plan(each(gpus, _clocks), gpus, _unlocked)


def _unlocked(_: Verdict, gpus: Gpus) -> Worked | None:
    """Return how to clear what a user set, where the driver says that it holds every GPU's."""
    if not all(gpu.reasons.get("applications_clocks_setting") is True for gpu in gpus):
        return None
    return Worked(
        f"clocks of {named(gpus)} as the board has them",
        smi(gpus, "-rgc", "-rmc", "-rac"),
        caution="A lock cannot be read, so nothing can put it back exactly: note it first from the "
        "unit or script that sets it.",
    )


def _clocks(gpu: Gpu) -> Verdict:
    now, most = gpu.clocks, gpu.max_clocks
    ceiling = most.sm
    if not isinstance(gpu.boost_limit, Unknown) and not isinstance(ceiling, Unknown):
        ceiling = min(ceiling, gpu.boost_limit)
    sm, memory = _share(now.sm, ceiling), _share(now.memory, most.memory)
    if isinstance(sm, Unknown):
        return unread("SM clock", sm)
    if isinstance(memory, Unknown):
        return unread("memory clock", memory)
    seen = f"SM {now.sm:g} MHz ({sm:.0%} of {ceiling:g}), memory {memory:.0%} of {most.memory:g}"
    if sm >= limit("pwr-clocks", "good") and memory >= limit("pwr-clocks", "memory"):
        return good("The GPU runs at full clocks", observed=seen)
    busy = isinstance(gpu.utilization, int) and gpu.utilization >= limit("pwr-clocks", "busy")
    if not busy or gpu.reasons.get("gpu_idle") is True:
        return unknown(Reason.NEEDS_LOAD, "clocks can be judged under load only", observed=seen)
    if memory >= limit("pwr-clocks", "memory_low") and gpu.reasons.get("sw_power_cap") is True:
        return info(
            "The power limit holds the SM clock under load",
            observed=seen,
            why="Heavy work reaches the power limit before the highest clock: how the board is "
            "meant to work. pwr-gpu-limit tells whether the limit is the default.",
        )
    return _slow(sm, memory, seen)


def _share(now: float | Unknown, most: float | Unknown) -> float | Unknown:
    if isinstance(now, Unknown) or isinstance(most, Unknown):
        return now if isinstance(now, Unknown) else most
    return now / most if most > 0 else Unknown(Reason.PARSE_FAILED, "a highest clock of 0 MHz")


def _slow(sm: float, memory: float, seen: str) -> Verdict:
    if memory < limit("pwr-clocks", "memory_low"):
        summary, impact = "The memory clock is low under load", Impact.MEDIUM
    elif sm < limit("pwr-clocks", "low"):
        summary, impact = "The SM clock is low under load", Impact.LOW
    else:
        return info("Clocks are somewhat below the highest under load", observed=seen)
    return issue(
        summary,
        Class.P0,
        impact,
        observed=seen,
        expected="SM 90 % or more, memory at its maximum",
        remedy="Read pwr-throttle-now and pwr-gpu-limit for the cause; a light load may be one. "
        "Where a forgotten lock is: `nvidia-smi -i N -rgc` and `nvidia-smi -i N -rmc` clear it. A "
        "lock cannot be read back: first note it from the unit or script that sets it.",
    )


_HARD = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
_SETTINGS = ("applications_clocks_setting", "display_clocks_setting", "sync_boost")


@check(
    "pwr-throttle-now",
    "What holds the clocks down now",
    reads=(GPUS,),
    why="One sample shows this instant only. A power cap under heavy prefill at the full limit is "
    "how the board is meant to work.",
    source="NVML (nvmlClocksEventReasons)",
    scope="gpu",
)
def throttle_now(gpus: Gpus) -> list[Verdict]:
    """Judge the active clock event reasons."""
    return each(gpus, _throttled)


def _throttled(gpu: Gpu) -> Verdict:
    active = [name for name, value in gpu.reasons.items() if value is True]
    seen = ", ".join(active) or "none"
    if any(name in active for name in _HARD):
        return _braked("The hardware slows the GPU down", Impact.HIGH, seen)
    if "sw_thermal_slowdown" in active:
        return _braked("The driver slows the GPU down for heat", Impact.MEDIUM, seen)
    unread_ones = [v for n, v in gpu.reasons.items() if n in _HARD and isinstance(v, Unknown)]
    if not any(isinstance(value, bool) for value in gpu.reasons.values()):
        absent = Unknown(Reason.NOT_PRESENT, "nvidia-smi does not report them")
        return unread("clock event reasons", next(iter(unread_ones), absent))
    if "sw_power_cap" in active:
        return _capped(gpu, seen)
    if any(name in active for name in _SETTINGS):
        return info("A setting of the user holds the clocks", observed=seen)
    return good("Nothing holds the clocks down", observed=seen)


def _braked(summary: str, impact: Impact, seen: str) -> Verdict:
    return issue(
        summary,
        Class.FW,
        impact,
        observed=seen,
        expected="none",
        remedy="Check cooling, the power supplies, their cables, and caps of the BMC.",
    )


def _capped(gpu: Gpu, seen: str) -> Verdict:
    enforced, default = gpu.power.enforced, gpu.power.default
    if isinstance(enforced, Unknown) or isinstance(default, Unknown):
        return info("The power limit holds the clocks", observed=seen)
    if not isinstance(gpu.power.draw, Unknown) and gpu.power.draw < enforced * _share_of_cap():
        return _capped_early(gpu, f"{seen}; {gpu.power.draw:g} of {enforced:g} W")
    if enforced < default - limit("pwr-gpu-limit", "tolerance_w"):
        return info("The power limit holds the clocks, and it is below the default", observed=seen)
    return non_issue(
        "The GPU works at its power limit, as it is meant to under full load", observed=seen
    )


def _share_of_cap() -> float:
    return limit("pwr-throttle-now", "capped_share")


def _capped_early(gpu: Gpu, seen: str) -> Verdict:
    """Judge a power cap that is reported far below the limit."""
    busy = isinstance(gpu.utilization, int) and gpu.utilization >= limit("pwr-clocks", "busy")
    if not busy or gpu.reasons.get("gpu_idle") is True:
        return info(
            "A power cap is reported on a GPU that hardly works: it says nothing", observed=seen
        )
    return issue(
        "The driver reports a power cap far below the power limit",
        Class.FW,
        Impact.LOW,
        observed=seen,
        expected="a cap at the limit only",
        why="One sample: short peaks can reach the limit between two readings. Where it stays so, "
        "something else holds the board back: a power cable, a supply, the chassis' management.",
        remedy="Read it again under steady load and compare with equal GPUs; then check the power "
        "cables, the supplies and the management controller's power policy. Raising the limit "
        "does not help.",
    )


@check(
    "pwr-idle-draw",
    "GPU power draw",
    reads=(GPUS,),
    why="A loaded model keeps the GPU awake in P0 and draws more than a GPU without any context: "
    "on a 600 W RTX PRO 6000 some 80 W against 40 W.",
    source="nvidia-smi manual (power readings)",
    scope="gpu",
)
def idle_draw(gpus: Gpus) -> list[Verdict]:
    """Tell what each GPU draws, as context."""
    return each(gpus, _draw)


def _draw(gpu: Gpu) -> Verdict:
    power = gpu.power
    if isinstance(power.draw, Unknown):
        return unread("power draw", power.draw)
    seen = f"{power.draw:g} W"
    if not isinstance(gpu.pstate, Unknown):
        seen += f" in {gpu.pstate}"
    top = power.enforced if isinstance(power.default, Unknown) else power.default
    if isinstance(top, Unknown) or top <= 0:
        return info("What the GPUs draw", observed=seen)
    quiet = power.draw <= top * limit("pwr-idle-draw", "idle_share")
    summary = "The GPUs draw what idle ones do" if quiet else "What the GPUs draw"
    return info(summary, observed=f"{seen}, {power.draw / top:.0%} of {top:g} W")
