"""`gpudoctor snapshot`: take, list, show, tag; each as text and as JSON."""

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.cli import main
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import HostUnreachable, Refusal
from gpudoctor.model.snapshot import Kind
from gpudoctor.snapshots.catalog import all_heads
from gpudoctor.snapshots.notes import set_note
from gpudoctor.snapshots.store import machine_folder, state_home
from tests.snapshot_rig import MACHINE, OTHER, altered, answer, audit, audits, kept, run

T = "20260101-000000-abcdef"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "take, list, show, tag, prune, diff, story or at-boot"),
        (["frobnicate"], "invalid choice"),
        (["show"], "required: ID"),
        (["take", "--demo"], "a recording is a file already"),
        (["list", "--from", "/dev/null"], "a recording is a file already"),
        (["show", "last"], "no snapshot in the store yet"),
        (["show", "/nonexistent.toml"], "no snapshot '/nonexistent.toml'"),
        (["tag", "abc", "x"], "no snapshot 'abc'"),
        (["prune"], "--keep N, --older DAYS"),
        (["prune", "--keep", "0"], "number from 1"),
        (["prune", "--older", "nan"], "number of days"),
        (["prune", "--older", "-3"], "number of days"),
        (["diff", "a", "b", "--json", "--markdown", "x"], "not allowed with"),
    ],
)
def test_wrong_usage(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "") and says in err


def test_take_keeps_and_tells_where(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "take", "--note", "by hand")
    (head,) = all_heads()[0]
    assert code == (3 if "INCOMPLETE" in out else 0)
    assert out.startswith(f"{head.id}: snapshot of this machine, ") and head.path in out
    assert (head.kind, head.note, head.label) == (Kind.MANUAL, "by hand", "this machine")


def test_take_at_boot_and_an_incomplete_one_is_kept_and_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    audits(monkeypatch, audit(problems=("the connection was lost",)))
    code, out, _ = run(capsys, "take", "--boot")
    assert code == 3 and "INCOMPLETE: the connection was lost" in out
    said = answer(capsys, "take", "--boot")
    assert said["exit_code"] == 3 and said["problems"] == ["the connection was lost"]
    assert said["incomplete"] and said["snapshot"]["kind"] == "boot"
    assert [head.kind for head in all_heads()[0]] == [Kind.BOOT, Kind.BOOT]
    assert "INCOMPLETE then: the connection was lost" in run(capsys, "show", "last")[1]


def store_is_a_file() -> None:
    state_home().parent.mkdir(parents=True)
    state_home().write_text("in the way")


def folder_is_a_file() -> None:
    machine_folder(MACHINE, "").parent.mkdir(parents=True)
    machine_folder(MACHINE, "").write_text("in the way")


def store_is_read_only() -> None:
    os.environ["XDG_STATE_HOME"] = "/sys"  # not even root makes a folder there


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("spoil", [store_is_a_file, folder_is_a_file, store_is_read_only, None])
def test_a_store_that_cannot_be_written_is_a_sentence(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[], None] | None,
) -> None:
    audits(monkeypatch, audit())
    monkeypatch.setenv("XDG_STATE_HOME", os.environ["XDG_STATE_HOME"])  # put back afterwards
    if spoil is None:
        monkeypatch.setattr("gpudoctor.snapshots.store.os.fsync", full)
    else:
        spoil()
    code, out, err = run(capsys, "take", "--note", "x")
    assert (code, out) == (1, "") and "where snapshots are kept, cannot be written" in err
    assert err.count("\n") == 1
    assert spoil is not None or not [*machine_folder(MACHINE, "").iterdir()]


def test_an_audit_goes_on_without_a_store(capsys: pytest.CaptureFixture[str]) -> None:
    store_is_a_file()
    assert main(["audit", "--demo"]) == 1
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err and not said.err


