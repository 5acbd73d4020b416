"""Panel 8: the power limits of the GPUs."""

from dataclasses import replace

from gpudoctor.checks.per_gpu import Gpus, unread
from gpudoctor.checks.power_host import SUPPLIES, needed_watts, usable_watts
from gpudoctor.formats.dmi_supplies import Supply
from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.model import (
    Class,
    GpuSetting,
    Impact,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    per_target,
)
from gpudoctor.probes.cpu import SOCKETS
from gpudoctor.probes.gpu import GPUS
from gpudoctor.tables.gpu_limits import limit


@check(
    "pwr-gpu-limit",
    "GPU power limit",
    reads=(GPUS,),
    optional=(SUPPLIES, SOCKETS),
    why="Decode is bound by memory and hardly notices a lower limit; prefill loses tensor "
    "throughput (about a fifth to a quarter at half of 600 W).",
    source="nvidia-smi manual (power readings); community measurements (voipmonitor/rtx6kpro)",
    scope="gpu",
    changes=(GpuSetting,),
)
def gpu_limit(
    gpus: Gpus, supplies: tuple[Supply, ...] | Unknown, sockets: int | Unknown
) -> list[Verdict]:
    """Judge the enforced limit against the default and against equal GPUs."""
    verdicts = per_target((gpu.bdf, _limit(gpu, gpus)) for gpu in gpus)
    carried = _carried(gpus, supplies, sockets)
    return [_raised(v, gpus) if carried and v.cls is Class.P0 else v for v in verdicts]


def _carried(gpus: Gpus, supplies: tuple[Supply, ...] | Unknown, sockets: int | Unknown) -> bool:
    """Return whether the supplies are known to carry every GPU at the limit of its equals."""
    watts = [_most(gpu, gpus) for gpu in gpus]
    known = not any(isinstance(gpu.power.enforced, Unknown) for gpu in gpus)
    if not known or isinstance(supplies, Unknown) or isinstance(sockets, Unknown):
        return False
    usable = usable_watts(supplies)
    return not isinstance(usable, Unknown) and needed_watts(sum(watts), sockets) <= usable


def _raised(verdict: Verdict, gpus: Gpus) -> Verdict:
    """Attach the changes that raise the verdict's GPUs to the limit of their equals."""
    low: dict[float, list[str]] = {}
    for gpu in gpus:
        if gpu.bdf in verdict.targets:
            low.setdefault(_most(gpu, gpus), []).append(gpu.bdf)
    changes = tuple(
        GpuSetting(tuple(at), "power-limit", f"{watts:g}", risk="medium", caution=_CAUTION)
        for watts, at in low.items()
    )
    return replace(verdict, changes=(changes,), remedy="")


_CAUTION = (
    "The limit may be low for heat or a cable's sake. The supplies carry it by their ratings. It "
    "is lost at reboot, and with persistence mode off when the GPU's last user exits."
)


def _most(gpu: Gpu, gpus: Gpus) -> float:
    """Return the highest limit in W that a GPU of this name has; 0 where none is known."""
    equals = (g.power.enforced for g in gpus if g.name == gpu.name)
    return max((watts for watts in equals if not isinstance(watts, Unknown)), default=0)


def _limit(gpu: Gpu, gpus: Gpus) -> Verdict:
    power, slack = gpu.power, limit("pwr-gpu-limit", "tolerance_w")
    if isinstance(power.enforced, Unknown):
        return unread("power limit", power.enforced)
    seen = f"{power.enforced:g} W"
    if not isinstance(power.requested, Unknown) and power.enforced < power.requested - slack:
        return issue(
            "Something outside holds the power limit below the one that was set",
            Class.FW,
            Impact.LOW,
            observed=f"{seen} of {power.requested:g} W requested",
            expected=f"{power.requested:g} W",
            remedy="Look for a cap of the BMC, the chassis or the power cabling.",
        )
    most = _most(gpu, gpus)
    if power.enforced < most - slack:
        return issue(
            "The power limit is lower than that of equal GPUs",
            Class.P0,
            Impact.LOW,
            observed=seen,
            expected=f"{most:g} W, as its equals have",
            remedy="`nvidia-smi -i N -pl WATTS`, once pwr-psu-capacity says that the supplies "
            f"carry it; undo: the same with {power.enforced:g}. Lost at reboot.",
        )
    return _default(gpu, power.enforced, seen)


def _default(gpu: Gpu, enforced: float, seen: str) -> Verdict:
    default = gpu.power.default
    if isinstance(default, Unknown):
        return unread("default power limit", default)
    wanted = f"{default:g} W"
    if enforced >= default - limit("pwr-gpu-limit", "tolerance_w"):
        return good("The power limit is the default or higher", observed=seen, expected=wanted)
    return info(
        "The power limit is set below the default, probably on purpose",
        observed=f"{seen} ({enforced / default:.0%} of the default)",
        expected=wanted,
    )
