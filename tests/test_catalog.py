"""The store's list: newest first, names found, and whatever is no snapshot named and skipped."""

import hashlib
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.model.error import Refusal, WrongUsage
from gpudoctor.model.snapshot import Kind, SnapshotHead
from gpudoctor.recording import dump
from gpudoctor.snapshots.catalog import all_heads, find, folders, heads, load_head, reached
from gpudoctor.snapshots.notes import set_note
from gpudoctor.snapshots.prune import remove
from gpudoctor.snapshots.store import machine_folder, state_home
from tests.snapshot_rig import MACHINE, OTHER, altered, audit, kept

OLD = Path(__file__).parent / "snapshots"


def folder() -> Path:
    return machine_folder(MACHINE, "")


def three() -> list[SnapshotHead]:
    """Return three snapshots of one machine, newest first, written in another order."""
    days = ("02", "04", "03")
    made = [kept(audit(taken=f"2026-01-{day}T03:04:05+00:00")) for day in days]
    return [made[1], made[2], made[0]]


def refused(path: Path) -> str:
    """Return why the list skips a file."""
    why = {one.path: one.why for one in heads(path.parent)[1]}
    return why[str(path)]


def test_newest_first_with_what_the_header_tells() -> None:
    made = three()
    assert heads(folder()) == (made, [])
    head = made[0]
    assert (head.kind, head.label, head.user) == (Kind.MANUAL, "root@gpu1", "root")
    assert head.identity == audit().identity and not head.altered
    assert head.size == Path(head.path).stat().st_size


def test_two_of_one_second_keep_their_order() -> None:
    first, second = kept(audit(), Kind.BEFORE, "t"), kept(audit(), Kind.AFTER, "t")
    os.utime(first.path, ns=(5, 5))
    os.utime(second.path, ns=(6, 6))
    assert heads(folder())[0] == [second, first]


def test_by_the_time_that_is_told_and_not_by_how_it_is_written() -> None:
    times = ("2026-01-02T03:00:00+00:00", "2026-01-02T09:00:00+09:00", "0001-01-01T00:00:00+14:00")
    new, old, none = (kept(audit(taken=time)) for time in times)
    odd = kept(audit(taken="not a time"))
    found = heads(folder())[0]
    assert found[:2] == [new, old] and {head.id for head in found[2:]} == {none.id, odd.id}
    assert find("last", found) == new


def test_a_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(Refusal, match="no home directory; set HOME, or XDG_STATE_HOME") as no:
        all_heads()
    assert no.value.code == 1


def test_no_store_is_an_empty_one() -> None:
    assert folders() == [] and all_heads() == ([], []) and heads(folder()) == ([], [])


def test_all_machines_and_those_reached_by_a_name() -> None:
    here = kept(audit())
    there = kept(audit("2026-01-03T00:00:00+00:00", OTHER, "root@gpu2"))
    again = kept(audit("2026-01-04T00:00:00+00:00", MACHINE, "10.0.0.1"))
    (state_home() / "no-machine").mkdir()
    known = all_heads()[0]
    assert known == [again, there, here]
    assert reached(known, "root@gpu1") == [again, here]
    assert reached(known, None) == known and reached(known, "gpu9") == []


def test_our_other_files_and_unfinished_ones_are_not_listed() -> None:
    head = kept(audit())
    for name in (
        "pending.toml",
        "20260101-000000-abcdef.plan.toml",
        "20260101-000000-abcdef.sh",
        f".{Path(head.path).name}.0badcafe.new",
    ):
        (folder() / name).write_text("anything")
    assert heads(folder()) == ([head], [])