def test_a_note_that_cannot_be_kept_loses_no_snapshot(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise Refusal("/store cannot be written (No space left on device)", 1)

    audits(monkeypatch, audit())
    monkeypatch.setattr("gpudoctor.cli_snapshot.set_note", refuse)
    code, out, err = run(capsys, "take", "--note", "x")
    (head,) = all_heads()[0]
    assert code == 3 and out.startswith(f"{head.id}: snapshot of root@gpu1") and not err
    assert "WITHOUT ITS NOTE: the note was not kept: /store cannot be written" in out
    assert f"`gpudoctor snapshot tag {head.id} NOTE` tries again" in out
    said = answer(capsys, "take", "--note", "x")
    assert said["exit_code"] == 3 and "the note was not kept" in said["note_problem"]
    assert not said["incomplete"]


def test_an_unreachable_host_is_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreached(_: object) -> AuditResult:
        raise HostUnreachable("gpu1 does not answer")

    monkeypatch.setattr("gpudoctor.cli_snapshot._audited", unreached)
    assert run(capsys, "take") == (3, "", "gpudoctor: gpu1 does not answer\n")


def test_list_in_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    old = kept(audit(), Kind.BEFORE, T)
    new = kept(audit("2026-01-05T00:00:00+00:00", OTHER, "root@10.0.0.2"))
    set_note(new, "fine")
    (machine_folder(MACHINE, "") / "x.toml").write_text("foreign")
    code, out, _ = run(capsys, "list")
    lines = out.splitlines()
    assert code == 0 and lines[1].startswith(f"{new.id[:8]}  2026-01-05 00:00:00  manual")
    assert "root@10.0.0.2 (gpu1)" in lines[1] and "note: fine" in lines[2]
    assert lines[3].startswith(old.id[:8]) and lines[3].endswith(T)
    assert "2 snapshots of 2 hosts" in out and "skipped: x.toml is no snapshot" in out
    said = answer(capsys, "list")
    assert [one["id"] for one in said["snapshots"]] == [new.id, old.id]
    assert [Path(one["file"]).name for one in said["unreadable"]] == ["x.toml"]
    code, out, _ = run(capsys, "list", "--host", "root@gpu1")
    assert old.id[:8] in out and new.id[:8] not in out


def test_an_empty_list_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert "`gpudoctor snapshot take`" in run(capsys, "list")[1]
    kept(audit())
    out = run(capsys, "list", "--host", "gpu9")[1]
    assert "no snapshot of gpu9 is kept; there are some of root@gpu1" in out
    assert "no snapshot of gpu9" in run(capsys, "prune", "--keep", "1", "--host", "gpu9")[1]


def test_a_store_that_cannot_be_read_is_not_called_empty(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path(kept(audit()).path).write_text("foreign")
    for argv in (["list"], ["prune", "--keep", "1"]):
        out = run(capsys, *argv)[1]
        assert out.startswith("no snapshot can be read\n") and "is kept yet" not in out
    code, _, err = run(capsys, "show", "last")
    assert code == 2 and "no snapshot can be read: `gpudoctor snapshot list` tells" in err


def test_of_another_host_than_the_one_named(capsys: pytest.CaptureFixture[str]) -> None:
    head = kept(audit())
    code, _, err = run(capsys, "show", "last", "--host", "gpu9")
    assert code == 2 and "no snapshot of gpu9 is kept; there are some of root@gpu1" in err
    code, _, err = run(capsys, "show", head.id[:6], "--host", "gpu9")
    assert (code, err) == (2, f"gpudoctor: {head.id} is of root@gpu1, not of gpu9\n")
    assert "no snapshot '' in the store" in run(capsys, "show", "", "--host", "gpu9")[2]


def test_ids_are_as_long_as_they_must_be(capsys: pytest.CaptureFixture[str]) -> None:
    from gpudoctor.report_snapshots import short_ids

    one = kept(audit())
    ids = ("0123456789abcdef", "0123456789ab0000", "ff" * 8)
    short = short_ids(replace(one, id=name) for name in ids)
    assert list(short.values()) == ["0123456789ab0", "0123456789abc", "ffffffff"]
    assert short[ids[0]] == "0123456789abc"


def test_show_judges_anew_and_says_what_is_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    head = kept(replace(audit(knob=b"0\n"), problems=("a panel was lost",)))
    altered(head, b"rules = ", b'rules = "older" #')  # so that the rules are others
    set_note(head, "before the update")
    code, out, err = run(capsys, "show", head.id)
    assert (code, out) == (3, "") and "--force takes it as it is" in err
    code, out, _ = run(capsys, "show", head.id[:6], "--force")
    assert code == 0 and "ALTERED" in out and "note: before the update" in out
    assert "JUDGED TODAY: the rules are not those of then" in out
    assert "INCOMPLETE then: a panel was lost" in out
    assert "TODAY'S RULES SAY OTHERWISE (1)" in out
    assert "then:  issue low P0: NUMA balancing is on" in out
    said = answer(capsys, "show", head.id, "--force")
    assert not said["same_rules"] and said["problems"] == ["a panel was lost"]
    (other,) = said["otherwise"]
    assert other["check"] == "kern-numa-balancing" and not other["today"].startswith("issue")
    found = {one["id"]: one["status"] for one in said["findings"]}
    assert found["kern-numa-balancing"] != "issue"


def test_show_as_found_prints_what_was_kept(capsys: pytest.CaptureFixture[str]) -> None:
    head = kept(audit(knob=b"0\n"))
    code, out, _ = run(capsys, "show", "last", "--as-found")
    assert code == 0 and "AS FOUND THEN: 1 finding" in out
    assert "low P0: NUMA balancing is on (observed 1, expected 0)" in out
    said = answer(capsys, "show", "last", "--as-found")
    assert said["as_found"] and said["otherwise"] == [] and said["snapshot"]["id"] == head.id
    assert [(f["status"], f["class"]) for f in said["findings"]] == [("issue", "P0")]


def test_the_demo_recording_is_shown_as_it_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "demo.toml")
    assert main(["record", path, "--demo"]) == 0
    capsys.readouterr()
    then, today = answer(capsys, "show", path, "--as-found"), answer(capsys, "show", path)
    assert today["same_rules"] and today["otherwise"] == []
    by_check = [sorted(map(json.dumps, said["findings"])) for said in (then, today)]
    assert by_check[0] == by_check[1]
    out = run(capsys, "show", path)[1]
    assert "SIMULATED" in out and "the rules are those of then" in out


def test_hostile_text_in_a_snapshot_is_made_safe(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = replace(audit(), problems=("\x1b]0;owned\x07",), label="gpu\x1b[2J")
    kept(replace(hostile, identity=replace(hostile.identity, product="\x9b31m\u202e")))
    for argv in (["list"], ["show", "last"], ["show", "last", "--as-found"]):
        out = run(capsys, *argv)[1]
        assert not set(out) & set("\x1b\x07\x9b\u202e")


def test_a_hostile_check_name_is_made_safe(capsys: pytest.CaptureFixture[str]) -> None:
    (finding,) = audit().findings
    kept(replace(audit(), findings=(replace(finding, id="kern\x1b[2Jx"),)))
    out = run(capsys, "show", "last")[1]
    assert "kern\ufffd[2Jx" in out and "\x1b" not in out


def test_a_file_name_that_is_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    head = kept(audit())
    folder = Path(head.path).parent
    odd = os.fsencode(folder) + b"/odd\xff.toml"
    os.rename(head.path, odd)
    (folder / "esc\x1b[2J.toml").write_text("foreign")
    assert answer(capsys, "list")["snapshots"][0]["file"].endswith("/odd\ufffd.toml")
    assert answer(capsys, "show", "last")["snapshot"]["id"] == head.id
    code, out, err = run(capsys, "diff", "last", os.fsdecode(odd), "--json")
    assert code == 0 and json.loads(out)["old"]["path"].endswith("/odd\ufffd.toml") and not err
    out = run(capsys, "prune", "--keep", "1", "--yes")[1]
    assert "left alone" in out and "\x1b" not in out


def test_tag(capsys: pytest.CaptureFixture[str]) -> None:
    head = kept(audit())
    assert run(capsys, "tag", "last", "a  b") == (0, f"{head.id}: note: a b\n", "")
    assert answer(capsys, "tag", head.id[:5], "c")["snapshot"]["note"] == "c"
    assert run(capsys, "tag", "last") == (0, f"{head.id}: no note\n", "")
    assert not [*Path(head.path).parent.glob("*.note")]
