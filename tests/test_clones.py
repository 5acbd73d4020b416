"""Clones: machines that share a machine id, and so a folder of the store, and are told apart."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.formats.system_uuid import system_uuid
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.snapshot import Kind, SnapshotHead
from gpudoctor.model.story import KeptItem, KeptStep, PlanRecord
from gpudoctor.recording import dump as dump_recording
from gpudoctor.snapshots.catalog import all_heads, heads, last_of, named, reached
from gpudoctor.snapshots.clones import own
from gpudoctor.snapshots.diff_remarks import is_same_machine, remarks
from gpudoctor.snapshots.plans import dump, load
from gpudoctor.snapshots.prune import ended_by_reboot, kept_back, prunable
from gpudoctor.snapshots.store import machine_folder, write_whole
from tests.cli_rig import machine_of
from tests.snapshot_rig import MACHINE, answer, audit, audits, kept, run

ONE, TWO = "4c4c4544-0042-3510-8052-b3c04f4b4e32", "4c4c4544-0042-3510-8052-b3c04f4b4e33"
T = "20260101-000000-00000a"


def of(uuid: str, day: int, label: str = "root@gpu1", boot: str = "b", **who: str) -> AuditResult:
    """Return an audit of one of the clones, at a day of January."""
    result = audit(f"2026-01-{day:02}T00:00:00+00:00", label=label, boot=boot)
    return replace(result, identity=replace(result.identity, system_uuid=uuid, **who))


@pytest.mark.parametrize(
    ("text", "uuid"),
    [
        (f"{ONE}\n", ONE),
        (f"{ONE.upper()}\n", ONE),
        ("00000000-0000-0000-0000-000000000000\n", ""),
        ("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF\n", ""),
        ("03000200-0400-0500-0006-000700080009\n", ""),
        ("00020003-0004-0005-0006-000700080009", ""),
        ("Not Settable\n", ""),
        ("", ""),
    ],
)
def test_what_is_no_identity_is_none(text: str, uuid: str) -> None:
    assert system_uuid(text) == uuid


def test_the_header_keeps_it_and_an_older_one_has_none() -> None:
    assert kept(of(ONE, 1)).identity.system_uuid == ONE
    older = Path(kept(of("", 2)).path)
    raw = older.read_text()
    assert 'system_uuid = ""\n' in raw
    without = raw.replace('system_uuid = ""\n', "")
    body = without.split("\n", 3)[-1].encode()
    digest = hashlib.sha256(body).hexdigest()
    older.write_bytes(
        f'# gpudoctor snapshot\nschema = 1\nchecksum = "sha256:{digest}"\n'.encode() + body
    )
    (found, _), unreadable = all_heads()
    assert not unreadable and found.identity.system_uuid == "" and not found.altered


@pytest.mark.parametrize(("raw", "uuid"), [(f"{TWO.upper()}\n", TWO), (f"{'0' * 8}\n", "")])
async def test_an_audit_reads_it_with_what_else_tells_who_the_host_is(raw: str, uuid: str) -> None:
    machine = machine_of({"/sys/class/dmi/id/product_uuid": raw})
    result = await run_audit(SimulatedTarget(machine, NO_WAIT), ())
    assert result.identity.system_uuid == uuid
    assert f'system_uuid = "{uuid}"\n' in dump_recording(result).decode()


async def test_a_host_without_one_is_known_all_the_same() -> None:
    """Not root, or a board or a VM that has none: the other files tell what they tell."""
    machine = machine_of({"/etc/machine-id": f"{MACHINE}\n"})
    result = await run_audit(SimulatedTarget(machine, NO_WAIT), ())
    assert (result.identity.machine_id, result.identity.system_uuid) == (MACHINE, "")


def days(found: list[SnapshotHead]) -> list[int]:
    return [int(head.taken[8:10]) for head in found]


def test_snapshots_of_another_uuid_are_of_another_machine() -> None:
    """What tells none counts by the name it was reached by, or else its hostname."""
    for result in (
        of(ONE, 1),
        of("", 2),
        of(ONE, 3, "root@10.0.0.1", hostname="renamed"),
        of(TWO, 4, "root@gpu2", hostname="gpu2"),
        of("", 5, "root@gpu2", hostname="gpu1"),
        of("", 6, "root@10.0.0.2", hostname="gpu2"),
    ):
        kept(result)
    known = all_heads()[0]
    assert days(reached(known, "root@gpu1")) == [3, 2, 1]
    assert days(reached(known, "root@gpu2")) == [6, 5, 4]
    assert named("last", "root@gpu1").taken[8:10] == "03"
    folder, one = machine_folder(MACHINE, ""), of(ONE, 9)
    assert days(own(heads(folder)[0], "elsewhere", one.identity)) == [3, 2, 1]
    assert days(own(heads(folder)[0], "root@gpu2", of("", 9).identity)) == [6, 5, 4]
    assert own(heads(folder)[0], "root@gpu3", of("3" + ONE[1:], 9).identity) == []


def test_one_machine_with_and_without_its_uuid_is_one() -> None:
    """A plain user cannot read it."""
    kept(of(ONE, 1))
    kept(of("", 2, "root@10.0.0.1", hostname="renamed"))
    known = all_heads()[0]
    assert days(reached(known, "root@gpu1")) == [2, 1]
    assert days(own(known, "root@gpu1", of("", 9).identity)) == [2, 1]
    assert days(prunable(known, 1, None)) == [1]


def test_the_list_says_which_are_clones(capsys: pytest.CaptureFixture[str]) -> None:
    kept(of(ONE, 1))
    assert "clone" not in run(capsys, "list")[1]
    kept(of(TWO, 2, "root@gpu2"))
    out = run(capsys, "list")[1]
    assert f"clone: system UUID {TWO}; other machines have this machine id (aaaaaaaa…), too" in out
    assert "2 snapshots of 2 hosts" in out
    told = answer(capsys, "list")["snapshots"]
    assert [one["system_uuid"] for one in told] == [TWO, ONE]
    assert f"system UUID {ONE}" in run(capsys, "show", "last", "--host", "root@gpu1")[1]


def test_a_diff_of_clones_says_two_machines() -> None:
    one, two = kept(of(ONE, 1)), kept(of(TWO, 2))
    assert not is_same_machine(one, two)
    said = remarks(one, two)[0]
    assert said.startswith("two machines (clones: one machine id, two system UUIDs, 4c4c4544-")
    assert is_same_machine(one, kept(of("", 3))) and is_same_machine(one, kept(of(ONE, 4)))


def test_last_beside_now_is_of_this_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else is newer: another host, or a clone that answered by this very name."""
    mine = kept(of(ONE, 1))
    kept(of(TWO, 2))
    kept(audit("2026-01-03T00:00:00+00:00", "b" * 32, "root@other"))

    async def audited(*_: object) -> AuditResult:
        return of(ONE, 9)

    monkeypatch.setattr("gpudoctor.cli_diff.run_audit", audited)
    assert last_of(of(ONE, 9)) == mine
    for argv in (("last", "now"), ("now", "last")):
        code, out, err = run(capsys, "diff", *argv, "--json")
        assert code == 0 and not err and f'"id": "{mine.id}"' in out


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ([], "no snapshot is kept yet"),
        (
            [of(TWO, 1, "root@gpu2")],
            "no snapshot of root@gpu1 is kept; there are some of root@gpu2",
        ),
        ([of(TWO, 1)], "of root@gpu1 are of another machine than the one that answers now"),
    ],
)
def test_without_one_of_this_machine_none_is_taken(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    before: list[AuditResult],
    says: str,
) -> None:
    async def audited(*_: object) -> AuditResult:
        return of(ONE, 9)

    monkeypatch.setattr("gpudoctor.cli_diff.run_audit", audited)
    for result in before:
        kept(result)
    code, out, err = run(capsys, "diff", "last", "now")
    assert (code, out) == (2, "") and says in err


