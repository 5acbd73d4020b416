"""Rules that judge one GPU at a time."""

from collections.abc import Callable, Iterable

from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.model import Unknown, Verdict, per_target, unknown

Gpus = tuple[Gpu, ...]


def each(gpus: Iterable[Gpu], rule: Callable[[Gpu], Verdict]) -> list[Verdict]:
    """Judge every GPU, and return one verdict for each distinct status with its targets."""
    return per_target((gpu.bdf, rule(gpu)) for gpu in gpus)


def unread(what: str, value: Unknown) -> Verdict:
    """Return that a value could not be read, and why."""
    return unknown(value.reason, f"{what}: {value.detail or value.reason}")