def test_what_is_no_snapshot_is_named_and_skipped(tmp_path: Path) -> None:
    good = kept(audit())
    raw = Path(good.path).read_bytes()
    bad = {
        "cut-early.toml": raw[:50],
        "cut-late.toml": raw[:-20],
        "empty.toml": b"",
        "empty-header.toml": b'# gpudoctor snapshot\nschema = 1\nchecksum = "x"\n',
        "foreign.toml": b"[tool.ruff]\nline-length = 100\n",
        "newer.toml": raw.replace(b"schema = 1\n", b"schema = 7\n"),
        "odd-id.toml": raw.replace(f'id = "{good.id}"'.encode(), b'id = "../../x"'),
        "odd-kind.toml": raw.replace(b'kind = "manual"', b'kind = "mood"'),
        "rubbish.toml": b"# gpudoctor snapshot\n" + bytes(range(256)),
    }
    for name, text in bad.items():
        (folder() / name).write_bytes(text)
    os.mkfifo(folder() / "fifo.toml")
    (folder() / "folder.toml").mkdir()
    (folder() / "gone.toml").symlink_to(tmp_path / "nowhere")
    found, skipped = heads(folder())
    assert found == [good]
    why = {Path(one.path).name: one.why for one in skipped}
    assert "link to a file that is not there" in why.pop("gone.toml")
    assert why.keys() == bad.keys() | {"fifo.toml", "folder.toml"}
    assert all(why[name].startswith(name) and "\n" not in why[name] for name in why)
    assert "schema 7" in why["newer.toml"] and "use a newer gpudoctor" in why["newer.toml"]
    assert "no snapshot of gpudoctor's" in why["foreign.toml"]
    assert "damaged or cut short" in why["cut-late.toml"]
    assert why["empty-header.toml"] == "empty-header.toml is damaged: it has no 'header'"
    assert "no plain file" in why["fifo.toml"]


@pytest.mark.parametrize(
    "problems",
    [b'["\xff"]', b"[" * 20_000 + b"]" * 20_000, b"9" * 20_000],
    ids=["utf8", "deep", "big"],
)
def test_a_foreign_header_with_a_fitting_checksum_is_never_fatal(problems: bytes) -> None:
    good = kept(audit())
    body = Path(good.path).read_bytes().split(b"\n", 3)[3]
    body = body.replace(b"problems = []", b"problems = " + problems)
    digest = hashlib.sha256(body).hexdigest()
    top = f'# gpudoctor snapshot\nschema = 1\nchecksum = "sha256:{digest}"\n'
    (folder() / "odd.toml").write_bytes(top.encode() + body)
    found, skipped = heads(folder())
    assert found == [good]
    assert [Path(one.path).name for one in skipped] == ["odd.toml"]
    assert "damaged" in skipped[0].why


def test_any_damage_is_told_and_never_fatal() -> None:
    raw = Path(kept(audit()).path).read_bytes()
    victim = folder() / "victim.toml"
    chance = random.Random(2)
    for _ in range(150):
        at = chance.randrange(raw.index(b"\n") + 1, len(raw))
        for text in (raw[:at], raw[:at] + chance.randbytes(3) + raw[at + 3 :]):
            victim.write_bytes(text)
            found, skipped = heads(folder())
            mine = [head for head in found if head.path == str(victim)]
            assert [head.altered for head in mine] == ([] if skipped else [True])