# What may go.


def record(uuid: str, boot: str) -> PlanRecord:
    step = KeptStep("swap", 1, "t", (KeptItem("vm.swappiness", "60", "1"),))
    return PlanRecord(T, "root@gpu1", "alice", MACHINE, boot, "2026-01-01", (step,), uuid)


def test_each_clone_keeps_its_newest_and_its_last_of_the_boot_before() -> None:
    for result in (of(ONE, 1), of(ONE, 2, boot="b2"), of(TWO, 3), of(TWO, 4, boot="c2")):
        kept(result, Kind.AFTER, T)
    assert days(prunable(all_heads()[0], 1, None)) == []
    assert days([one.head for one in kept_back(all_heads()[0], 1, None)]) == [3, 1]


@pytest.mark.parametrize(("uuid", "ended"), [(ONE, set[str]()), (TWO, {T}), ("", set[str]())])
def test_the_boot_of_a_clone_ends_no_transaction(uuid: str, ended: set[str]) -> None:
    """A record that tells no UUID may be of either, so either may still be in its boot."""
    kept(of(ONE, 1, boot="b1"))
    kept(of(TWO, 2, boot="c1"))
    write_whole(machine_folder(MACHINE, "") / f"{T}.plan.toml", dump(record(uuid, "b1")))
    assert ended_by_reboot(all_heads()[0]) == ended


def test_a_record_keeps_the_uuid_and_an_older_one_has_none() -> None:
    one = record(ONE, "b1")
    assert load(dump(one)) == one


def test_only_the_clone_that_was_asked_gives_up_its_pairs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing stands on the one that answers; of the other nobody knows."""

    async def none_stand(_: object) -> list[Any]:
        return []

    for uuid, label, transaction in ((ONE, "this machine", T), (TWO, "root@gpu2", T[:-1] + "b")):
        for day, kind in ((1, Kind.BEFORE), (2, Kind.AFTER)):
            kept(of(uuid, day, label), kind, transaction)
        kept(of(uuid, 3, label))
    audits(monkeypatch, of(ONE, 9, "this machine"))
    monkeypatch.setattr("gpudoctor.cli_prune.transactions", none_stand)
    assert run(capsys, "prune", "--keep", "1", "--yes")[0] == 0
    left = [(head.label, head.kind) for head in all_heads()[0]]
    assert left.count(("this machine", Kind.BEFORE)) == 0
    assert left.count(("root@gpu2", Kind.BEFORE)) == 1
