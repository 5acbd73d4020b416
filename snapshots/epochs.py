"""What counts when a story is told: which snapshot is the last of then, and which transactions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.model.plan import State, Transaction
from gpudoctor.model.snapshot import Kind, SnapshotHead
from gpudoctor.model.story import PlanRecord

_KEPT = frozenset({State.APPLIED, State.CONFIRMED})


@dataclass(frozen=True, slots=True)
class Epoch:
    """The boot that a story is about, and the last snapshot of it; `now` is the boot there now."""

    boot_id: str
    now: str
    since: SnapshotHead

    @property
    def rebooted(self) -> bool:
        """Return whether that boot has ended."""
        return self.boot_id != self.now


@dataclass(frozen=True, slots=True)
class Applied:
    """A transaction that was applied and not taken back, as far as anybody here can tell.

    `began` is the host's uptime then in seconds, 0 where unknown. `sure`: the host's own journal
    says so; else a snapshot after it was kept here, and nobody took it back from here.
    """

    record: PlanRecord
    began: float = 0.0
    sure: bool = True

    @property
    def lasting(self) -> bool:
        """Return whether a value of it outlives a reboot."""
        return any(item.lasting for step in self.record.steps for item in step.items)


def epoch(heads: Sequence[SnapshotHead], boot_id: str) -> Epoch | None:
    """Return which boot there is to tell of; `heads` are the machine's, newest first.

    It is the boot before this one until a snapshot was taken by hand in this one: one at boot, and
    those of transactions, say nothing of what an operator has seen. So a boot of which there is
    none but one at boot is passed over: what was set before it was lost all the same.
    """
    known = [head for head in heads if head.identity.boot_id and not head.simulated]
    others = [head for head in known if head.identity.boot_id != boot_id]
    before = next((head for head in others if head.kind is not Kind.BOOT), next(iter(others), None))
    mine = [head for head in known if head.identity.boot_id == boot_id]
    ended = before is None or any(head.kind is Kind.MANUAL for head in mine)
    since = mine[0] if ended and mine else before
    return None if since is None else Epoch(since.identity.boot_id, boot_id, since)


def counted(
    records: Iterable[PlanRecord],
    journals: Mapping[str, Transaction] | None,
    heads: Iterable[SnapshotHead],
) -> list[Applied]:
    """Return the records of what was applied and not taken back, in the order of the records.

    `journals` are the host's, by transaction; None where only root may read them. One whose journal
    is not there any more counts where it was seen applied from here.
    """
    seen = {head.transaction for head in heads if head.kind is Kind.AFTER}
    found = []
    for record in records:
        one = (journals or {}).get(record.id)
        if one is not None and one.state in _KEPT:
            found.append(Applied(record, one.began))
        elif one is None and record.id in seen:
            found.append(Applied(record, sure=False))
    return found


def others(
    journals: Mapping[str, Transaction] | None, records: Iterable[PlanRecord], which: Epoch
) -> list[Transaction]:
    """Return the transactions of the boot of the story, and lasting ones, without a record here."""
    known = {record.id for record in records}
    return [
        one
        for one in (journals or {}).values()
        if one.id not in known
        and one.state in _KEPT
        and (one.boot_id == which.boot_id or one.lasting)
    ]