def test_an_unreadable_file_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    head = kept(audit())

    def denied(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gpudoctor.snapshots.head.os.open", denied)
    assert heads(folder())[0] == []
    assert "cannot be read (Permission denied)" in refused(Path(head.path))


def test_a_file_pruned_meanwhile_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    head = kept(audit())
    monkeypatch.setattr("os.listdir", lambda _: ["gone.toml", Path(head.path).name])
    assert heads(folder()) == ([head], [])


def test_a_hand_edited_snapshot_is_marked_refused_and_usable_when_asked() -> None:
    path = altered(kept(audit()), b'label = "root@gpu1"', b'label = "gpu2\\u001b[31m"')
    ((head,), skipped) = heads(folder())
    assert head.altered and skipped == [] and head.label == "gpu2\ufffd[31m"
    with pytest.raises(Refusal, match=r"was changed after it was written.*--force") as no:
        load_head(head)
    assert str(path) in no.value.sentence
    assert load_head(head, verify=False).identity == audit().identity


def test_changed_since_it_was_listed() -> None:
    head = kept(audit())
    altered(head, b"root@gpu1", b"root@gpu2")
    with pytest.raises(Refusal, match="was changed after it was written"):
        load_head(head)
    Path(head.path).unlink()
    with pytest.raises(Refusal, match="is gone"):
        load_head(head)


def test_found_by_id_prefix_last_and_file(tmp_path: Path) -> None:
    known = three()
    for head in known:
        assert find(head.id, known) == find(head.path, known) == head
    assert find("last", known) == known[0]
    named = [replace(h, id=i) for h, i in zip(known, ("abcd", "abce", "12"), strict=True)]
    assert find("ABCE", named) == named[1] and find("1", named) == named[2]
    assert find("12", [replace(known[0], id="123"), named[2]]) == named[2]
    recording = tmp_path / "host.toml"
    recording.write_bytes(dump(audit(label="gpu7")))
    assert find(str(recording), known).label == "gpu7"


def test_an_ambiguous_or_unknown_name_is_a_sentence() -> None:
    known = three()
    named = [replace(h, id=i) for h, i in zip(known, ("abcd", "abce", "12"), strict=True)]
    with pytest.raises(WrongUsage, match="'ab' fits 2 snapshots: abcd, abce; give more"):
        find("ab", named)
    with pytest.raises(WrongUsage, match=r"no snapshot 'ffff' .*`gpudoctor snapshot list`"):
        find("ffff", named)
    with pytest.raises(WrongUsage, match="no snapshot in the store yet"):
        find("last", [])
    with pytest.raises(WrongUsage, match="no snapshot ''"):
        find("", named)
    with pytest.raises(WrongUsage, match="no snapshot '/nonexistent/x.toml'"):
        find("/nonexistent/x.toml", named)


def test_a_copied_file_is_named_by_its_file() -> None:
    head = kept(audit())
    copy = folder() / "copy.toml"
    copy.write_bytes(Path(head.path).read_bytes())
    with pytest.raises(WrongUsage, match=r"is in more than one file: .*copy\.toml"):
        find(head.id, all_heads()[0])
    assert find(str(copy), all_heads()[0]).path == str(copy)


def test_a_file_of_no_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("[tool]\n")
    with pytest.raises(Refusal, match="no snapshot of gpudoctor's"):
        find(str(path), [])
    with pytest.raises(Refusal, match="no plain file"):
        find(str(tmp_path), [])


def test_a_note_is_kept_beside_and_taken_away() -> None:
    head = kept(audit())
    assert set_note(head, "  before\nthe \x1b[31mupdate " + "x" * 300)[:22] == (
        "before the \ufffd[31mupdate"
    )
    ((noted,), _) = heads(folder())
    assert len(noted.note) == 200 and find(head.path, []).note == noted.note
    assert Path(f"{head.path}.note").stat().st_mode & 0o777 == 0o600
    set_note(noted, "")
    assert heads(folder())[0] == [head] and not [*folder().glob("*.note")]
    set_note(head, "")  # twice is no fault


def test_a_copy_of_a_snapshot_has_a_note_of_its_own() -> None:
    head = kept(audit())
    copy = Path(head.path).with_name("copy.toml")
    copy.write_bytes(Path(head.path).read_bytes())
    set_note(head, "the first")
    assert [one.note for one in heads(folder())[0] if one.path == str(copy)] == [""]
    set_note(find(str(copy), []), "the copy")
    assert {one.path: one.note for one in heads(folder())[0]} == {
        head.path: "the first",
        str(copy): "the copy",
    }
    remove(find(str(copy), []))
    assert [one.note for one in heads(folder())[0]] == ["the first"]


def test_a_note_about_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "host.toml"
    path.write_bytes(dump(audit()))
    with pytest.raises(Refusal, match="not in the store") as no:
        set_note(find(str(path), []), "x")
    assert no.value.code == 1


def test_a_note_that_cannot_be_read_says_so() -> None:
    head = kept(audit())
    Path(f"{head.path}.note").mkdir()
    assert "its note cannot be read" in heads(folder())[0][0].note
    Path(f"{head.path}.note").rmdir()
    os.mkfifo(f"{head.path}.note")  # nobody writes to it
    assert "its note cannot be read" in heads(folder())[0][0].note


@pytest.mark.parametrize("name", ["schema-1", "schema-1-without-rules"])
def test_every_older_schema_is_read_for_ever(name: str) -> None:
    head = find(str(OLD / f"{name}.toml"), [])
    assert not head.altered and head.kind is Kind.BEFORE and head.simulated
    assert head.identity.hostname == "pve-gpu1" and head.identity.kernel == "6.8.12-9-pve"
    audited = load_head(head)
    assert [finding.status for finding in audited.findings] == ["good", "issue"]
    assert bool(audited.rules) is (name == "schema-1")


def test_a_file_is_kept_of_each_schema() -> None:
    from gpudoctor.recording import SCHEMA

    assert all((OLD / f"schema-{number}.toml").exists() for number in range(1, SCHEMA + 1))


def test_a_store_that_cannot_be_read_is_a_sentence() -> None:
    state_home().parent.mkdir(parents=True)
    state_home().write_text("in the way")
    with pytest.raises(Refusal, match="cannot be read") as no:
        all_heads()
    assert no.value.code == 1
