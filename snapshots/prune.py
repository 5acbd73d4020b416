"""Which snapshots may go: by count and by age, and never one that an undo or a story needs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpudoctor.model.error import Refusal
from gpudoctor.model.snapshot import SnapshotHead
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
    given, only what neither keeps goes. The newest of a machine, one whose time is not known, and
    the snapshots of `protected` transactions always stay.
    """
    old = _old(heads, keep, older_days, now or datetime.now(UTC))
    return [head for head in old if not _why_kept(head, protected, heads)]


def kept_back(
    heads: Sequence[SnapshotHead],
    keep: int | None,
    older_days: float | None,
    protected: Collection[str] = (),
    now: datetime | None = None,
) -> list[Kept]:
    """Return what `prunable` leaves out of those that are old enough, and why."""
    old = _old(heads, keep, older_days, now or datetime.now(UTC))
    told = ((head, _why_kept(head, protected, heads)) for head in old)
    return [Kept(head, why) for head, why in told if why]


def _old(
    heads: Sequence[SnapshotHead], keep: int | None, older_days: float | None, now: datetime
) -> list[SnapshotHead]:
    """Return what is beyond the count and the age given, on its own machine."""
    counted: dict[Path, int] = {}
    old = []
    for head in heads:
        folder = Path(head.path).parent
        counted[folder] = counted.get(folder, 0) + 1
        too_many = keep is None or counted[folder] > keep
        if too_many and _too_old(head, older_days, now):
            old.append(head)
    return old


def _too_old(head: SnapshotHead, older_days: float | None, now: datetime) -> bool:
    taken = when(head)
    return older_days is None or taken is None or now - taken > timedelta(days=older_days)


def _why_kept(head: SnapshotHead, protected: Collection[str], heads: Iterable[SnapshotHead]) -> str:
    if head.transaction and head.transaction in protected:
        return f"transaction {head.transaction} may still be undone"
    folder = Path(head.path).parent
    newest = next(one for one in heads if Path(one.path).parent == folder)
    if head is newest:
        return "the newest of its host: what a reboot took is told against it"
    return "" if when(head) else "its header tells no time"


def ended_by_reboot(heads: Sequence[SnapshotHead]) -> set[str]:
    """Return the transactions of which a reboot seen since left nothing to undo.

    `heads` are newest first. Known from the plan record alone: nothing of it outlives a reboot,
    and its machine's newest snapshot is of another boot.
    """
    newest: dict[Path, SnapshotHead] = {}
    for head in heads:
        newest.setdefault(Path(head.path).parent, head)
    return {
        record.id
        for folder, head in newest.items()
        for record in records_in(folder)
        if record.boot_id and head.identity.boot_id not in {"", record.boot_id}
        if not any(item.lasting for step in record.steps for item in step.items)
    }


def remove(head: SnapshotHead) -> None:
    """Remove a snapshot of the store and its note. Raises Refusal (code 1)."""
    path = Path(head.path)
    try:
        path.unlink(missing_ok=True)
        path.with_name(head.id + SUFFIX).unlink(missing_ok=True)
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
