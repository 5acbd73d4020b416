"""Rules that judge one GPU at a time."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.model import GpuSetting, Status, Unknown, Verdict, Worked, per_target, unknown
from gpudoctor.shell import quote
from gpudoctor.tables.gpus import spec_of

Gpus = tuple[Gpu, ...]


def each(gpus: Iterable[Gpu], rule: Callable[[Gpu], Verdict]) -> list[Verdict]:
    """Judge every GPU, and return one verdict for each distinct status with its targets."""
    return per_target((gpu.bdf, rule(gpu)) for gpu in gpus)


def with_setting(
    verdicts: Iterable[Verdict], setting: str, value: str, caution: str
) -> list[Verdict]:
    """Attach one GpuSetting of low risk to each issue, for all the GPUs that it names."""
    return [
        replace(v, changes=((GpuSetting(v.targets, setting, value, caution=caution),),))
        if v.status is Status.ISSUE
        else v
        for v in verdicts
    ]


def with_plan(
    verdicts: Iterable[Verdict], gpus: Gpus, plan: Callable[[Verdict, Gpus], Worked | None]
) -> list[Verdict]:
    """Attach to each issue the plan by hand for all the GPUs that it names, where there is one."""
    found = []
    for verdict in verdicts:
        named = tuple(gpu for gpu in gpus if gpu.bdf in verdict.targets)
        made = plan(verdict, named) if verdict.status is Status.ISSUE else None
        found.append(replace(verdict, changes=((made,),)) if made else verdict)
    return found


IDLE_CAUTION = (
    "Nothing may use the GPU meanwhile: stop what `fuser` lists, nvidia-persistenced and DCGM too, "
    "and start it again after. Clocks and power limits set by hand are lost with a reset."
)


def reset_commands(gpus: Gpus) -> tuple[str, ...]:
    """Return the reset of each GPU; none where NVLink may join one to others, reset only so."""
    specs = [None if isinstance(gpu.name, Unknown) else spec_of(gpu.name) for gpu in gpus]
    if not gpus or any(spec is None or spec.nvlink for spec in specs):
        return ()
    return ("fuser -v /dev/nvidia*", *smi(gpus, "-r"))


def smi(gpus: Gpus, *options: str) -> tuple[str, ...]:
    """Return one nvidia-smi command a GPU for each of these options."""
    return tuple(f"nvidia-smi -i {quote(gpu.bdf)} {option}" for gpu in gpus for option in options)


def named(gpus: Gpus) -> str:
    """Return the GPU's address, or how many GPUs they are."""
    return gpus[0].bdf if len(gpus) == 1 else f"{len(gpus)} GPUs"


def unread(what: str, value: Unknown) -> Verdict:
    """Return that a value could not be read, and why."""
    return unknown(value.reason, f"{what}: {value.detail or value.reason}")
