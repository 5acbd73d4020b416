"""`gpudoctor snapshot prune`: what goes, once asked; what stays, and why."""

import argparse
import os
import sys
from pathlib import Path

import pytest

from gpudoctor.cli_prune import _standing
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model.error import HostUnreachable, Refusal
from gpudoctor.model.plan import State, Transaction
from gpudoctor.model.snapshot import Kind
from gpudoctor.snapshots.catalog import all_heads
from tests.cli_rig import machine_of
from tests.snapshot_rig import MACHINE, OTHER, answer, audit, audits, kept, run

T = "20260101-000000-abcdef"
PRUNE = ("prune", "--keep", "1", "--host", "root@gpu1")


def stands(monkeypatch: pytest.MonkeyPatch, *known: Transaction, refuses: str = "") -> None:
    """Let the host that is asked know these transactions."""

    async def told(*_: object) -> list[Transaction]:
        if refuses:
            raise HostUnreachable(refuses)
        return list(known)

    monkeypatch.setattr("gpudoctor.cli_prune.transactions", told)


def transaction(state: State) -> Transaction:
    return Transaction(T, state, "me", "", (), (), "boot-1")


def pair(days: str = "02") -> list[str]:
    """Keep a transaction's pair and two newer snapshots; return the ids, oldest first."""
    made = [
        kept(audit(f"2026-01-{days}T00:00:00+00:00"), Kind.BEFORE, T),
        kept(audit(f"2026-01-{days}T00:01:00+00:00"), Kind.AFTER, T),
        kept(audit("2026-01-05T00:00:00+00:00")),
        kept(audit("2026-01-06T00:00:00+00:00")),
    ]
    return [head.id for head in made]


def ids() -> list[str]:
    return [head.id for head in all_heads()[0]][::-1]


def test_a_closed_input_is_nobody_to_ask(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair()
    monkeypatch.setattr("sys.stdin", None)
    code, _, err = run(capsys, "prune", "--older", "0")
    sys.stdin.close()
    assert code == 1 and "nobody can be asked here" in err and len(ids()) == 4


def test_prune_keeps_the_pair_that_stands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pair()
    audits(monkeypatch, audit())
    stands(monkeypatch, transaction(State.CONFIRMED))
    code, out, _ = run(capsys, *PRUNE, "--yes")
    assert code == 0 and ids() == [made[0], made[1], made[3]]
    assert f"transaction {T} may still be undone" in out and "removed: 1 snapshot\n" in out


@pytest.mark.parametrize("known", [(), (transaction(State.UNDONE),)])
def test_prune_lets_a_pair_go_that_the_host_says_is_over(
    known: tuple[Transaction, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = pair()
    audits(monkeypatch, audit())
    stands(monkeypatch, *known)
    said = answer(capsys, *PRUNE, "--yes")
    assert ids() == made[3:] and [one["id"] for one in said["removed"]] == made[2::-1]
    assert said["kept"] == []


def test_prune_keeps_every_pair_of_a_host_that_cannot_be_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pair()
    stands(monkeypatch, refuses="gpu1 does not answer")
    code, out, _ = run(capsys, *PRUNE, "--yes")
    assert code == 0 and ids() == [made[0], made[1], made[3]]
    assert "root@gpu1 could not be asked what stands there: gpu1 does not answer" in out


def test_prune_asks_one_host_and_keeps_the_pairs_of_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pair()
    stands(monkeypatch, refuses="it was asked")
    code, out, _ = run(capsys, "prune", "--keep", "1", "--yes")
    assert code == 0 and ids() == [made[0], made[1], made[3]] and "it was asked" not in out
    assert "root@gpu1 was not asked what stands there: --host names one to ask" in out
    said = answer(capsys, "prune", "--keep", "1", "--yes")
    assert said["not_asked"].startswith("root@gpu1 was not asked")
    assert {kept_back["snapshot"]["id"] for kept_back in said["kept"]} >= set(made[:2])
    audits(monkeypatch, audit(machine=OTHER))  # another machine has that name now
    stands(monkeypatch)
    assert run(capsys, *PRUNE, "--yes")[0] == 0
    assert ids() == [made[0], made[1], made[3]]


def test_prune_without_pairs_asks_no_host(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stands(monkeypatch, refuses="it was asked")
    kept(audit("2026-01-01T00:00:00+00:00"))
    newest = kept(audit("2026-01-02T00:00:00+00:00"))
    code, out, _ = run(capsys, "prune", "--keep", "1", "--yes")
    assert code == 0 and ids() == [newest.id] and "asked" not in out


def test_prune_needs_a_yes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pair()
    audits(monkeypatch, audit())
    stands(monkeypatch)
    code, out, err = run(capsys, *PRUNE)
    assert code == 1 and "give --yes" in err and "goes:" in out and ids() == made
    monkeypatch.setattr("gpudoctor.cli_ask.at_terminal", lambda: True)
    for typed, left in ((False, made), (True, made[3:])):
        monkeypatch.setattr("gpudoctor.cli_ask.said_yes", lambda _, yes=typed: yes)
        code, _, err = run(capsys, *PRUNE)
        assert ids() == left and code == (0 if typed else 1)
    assert run(capsys, *PRUNE) == (0, "no snapshot is to go\n", "")
    assert "--read-only refuses" in run(capsys, *PRUNE, "--read-only")[2]


def test_prune_leaves_what_it_cannot_read_and_takes_what_writers_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    head = kept(audit())
    folder = Path(head.path).parent
    (folder / "x.toml").write_text("foreign")
    (folder / ".y.toml.00000000.new").write_text("half")
    os.utime(folder / ".y.toml.00000000.new", (0, 0))
    said = answer(capsys, "prune", "--keep", "1", "--yes")
    assert said["unfinished"] == 1 and Path(said["unreadable"][0]["file"]).name == "x.toml"
    assert sorted(path.name for path in folder.iterdir()) == [Path(head.path).name, "x.toml"]


def test_prune_tells_what_could_not_be_removed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(audit("2026-01-01T00:00:00+00:00"))
    kept(audit())

    def denied(*_: object) -> None:
        raise Refusal("x cannot be removed (Permission denied)", 1)

    monkeypatch.setattr("gpudoctor.cli_prune.remove", denied)
    code, out, _ = run(capsys, "prune", "--keep", "1", "--yes")
    assert code == 1 and "NOT REMOVED: x cannot be removed" in out and len(ids()) == 2
    said = answer(capsys, "prune", "--keep", "1", "--yes")
    assert said["exit_code"] == 1 and said["not_removed"][0]["why"].startswith("x cannot")


async def test_a_live_target_is_asked_for_what_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without stubs: the simulated machine has no transaction, and tells its machine id."""
    machine = machine_of({"/etc/machine-id": f"{MACHINE}\n"})
    args = argparse.Namespace(make_target=lambda: SimulatedTarget(machine, NO_WAIT))
    seen, standing = await _standing(args)
    assert (seen.identity.machine_id, standing) == (MACHINE, set())
