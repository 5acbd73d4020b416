"""Which snapshots may go by count and age, and which never do."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpudoctor.model.audited import Identity
from gpudoctor.model.error import Refusal
from gpudoctor.model.snapshot import Kind, SnapshotHead
from gpudoctor.model.story import KeptItem, KeptStep, PlanRecord
from gpudoctor.snapshots.catalog import heads
from gpudoctor.snapshots.notes import set_note
from gpudoctor.snapshots.plans import SUFFIX, dump
from gpudoctor.snapshots.prune import ended_by_reboot, kept_back, prunable, remove
from gpudoctor.snapshots.store import machine_folder, write_whole
from tests.snapshot_rig import MACHINE, audit, kept

NOW = datetime(2026, 1, 31, tzinfo=UTC)
T = "20260101-000000-abcdef"


def head(days: float, transaction: str = "", machine: str = "m", taken: str = "") -> SnapshotHead:
    when = taken or (NOW - timedelta(days=days)).isoformat(timespec="seconds")
    path = f"/store/{machine}/{days}.toml"
    return SnapshotHead("ab", Kind.MANUAL, "", "", when, "", path, 1, transaction=transaction)


TEN = [head(days) for days in range(10)]


@pytest.mark.parametrize(
    ("keep", "older", "goes"),
    [
        (3, None, TEN[3:]),
        (20, None, []),
        (None, 6.5, TEN[7:]),
        (None, 0, TEN[1:]),
        (2, 6.5, TEN[7:]),
        (8, 6.5, TEN[8:]),
    ],
)
def test_by_count_and_by_age(
    keep: int | None, older: float | None, goes: list[SnapshotHead]
) -> None:
    assert prunable(TEN, keep, older, now=NOW) == goes


def test_each_machine_is_counted_by_itself() -> None:
    known = [head(1), head(2, machine="n"), head(3), head(4, machine="n")]
    assert prunable(known, 1, None, now=NOW) == [known[2], known[3]]


def test_the_newest_stays_whatever_its_age() -> None:
    known = [head(50), head(60)]
    assert prunable(known, None, 10, now=NOW) == [known[1]]
    (stays,) = kept_back(known, None, 10, now=NOW)
    assert stays.head is known[0] and "the newest of its host" in stays.why


def test_a_pair_that_an_undo_may_need_stays_and_says_so() -> None:
    known = [head(0), head(1, T), head(2, "other"), head(3, T)]
    assert prunable(known, 1, None, {T}, NOW) == [known[2]]
    told = kept_back(known, 1, None, {T}, NOW)
    assert [one.head for one in told] == [known[1], known[3]]
    assert all(one.why == f"transaction {T} may still be undone" for one in told)


def test_what_tells_no_time_stays() -> None:
    known = [head(0), head(2), head(1, taken="yesterday")]
    assert prunable(known, 1, 1, now=NOW) == [known[1]]
    assert [one.why for one in kept_back(known, 1, 1, now=NOW)] == ["its header tells no time"]
    assert prunable([head(0), head(9, taken="2026-01-01T00:00:00")], 1, 1, now=NOW)


def test_a_clock_that_was_ahead_costs_no_newer_snapshot() -> None:
    known = [head(-400), head(0.1), head(1), head(2)]
    assert prunable(known, 1, None, now=NOW) == known[2:]
    assert prunable(known, None, 0, now=NOW) == known[2:]
    alone = [head(-400), head(-1)]
    assert prunable(alone, 1, None, now=NOW) == []


def record(boot: str, lasting: bool = False) -> None:
    items = (KeptItem("a", "0", "1"), KeptItem("b", "0", "1", lasting))
    made = PlanRecord(
        T, "root@gpu1", "me", MACHINE, boot, NOW.isoformat(), (KeptStep("c", 0, "t", items),)
    )
    write_whole(machine_folder(MACHINE, "") / f"{T}{SUFFIX}", dump(made))


def test_a_reboot_that_was_seen_ended_what_does_not_last() -> None:
    known = [kept(audit(boot="boot-1"))]
    assert ended_by_reboot(known) == set()
    record("boot-1")
    assert ended_by_reboot(known) == set()
    record("boot-0")
    assert ended_by_reboot(known) == {T}
    assert ended_by_reboot([replace(known[0], identity=audit(boot="").identity)]) == set()
    record("boot-0", lasting=True)
    assert ended_by_reboot(known) == set()
    record("")
    assert ended_by_reboot(known) == set()


def test_the_boot_of_a_clone_ended_nothing() -> None:
    record("boot-1")  # of root@gpu1
    clone = kept(audit("2026-01-04T00:00:00+00:00", label="root@gpu2", boot="boot-9"))
    here = kept(audit(boot="boot-1"))
    assert ended_by_reboot([clone, here]) == set()
    assert ended_by_reboot([replace(clone, label="root@gpu1"), here]) == {T}


def test_the_last_of_the_boot_before_stays_until_its_story_was_seen() -> None:
    def of(days: float, kind: Kind, boot: str) -> SnapshotHead:
        return replace(head(days), kind=kind, identity=Identity(boot_id=boot))

    known = [of(0, Kind.BOOT, "b2"), of(1, Kind.AFTER, "b1"), of(2, Kind.BEFORE, "b1")]
    assert prunable(known, 1, None, now=NOW) == known[2:]
    stays = kept_back(known, None, 0, now=NOW)[-1]
    assert stays.head is known[1] and "boot before" in stays.why
    seen = [of(0, Kind.MANUAL, "b2"), *known[1:]]
    assert prunable(seen, 1, None, now=NOW) == known[1:]


def test_the_note_goes_with_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = kept(audit()), kept(audit())
    set_note(first, "x")
    remove(first)
    remove(first)  # somebody else was faster
    folder = machine_folder(MACHINE, "")
    assert heads(folder)[0] == [second]
    assert [path.name for path in folder.iterdir()] == [Path(second.path).name]

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", denied)
    with pytest.raises(Refusal, match="cannot be removed") as no:
        remove(second)
    assert no.value.code == 1
