"""One change of a story in words: its fate, who or what decided it, and why."""

from dataclasses import dataclass

from gpudoctor.model.story import Fate, KeptStep, Told
from gpudoctor.snapshots.epochs import Applied
from gpudoctor.snapshots.fates import worst

_REBOOT, _SOMEBODY = "the reboot", "somebody else"
_ACTIVE, _FAILED = "active", "failed"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one change: its values (name, wanted, now), and the fate of each.

    `ended`: the boot it was set in is over. `file` is ours that makes it last, with its fate where
    it is beside the change and not the change itself; `unit` is its unit's state, if it is one.
    """

    applied: Applied
    step: KeptStep
    values: tuple[tuple[str, str, str], ...]
    fates: tuple[Fate, ...]
    ended: bool
    reason: str = ""
    file: str = ""
    file_fate: Fate | None = None
    can_last: bool = False
    started: tuple[str, float] = ("", 0.0)
    overriding: str = ""
    unit: str = ""

    @property
    def restarted(self) -> str:
        """Return what the change lives in, where that was started anew since, or nothing."""
        what, seconds = self.started
        return what if not self.ended and 0 < self.applied.began < seconds else ""

    @property
    def in_place(self) -> bool:
        """Return whether a file of ours makes the change last."""
        return self.file_fate is Fate.KEPT


def told(entry: Entry) -> Told:
    """Return the change as the story tells it."""
    fate, by, why = _decided(entry, worst(entry.fates))
    record = entry.applied.record
    alone = bool(entry.file) and entry.file_fate is None
    return Told(
        record.id,
        record.operator,
        record.applied,
        entry.step.check,
        entry.step.way,
        entry.step.title,
        fate,
        why,
        entry.values,
        by,
        can_last=entry.can_last,
        lasts=entry.in_place or (alone and fate is Fate.KEPT),
    )


def _decided(entry: Entry, fate: Fate) -> tuple[Fate, str, str]:
    """Return the fate, by what, and why in one sentence."""
    if fate in {Fate.LOST, Fate.CHANGED} and entry.in_place and entry.ended:
        return _overridden(entry, fate)
    by, why = {
        Fate.LOST: _lost,
        Fate.CHANGED: _changed,
        Fate.ENDED: _ended,
        Fate.KEPT: _kept,
    }.get(fate, _unread)(entry)
    number = sum(one is fate for one in entry.fates)
    part = f"{number} of {len(entry.fates)} values: " if 0 < number < len(entry.fates) else ""
    return fate, by, part + why


def _overridden(entry: Entry, fate: Fate) -> tuple[Fate, str, str]:
    """Tell of a value that is not as the file says which is in place."""
    file = entry.file
    if entry.unit == _FAILED:
        return fate, file, f"its unit {file} failed at this boot"
    if entry.unit not in {"", _ACTIVE}:
        return Fate.UNKNOWN, "", f"its unit {file} is {entry.unit}: it did not run, or not yet"
    if entry.overriding:
        return Fate.OVERRIDDEN, entry.overriding, f"{file} is in place, but {entry.overriding}"
    return (
        Fate.OVERRIDDEN,
        "",
        f"{file} is in place, but at boot it could not set it, or something else set it "
        "afterwards: no file was found that does",
    )


def _lost(entry: Entry) -> tuple[str, str]:
    if entry.file and entry.file_fate is None:  # the change is the file itself
        return _SOMEBODY, f"{entry.file} is not as we wrote it, but as it was before" + _doubt(
            entry
        )
    if entry.ended:
        return _REBOOT, f"the reboot took it{_file_is(entry)}" + _doubt(entry)
    if entry.restarted:
        return entry.restarted, f"{entry.restarted} was started anew since" + _doubt(entry)
    return _SOMEBODY, f"it is as before again, and nothing was rebooted{_file_is(entry)}" + _doubt(
        entry
    )


def _changed(entry: Entry) -> tuple[str, str]:
    if entry.ended and not (entry.file and entry.file_fate is None):
        why = "the reboot took it, and it is neither as set nor as before now"
        return _REBOOT, why + _file_is(entry) + _doubt(entry)
    if entry.restarted:
        why = f"{entry.restarted} was started anew since, and it is neither as set nor as before"
        return entry.restarted, why + _doubt(entry)
    return _SOMEBODY, "somebody else set it since" + _file_is(entry) + _doubt(entry)


def _ended(entry: Entry) -> tuple[str, str]:
    what = "what it was set on has ended"
    if entry.ended:
        return _REBOOT, f"{what}, with the reboot at the latest"
    if entry.restarted:
        return entry.restarted, f"{what}: {entry.restarted} was started anew since"
    return "", f"{what} (a process, a container or a device)"


def _kept(entry: Entry) -> tuple[str, str]:
    if entry.in_place:
        return entry.file, f"{entry.file} makes it last"
    if not entry.ended:
        return "", "it is as it was set"
    if entry.file and entry.file_fate is None:
        return entry.file, f"{entry.file} is in place"
    why = "it held by itself: something else sets it at boot, or the kernel starts with it"
    return "", why + _file_is(entry)


def _unread(entry: Entry) -> tuple[str, str]:
    if entry.restarted:
        return entry.restarted, f"{entry.restarted} was started anew since; {entry.reason}"
    return "", entry.reason or "it was not read"


def _file_is(entry: Entry) -> str:
    """Return what became of the file that made the change last, where it no longer does."""
    words = {
        Fate.KEPT: "",
        Fate.LOST: f"; {entry.file}, which made it last, is not there any more",
        Fate.CHANGED: f"; {entry.file}, which made it last, was changed",
        Fate.UNKNOWN: f"; {entry.file}, which makes it last, could not be read",
    }
    if entry.file_fate is None:
        return "; nothing of ours makes it last" if entry.ended and not entry.file else ""
    return words.get(entry.file_fate, "")


def _doubt(entry: Entry) -> str:
    """Return that nobody can tell here whether the change was taken back meanwhile."""
    if entry.applied.sure:
        return ""
    return " (whether it was taken back meanwhile is not known: its journal was not read)"
