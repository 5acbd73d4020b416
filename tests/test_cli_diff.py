"""`gpudoctor snapshot diff`: what may be named, exit codes, forms, and files that are not right."""

import json
from pathlib import Path

import pytest

from gpudoctor.cli import main
from gpudoctor.comparing import compared
from gpudoctor.snapshots.catalog import all_heads
from gpudoctor.snapshots.diff import diff
from gpudoctor.snapshots.store import state_home
from tests.snapshot_rig import OTHER, altered, audit, kept

OLD = sorted((Path(__file__).parent / "snapshots").glob("schema-1*.toml"))
LATER = "2026-01-05T03:04:05+00:00"


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["snapshot", "diff", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_ids_prefixes_last_and_paths(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = kept(audit()), kept(audit(taken=LATER, knob=b"0\n"))
    code, text, _ = _run(capsys, old.id[:10], "last")
    assert code == 1
    assert "changed    kernel numa_balancing: 1 -> 0" in text
    again = _run(capsys, old.path, new.id)
    assert again[:2] == (code, text)
    assert _run(capsys, new.id, new.path)[0] == 0


def test_json_and_markdown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    old, new = kept(audit()), kept(audit(taken=LATER, knob=b"0\n"))
    code, text, _ = _run(capsys, old.id, new.id, "--json")
    data = json.loads(text)
    assert code == 1 and data["version"] == 1 and not data["empty"]
    assert (data["old"]["id"], data["new"]["id"]) == (old.id, new.id)
    assert [(r["moved"], r["what"]) for r in data["settings"]] == [("changed", "numa_balancing")]
    file = tmp_path / "diff.md"
    assert _run(capsys, old.id, new.id, "--markdown", str(file)) == (1, "", "")
    assert "\n- changed kernel numa\\_balancing: 1 -> 0\n" in file.read_text()
    assert _run(capsys, old.id, new.id, "--markdown", str(tmp_path))[0] == 2


def test_names_that_are_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    head = kept(audit())
    assert _run(capsys, head.id, "0123456789")[0] == 2
    assert _run(capsys, head.id, "")[0] == 2
    assert _run(capsys, "now", "now")[0] == 2
    broken = tmp_path / "broken.toml"
    broken.write_text("# gpudoctor snapshot\nschema = 1\n")
    code, _, said = _run(capsys, head.id, str(broken))
    assert code == 3 and said.count("\n") == 1


def test_a_file_changed_by_hand_wants_force(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = kept(audit()), kept(audit(taken=LATER))
    altered(new, b'user = "root"', b'user = "toor"')
    code, _, said = _run(capsys, old.id, new.id)
    assert code == 3 and "--force" in said
    code, text, _ = _run(capsys, old.id, new.id, "--force")
    assert code == 0 and f"{new.id} was changed after it was written" in text


def test_two_machines_are_allowed_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = kept(audit()), kept(audit(taken=LATER, machine=OTHER))
    code, text, _ = _run(capsys, old.id, new.id)
    assert code == 0 and "two different machines" in text


def test_the_host_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "demo.toml"
    assert main(["record", "--demo", str(file)]) == 0
    capsys.readouterr()
    code, text, _ = _run(capsys, str(file), "now", "--demo")
    assert code == 0 and "no difference" in text.splitlines()[-1]
    assert " -> now (pve-gpu1" in text.splitlines()[0]


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_files_of_old_are_compared(path: Path) -> None:
    assert diff(compared(path), compared(path)).empty
    assert compared(path).findings


def test_a_head_a_file_and_its_audit_are_the_same_side() -> None:
    result = audit()
    head = kept(result)
    sides = [compared(head), compared(head.path), compared(Path(head.path)), compared(result)]
    assert all(side.values == sides[0].values for side in sides) and sides[0].values
    assert sides[0].head == all_heads()[0][0]


async def test_it_may_be_called_while_an_event_loop_runs() -> None:
    assert compared(OLD[-1]).findings


@pytest.mark.parametrize("verb", [["diff", "last", "last"], ["story"]])
def test_a_store_that_cannot_be_read_is_3(
    verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    state_home().parent.mkdir(parents=True)
    state_home().write_text("in the way")
    assert main(["snapshot", *verb]) == 3
    out, err = capsys.readouterr()
    assert out == "" and "where snapshots are kept, cannot be read" in err and err.count("\n") == 1


def test_a_story_says_what_it_is_told_without(capsys: pytest.CaptureFixture[str]) -> None:
    Path(kept(audit()).path).write_text("foreign")
    assert main(["snapshot", "story"]) == 0
    err = capsys.readouterr().err
    assert "cannot be read in the store (1)" in err and "snapshot list` names it" in err
    assert "this machine was not asked: no snapshot of it is kept here" in err
