"""From what was applied and what is read now to the changes of a story, each with its fate."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpudoctor.model import Change, OwnFile, Reason, Unknown
from gpudoctor.model.snapshot import Kind, SnapshotHead
from gpudoctor.model.story import Fate, KeptItem, KeptStep, Told
from gpudoctor.snapshots.epochs import Applied, Epoch
from gpudoctor.snapshots.fates import answered, fate_of, worst
from gpudoctor.snapshots.told_why import Entry, told

_NOT_ASKED = Unknown(Reason.NOT_MEASURED, "it was not read")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at the host gave.

    `values` are those of the changes' items, `forms` the files that would make a change last,
    `starts` the host's uptime in seconds at which what a change lives in was started, and what that
    is. Of files of ours, `overriding` says what wins over them, `units` whether their unit ran.
    """

    values: Mapping[Change, Mapping[str, str | Unknown]]
    forms: Mapping[Change, OwnFile] = field(default_factory=dict)
    starts: Mapping[Change, tuple[str, float]] = field(default_factory=dict)
    overriding: Mapping[OwnFile, str] = field(default_factory=dict)
    units: Mapping[OwnFile, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Step:
    """A step that counts, the values that no later one set anew, and what each was before."""

    applied: Applied
    step: KeptStep
    items: tuple[KeptItem, ...] = ()
    befores: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """Return whether it lasts by itself: a file of ours."""
        return all(item.lasting for item in self.step.items)


def tell(applied: Sequence[Applied], epoch: Epoch, seen: Seen) -> tuple[Told, ...]:
    """Return what became of every change that counts; the last that set a value answers for it.

    `applied` is in order of time. What was set in the boot of the story counts, files of ours of
    any boot with what they make last, and what was set again since.
    """
    steps = [_Step(one, step) for one in applied for step in one.record.steps]
    files = [one for one in steps if one.is_file]
    makes = _makes(steps, files, seen)
    counts = [one for one in steps if one.is_file or id(one) in makes or _in(one, epoch)]
    _settle(counts)
    before = {one.step.check for one in counts if one.applied.record.boot_id != epoch.now}
    served = {id(makes[id(one)]) for one in counts if one.items and id(one) in makes}
    found = []
    for one in counts:
        again = epoch.rebooted and one.step.check not in before
        if one.items and not again and not (one.is_file and id(one) in served):
            found.append(told(_entry(one, makes.get(id(one)), epoch, seen)))
    return tuple(found)


def worth_telling(
    told: Sequence[Told], epoch: Epoch, heads: Iterable[SnapshotHead], good: Collection[str]
) -> tuple[Told, ...] | None:
    """Return the changes to tell, or None where there is no story.

    After a reboot it ends once all is as set again by transactions of this boot. Without one there
    is a story only where something was lost that the newest snapshot had found `good`, or set.
    """
    if epoch.rebooted:
        again = any(h.identity.boot_id == epoch.now and h.kind is Kind.AFTER for h in heads)
        over = again and all(one.fate is Fate.KEPT for one in told)
        return None if over else tuple(told)
    after = epoch.since.transaction if epoch.since.kind is Kind.AFTER else ""
    news = [one for one in told if is_news(one) and (one.check in good or one.transaction == after)]
    quiet = [one for one in told if one.fate is Fate.KEPT]
    return (*news, *quiet) if news else None


def is_news(one: Told) -> bool:
    """Return whether something happened to a change; what was not read is no news by itself."""
    return one.fate not in {Fate.KEPT, Fate.UNKNOWN} or (one.fate is Fate.UNKNOWN and one.by != "")


def _in(one: _Step, epoch: Epoch) -> bool:
    return one.applied.record.boot_id in {epoch.boot_id, epoch.now}


def _makes(steps: Sequence[_Step], files: Sequence[_Step], seen: Seen) -> dict[int, _Step]:
    """Return, by step, the newest file of ours that makes it last.

    That is the file of its persistent form; where another version named that otherwise, the one of
    its check, if its check has just one step and one file.
    """
    found: dict[int, _Step] = {}
    for one in steps:
        form = seen.forms.get(one.step.change) if one.step.change and not one.is_file else None
        if form is None:
            continue
        mine = [f for f in files if f.step.check == one.step.check]
        same = [f for f in mine if _path(f) == form.path]
        titles = {o.step.title for o in steps if o.step.check == one.step.check and not o.is_file}
        alone = len(titles) == 1 and len({_path(f) for f in mine}) == 1
        if fitting := same or (mine if alone else []):
            found[id(one)] = fitting[-1]
    return found


def _path(one: _Step) -> str:
    return one.step.change.path if isinstance(one.step.change, OwnFile) else one.step.title


def _settle(counts: Sequence[_Step]) -> None:
    """Give every step the values of which it is the last writer, and their values before."""
    last = {item.name: one for one in counts for item in one.step.items}
    befores: dict[str, list[str]] = {}
    for one in counts:
        for item in one.step.items:
            befores.setdefault(item.name, []).append(item.before)
            one.befores[item.name] = list(befores[item.name])
        one.items = tuple(item for item in one.step.items if last[item.name] is one)


def _entry(one: _Step, file: _Step | None, epoch: Epoch, seen: Seen) -> Entry:
    change = one.step.change
    items = [(item, _now(one, item, seen)) for item in one.items]
    ended = one.applied.record.boot_id != epoch.now
    fates = tuple(fate_of(change, i, now, one.befores[i.name], ended) for i, now in items)
    form = seen.forms.get(change) if change is not None else None
    own = file.step.change if file is not None else change
    path = own if isinstance(own, OwnFile) else None
    return Entry(
        one.applied,
        one.step,
        tuple((item.name, item.wanted, _text(now)) for item, now in items),
        fates,
        ended,
        reason=next((str(now) for _, now in items if isinstance(now, Unknown)), ""),
        file=path.path if path is not None else "",
        file_fate=_file_fate(file, seen) if file is not None else None,
        can_last=form is not None or one.is_file,
        started=seen.starts.get(change, ("", 0.0)) if change is not None else ("", 0.0),
        overriding=seen.overriding.get(path, "") if path is not None else "",
        unit=seen.units.get(path, "") if path is not None else "",
    )


def _file_fate(file: _Step, seen: Seen) -> Fate:
    """Return whether a file of ours is in place, in whatever boot it was written."""
    change = file.step.change
    items = file.items or file.step.items
    return worst(fate_of(change, i, _now(file, i, seen), [i.before], False) for i in items)


def _now(one: _Step, item: KeptItem, seen: Seen) -> str | Unknown:
    change = one.step.change
    if change is None:
        return Unknown(Reason.PARSE_FAILED, "this gpudoctor does not know such a change")
    return answered(change, item.name, seen.values.get(change, {}).get(item.name, _NOT_ASKED))


def _text(now: str | Unknown) -> str:
    return f"({now})" if isinstance(now, Unknown) else now
