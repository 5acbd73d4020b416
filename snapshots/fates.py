"""The fate of one value, by what it reads now: as set, as before, gone, or something else."""

from collections.abc import Iterable

from gpudoctor.model import (
    Affinity,
    Change,
    DeviceNodes,
    Module,
    MountSize,
    PciBits,
    ProcessLimit,
    Reason,
    Sysfs,
    Unknown,
)
from gpudoctor.model.story import Fate, KeptItem

GONE = "gone"
# What is set on a process reads `START …`, its start time, and ends with it.
OF_PROCESSES = (Affinity, MountSize, ProcessLimit)
# Of many values the worst tells what became of the change.
_WORST = (Fate.LOST, Fate.CHANGED, Fate.OVERRIDDEN, Fate.UNKNOWN, Fate.ENDED, Fate.KEPT)


def fate_of(
    change: Change | None,
    item: KeptItem,
    now: str | Unknown,
    befores: Iterable[str],
    rebooted: bool,
) -> Fate:
    """Return what became of a value. `befores` are those it had before each of ours set it."""
    if isinstance(change, OF_PROCESSES) and rebooted:
        return Fate.ENDED
    if isinstance(now, Unknown):
        return Fate.UNKNOWN
    if now == GONE:
        return Fate.ENDED
    if _alike(change, now, item.wanted):
        return Fate.KEPT
    if isinstance(change, OF_PROCESSES) and _start(now) != _start(item.wanted):
        return Fate.ENDED
    return Fate.LOST if any(_alike(change, now, old) for old in befores) else Fate.CHANGED


def worst(fates: Iterable[Fate]) -> Fate:
    """Return the fate that tells most of several; UNKNOWN for none."""
    return min(fates, key=_WORST.index, default=Fate.UNKNOWN)


def answered(change: Change | None, item: str, now: str | Unknown) -> str | Unknown:
    """Return a value, or why it is none: what setpci prints of a device that does not answer."""
    if isinstance(change, PciBits) and isinstance(now, str):
        device = item.partition(" ")[0]
        if not now:
            return Unknown(Reason.NOT_PRESENT, f"{device} is not on the PCI bus there")
        if now == "ffff":
            return Unknown(Reason.NOT_PRESENT, f"{device} does not answer: it fell off the bus")
    return now


def _alike(change: Change | None, one: str, other: str) -> bool:
    """Return whether two values are the same in what the change sets.

    A reboot may move what the change does not: other bits of a register, the file beside, modules
    that a module needs.
    """
    return one == other or _own(change, one) == _own(change, other)


def _own(change: Change | None, value: str) -> str:
    if isinstance(change, PciBits):
        return _bits(value, change.mask)
    if isinstance(change, Module) or (isinstance(change, Sysfs) and change.beside):
        return value.partition(" ")[0]
    if isinstance(change, DeviceNodes):
        return value.partition(", module")[0]
    return value


def _bits(value: str, mask: int) -> str:
    try:
        return f"{int(value, 16) & mask:x}"
    except ValueError:
        return value


def _start(value: str) -> str:
    return value.partition(" ")[0]
