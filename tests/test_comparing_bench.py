"""What a diff says of benchmarks that were taken meanwhile."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.comparing import differing
from gpudoctor.model.audited import Identity
from gpudoctor.model.bench import BenchRun
from gpudoctor.model.diff import Compared
from gpudoctor.model.snapshot import Kind, SnapshotHead
from gpudoctor.snapshots.benchmarks import keep_run
from tests.test_bench_verdict import run

MACHINE = "a" * 32
EARLY, LATE = "2026-01-01T10:00:00+00:00", "2026-01-01T12:00:00+00:00"


def side(taken: str, kind: Kind = Kind.MANUAL, machine: str = MACHINE, of: str = "") -> Compared:
    who = Identity("gpu1", machine, "boot")
    return Compared(
        SnapshotHead(taken, kind, "gpu1", "root", taken, "0", "", 0, who, of), {}, ()
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keep(run(0.012, 0.001, 1), "slow", "2026-01-01T09:00:00+00:00")
    keep(run(0.010, 0.001, 2), "fast", "2026-01-01T11:00:00+00:00", "T1")


def keep(one: BenchRun, name: str, taken: str, transaction: str = "") -> None:
    mine = replace(one, id=name, taken=taken, transaction=transaction, label="gpu1")
    keep_run(replace(mine, machine_id=MACHINE, boot_id="boot"))


def told(old: Compared, new: Compared) -> list[str]:
    return [one for one in differing(old, new).remarks if "benchmark" in one]


def test_it_moved() -> None:
    (sentence,) = told(side(EARLY), side(LATE))
    assert sentence.startswith("benchmark slow -> fast: faster, time per token -16.")


def test_the_run_after_a_transaction_is_that_of_its_snapshot() -> None:
    after = side("2026-01-01T10:30:00+00:00", Kind.AFTER, of="T1")
    assert told(side(EARLY), after) and not told(side(EARLY), replace_kind(after))


def replace_kind(one: Compared) -> Compared:
    return replace(one, head=replace(one.head, transaction="T2"))


def test_nothing_is_said_without_two_runs_of_one_machine() -> None:
    assert not told(side("2026-01-01T08:00:00+00:00"), side(LATE))
    assert not told(side(EARLY), side("2026-01-01T10:10:00+00:00"))
    assert not told(side(EARLY, machine="b" * 32), side(LATE))
