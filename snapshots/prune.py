"""Which snapshots may go: by count and by age, and never one that an undo or a story needs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpudoctor.model.error import Refusal
from gpudoctor.model.snapshot import SnapshotHead
from gpudoctor.model.story import PlanRecord
from gpudoctor.snapshots.clones import Machine, are_two, machines
from gpudoctor.snapshots.epochs import epoch
from gpudoctor.snapshots.head import when
from gpudoctor.snapshots.notes import SUFFIX
from gpudoctor.snapshots.plans import records_in
from gpudoctor.snapshots.store import left_over


@dataclass(frozen=True, slots=True)
class Kept:
    """A snapshot that is old enough to go, and why it stays, in one sentence."""

    head: SnapshotHead
    why: str


def prunable(
    heads: Sequence[SnapshotHead],
    keep: int | None,
    older_days: float | None,
    protected: Collection[str] = (),
    now: datetime | None = None,
) -> list[SnapshotHead]:
    """Return what may go of `heads` (newest first), newest first.

    Of each machine the `keep` newest stay, and what is younger than `older_days` days; with both
    given, only what neither keeps goes. The newest of a machine, one whose time is not known or
    still to come (not counted either), and the snapshots of `protected` transactions always stay.
    """
    now = now or datetime.now(UTC)
    old, needed = _old(heads, keep, older_days, now), _needed(heads, now)
    return [head for head in old if not _why_kept(head, protected, needed, now)]


def kept_back(
    heads: Sequence[SnapshotHead],
    keep: int | None,
    older_days: float | None,
    protected: Collection[str] = (),
    now: datetime | None = None,
) -> list[Kept]:
    """Return what `prunable` leaves out of those that are old enough, and why."""
    now = now or datetime.now(UTC)
    old, needed = _old(heads, keep, older_days, now), _needed(heads, now)
    told = ((head, _why_kept(head, protected, needed, now)) for head in old)
    return [Kept(head, why) for head, why in told if why]


def _old(
    heads: Sequence[SnapshotHead], keep: int | None, older_days: float | None, now: datetime
) -> list[SnapshotHead]:
    """Return what is beyond the count and the age given, on its own machine."""
    counted: dict[Machine, int] = {}
    old, of = [], machines(heads)
    for head in heads:
        machine = of[head.path]
        counted[machine] = counted.get(machine, 0) + (not _no_age(head, now))
        too_many = keep is None or counted[machine] > keep
        if too_many and _too_old(head, older_days, now):
            old.append(head)
    return old


def _too_old(head: SnapshotHead, older_days: float | None, now: datetime) -> bool:
    taken = when(head)
    return older_days is None or taken is None or now - taken > timedelta(days=older_days)


def _no_age(head: SnapshotHead, now: datetime) -> str:
    """Return why a snapshot's age is not known, or nothing."""
    taken = when(head)
    if taken is None:
        return "its header tells no time"
    return "by this machine's clock its time is still to come" if taken > now else ""


def _why_kept(
    head: SnapshotHead, protected: Collection[str], needed: Mapping[str, str], now: datetime
) -> str:
    if head.transaction and head.transaction in protected:
        return f"transaction {head.transaction} may still be undone"
    return _no_age(head, now) or needed.get(head.path, "")


def _needed(heads: Sequence[SnapshotHead], now: datetime) -> dict[str, str]:
    """Return, by path, why a story needs a snapshot: of each machine's, the newest first."""
    by_machine: dict[Machine, list[SnapshotHead]] = {}
    of = machines(heads)
    for head in heads:
        if not _no_age(head, now):
            by_machine.setdefault(of[head.path], []).append(head)
    found = {}
    for mine in by_machine.values():
        if told := epoch(mine, mine[0].identity.boot_id):
            why = "the last of the boot before: what the reboot took is told against it"
            found[told.since.path] = why
        found[mine[0].path] = "the newest of its host: what a reboot took is told against it"
    return found


def ended_by_reboot(heads: Sequence[SnapshotHead]) -> set[str]:
    """Return the transactions of which a reboot seen since left nothing to undo.

    `heads` are newest first. Known from the plan record alone: nothing of it outlives a reboot,
    and the newest snapshot of its host is of another boot: clones may share a machine id.
    """
    now = datetime.now(UTC)
    newest: dict[tuple[Machine, str], SnapshotHead] = {}
    of = machines(heads)
    for head in (one for one in heads if not _no_age(one, now)):
        newest.setdefault((of[head.path], head.label), head)
    by_folder: dict[Path, list[SnapshotHead]] = {}
    for ((folder, _), _label), head in newest.items():
        by_folder.setdefault(folder, []).append(head)
    return {
        record.id
        for folder, some in by_folder.items()
        for record in records_in(folder)
        if _was_rebooted(record, some)
        if not any(item.lasting for step in record.steps for item in step.items)
    }


def _was_rebooted(record: PlanRecord, newest: Iterable[SnapshotHead]) -> bool:
    """Return whether all of the newest snapshots that may be of its host are of another boot."""
    boots = [
        head.identity.boot_id
        for head in newest
        if head.label == record.label and not are_two(head.identity.system_uuid, record.system_uuid)
    ]
    return bool(record.boot_id and boots) and not {"", record.boot_id} & {*boots}


def remove(head: SnapshotHead) -> None:
    """Remove a snapshot of the store and its note. Raises Refusal (code 1)."""
    path = Path(head.path)
    try:
        path.unlink(missing_ok=True)
        path.with_name(path.name + SUFFIX).unlink(missing_ok=True)
    except OSError as error:
        raise Refusal(f"{path.name} cannot be removed ({error.strerror})", 1) from error


def remove_left_over(folders: Iterable[Path]) -> int:
    """Remove what killed writers left, and return how many files; what cannot go stays."""
    gone = 0
    for path in (left for folder in folders for left in left_over(folder)):
        try:
            path.unlink()
        except OSError:
            continue
        gone += 1
    return gone
