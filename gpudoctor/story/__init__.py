"""The story at a start: what became of what was set here, before any audit."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpudoctor.fixes import mechanism_of
from gpudoctor.hosts.root_shell import LiveShell
from gpudoctor.hosts.target import LiveTarget, Target
from gpudoctor.model import Change, OwnFile, Status
from gpudoctor.model.audited import Identity
from gpudoctor.model.error import AnotherMachine, Refusal
from gpudoctor.model.plan import Transaction
from gpudoctor.model.snapshot import Kind, SnapshotHead
from gpudoctor.model.story import Fate, KeptStep, PlanRecord, Story, Told
from gpudoctor.snapshots.catalog import all_heads, load_head, reached
from gpudoctor.snapshots.clones import own
from gpudoctor.snapshots.epochs import Applied, Epoch, counted, epoch, others
from gpudoctor.snapshots.head import when
from gpudoctor.snapshots.plans import records_in
from gpudoctor.snapshots.store import machine_folder
from gpudoctor.snapshots.telling import Seen, is_news, tell, worth_telling
from gpudoctor.story.audited import after_audit as after_audit
from gpudoctor.story.reads import Look, glance, look_at, overriding
from gpudoctor.text import one_line
from gpudoctor.transaction_script import PLACES, Places

_SHORT = 8
_ELSEWHERE = "no record of it is here (it was set from elsewhere): its values are not known"


async def look(target: Target, places: Places = PLACES) -> Story | None:
    """Return the story of a host, over one login; None where there is nothing to tell.

    Takes a target that is not connected. Raises Refusal or HostUnreachable, and AnotherMachine
    where what answers is not what the store knows by this name. A host of which the store holds
    nothing under this name is not asked at all.
    """
    async with looking(target, places) as story:
        return story


@asynccontextmanager
async def looking(target: Target, places: Places = PLACES) -> AsyncGenerator[Story | None, None]:
    """Give what `look` returns before logging out, which takes a slow machine a second."""
    known = await asyncio.to_thread(_known, target.label) if isinstance(target, LiveTarget) else {}
    if not isinstance(target, LiveTarget) or not known:
        yield None
        return
    heads = [head for some in known.values() for head in some]
    records = [one for folder, some in known.items() for one in _records(folder, some)]
    steps = _steps(_near(heads, records))
    shell = LiveShell(target)
    try:
        await target.connect()
        seen = await glance(target, steps, places)
        if seen is None:
            await shell.open()
            seen = await look_at(shell, steps, places)
        yield await _looked(shell, target.label, seen, known)
    finally:
        await asyncio.shield(shell.close())


async def _looked(
    shell: LiveShell, label: str, seen: Look, known: Mapping[Path, Sequence[SnapshotHead]]
) -> Story | None:
    """Return the story of the machine that answers. Raises AnotherMachine for one not known."""
    who = Identity(machine_id=seen.machine_id, system_uuid=seen.system_uuid)
    folder = machine_folder(seen.machine_id, label)
    heads = own(known.get(folder, ()), label, who)
    if not heads:
        raise AnotherMachine(stranger(label, who, [h for some in known.values() for h in some]))
    if not seen.boot_id:
        raise Refusal(f"{label}: its boot id could not be read: what a reboot took is not known")
    records = _records(folder, heads, who.system_uuid)
    return await _story(shell, label, seen, heads, records)


def stranger(label: str, who: Identity, known: Iterable[SnapshotHead]) -> str:
    """Return in one sentence that another machine answers than the one that is known."""
    name, end = one_line(label, 80), "no story is told of it"
    whole = [head.identity for head in known]
    ids = dict.fromkeys(f"{one.machine_id[:_SHORT]}…" for one in whole if one.machine_id)
    uuids = dict.fromkeys(one.system_uuid for one in whole if one.system_uuid)
    mine = f"{who.machine_id[:_SHORT]}…"
    if not who.machine_id or not ids:
        whose = "the snapshots kept under this name tell no machine id"
        why = whose if who.machine_id else "its machine id could not be read"
        return f"whether {name} is the machine whose snapshots are kept is not known: {why}; {end}"
    lead = f"{name} is another machine than the one whose snapshots are kept under this name"
    if mine not in ids:
        return f"{lead}: its machine id is {mine}, theirs {' or '.join(ids)}; {end}"
    if not who.system_uuid:
        why = f"clones share machine id {mine}, and only root reads the system UUID"
        return f"which machine {name} is of those whose snapshots are kept is not known: {why}"
    return (
        f"{lead}: both have machine id {mine}, but its system UUID is {who.system_uuid}, theirs "
        f"{' or '.join(uuids)} (a clone, or another board); {end}"
    )


def _known(label: str) -> dict[Path, list[SnapshotHead]]:
    """Return the snapshots of the machines once reached by a name, by folder, newest first.

    Clones may share a machine id, and so a folder: another name counts where the system UUID, or
    else the hostname, is one that was read under this name.
    """
    try:
        heads = reached(all_heads()[0], label)
    except Refusal:
        return {}
    found: dict[Path, list[SnapshotHead]] = {}
    for head in heads:
        found.setdefault(Path(head.path).parent, []).append(head)
    return {folder: _of_one(label, some) for folder, some in found.items()}


def _of_one(label: str, heads: Iterable[SnapshotHead]) -> list[SnapshotHead]:
    """Return the snapshots of the host of a name, among those of its clones."""
    heads = list(heads)
    mine = [head.identity for head in heads if head.label == label]
    names = {who.hostname for who in mine} - {""}
    uuids = {who.system_uuid for who in mine} - {""}
    return [
        head
        for head in heads
        if head.label == label
        or head.identity.system_uuid in uuids
        or head.identity.hostname in names
    ]


def _records(folder: Path, heads: Iterable[SnapshotHead], uuid: str = "") -> list[PlanRecord]:
    """Return the records in a folder of the transactions on the host that these are of.

    Where system UUIDs are known, by these; else by the names that it was reached by.
    """
    heads = list(heads)
    labels = {head.label for head in heads}
    uuids = {uuid, *(head.identity.system_uuid for head in heads)} - {""}
    return [
        one
        for one in records_in(folder)
        if (
            one.system_uuid in uuids if one.system_uuid and uuids else one_line(one.label) in labels
        )
    ]


def _near(heads: Iterable[SnapshotHead], records: Sequence[PlanRecord]) -> list[PlanRecord]:
    """Return the records that may count: of the last two boots seen, and what lasts with its own.

    One of them is the boot of the story, whichever boot the host is in: two with those that were
    only seen as they began, and two without, which `epoch` passes over.
    """
    seen: dict[tuple[Path, bool], dict[str, None]] = {}
    for head in heads:
        for every in (True, head.kind is Kind.BOOT):
            boots = seen.setdefault((Path(head.path).parent, every), {})
            if head.identity.boot_id and len(boots) < 2:
                boots[head.identity.boot_id] = None
    near = {boot for boots in seen.values() for boot in boots}
    steps = [step for one in records for step in one.steps]
    lasting = {step.check for step in steps if any(item.lasting for item in step.items)}
    return [one for one in records if one.boot_id in near or lasting & {s.check for s in one.steps}]


def _steps(records: Iterable[PlanRecord]) -> list[KeptStep]:
    return [step for record in records for step in record.steps]


async def _story(
    shell: LiveShell,
    label: str,
    seen: Look,
    heads: Sequence[SnapshotHead],
    records: Sequence[PlanRecord],
) -> Story | None:
    which = epoch(heads, seen.boot_id)
    if which is None:
        return None
    told = told_of(seen, which, heads, records, {})
    if files := _overridden(records, told):
        await shell.open()
        told = told_of(seen, which, heads, records, await overriding(shell, files))
    good = frozenset[str]()
    if not which.rebooted and any(map(is_news, told)):
        good = await asyncio.to_thread(_good, which.since)
    worth = worth_telling(told, which, heads, good)
    if worth is None:
        return None
    return Story(label, which.rebooted, happened(which, seen, worth), which.since, worth)


def told_of(
    seen: Look,
    which: Epoch,
    heads: Sequence[SnapshotHead],
    records: Sequence[PlanRecord],
    winners: Mapping[OwnFile, str],
) -> tuple[Told, ...]:
    """Return what became of every change; `winners` say what wins over files of ours."""
    there = None if seen.told is None else {name: one for name, (one, _) in seen.told.items()}
    near = _near(heads, records)
    applied = _not_newer(counted(near, there, heads), others(there, records, which))
    about = Seen(seen.values, _forms(near), seen.starts, winners, seen.units)
    return tell(applied, which, about) + _others(seen, which, records)


def _not_newer(applied: Iterable[Applied], by_others: Sequence[Transaction]) -> list[Applied]:
    """Return what no later transaction from elsewhere has set anew, check by check."""
    found = []
    for one in applied:
        later = {
            check
            for other in by_others
            if other.boot_id == one.record.boot_id and other.began > one.began > 0
            for check in other.checks
        }
        steps = tuple(step for step in one.record.steps if step.check not in later)
        found.append(replace(one, record=replace(one.record, steps=steps)))
    return found


def _forms(records: Iterable[PlanRecord]) -> dict[Change, OwnFile]:
    """Return the file that would make each change last, where there is one."""
    found: dict[Change, OwnFile] = {}
    for step in _steps(records):
        if step.change is not None:
            before = {item.name: item.before for item in step.items}
            form = mechanism_of(step.change).persist(step.change, before)
            if isinstance(form, OwnFile):
                found[step.change] = form
    return found


def _overridden(records: Iterable[PlanRecord], told: Iterable[Told]) -> list[OwnFile]:
    """Return the files of ours that are in place, and whose values are not as they say."""
    checks = {one.check for one in told if one.fate is Fate.OVERRIDDEN}
    steps = [step for step in _steps(records) if step.check in checks]
    return list(dict.fromkeys(s.change for s in steps if isinstance(s.change, OwnFile)))


def _others(seen: Look, which: Epoch, records: Iterable[PlanRecord]) -> tuple[Told, ...]:
    """Return what other clients applied there, by check and title; the audit tells its fate."""
    told = seen.told or {}
    found = others({name: one for name, (one, _) in told.items()}, records, which)
    return tuple(
        Told(
            one.id,
            one.operator,
            one.started,
            check,
            0,
            title,
            Fate.UNKNOWN,
            _ELSEWHERE,
        )
        for one in found
        for check, title in told[one.id][1]
    )


def _good(since: SnapshotHead) -> frozenset[str]:
    """Return the checks that a snapshot found good; none where it cannot be read."""
    try:
        found = load_head(since, verify=False).findings
    except Refusal:
        return frozenset()
    bad = {f.id for f in found if f.status in {Status.ISSUE, Status.UNKNOWN}}
    return frozenset(f.id for f in found if f.status == Status.GOOD) - bad


def happened(which: Epoch, seen: Look, told: Iterable[Told]) -> str:
    """Return in one sentence what ended the epoch, or happened in it."""
    since = _in_utc(when(which.since))
    if which.rebooted:
        booted = _in_utc(datetime.now(UTC) - timedelta(seconds=seen.uptime))
        return (
            f"rebooted between {since} and {booted} UTC "
            f"(boot {one_line(which.boot_id)[:8]} -> {one_line(which.now)[:8]})"
        )
    causes = dict.fromkeys(one.by for one in told if is_news(one))
    said = ", ".join(_cause(by) for by in causes)
    return f"not rebooted since the snapshot of {since} UTC; {said}"


def _in_utc(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}" if at is not None else "a time not told"


def _cause(by: str) -> str:
    if by in {"the driver", "the container"}:
        return f"{by} was started anew"
    return "somebody else changed values" if by else "something that values were set on has ended"
