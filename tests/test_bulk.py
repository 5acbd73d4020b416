"""Bulk jobs: what `head -v` and `ls -ldn` print, complaints and forgeries included."""

import subprocess
from pathlib import Path

import pytest

from gpudoctor import shell
from gpudoctor.formats.bulk import parse_files, parse_listing, select
from gpudoctor.formats.listing import link_target, parse_entry
from gpudoctor.model import Reason, Unknown
from tests.tools import missing

SHELLS = [["sh"], ["busybox", "sh"]]


def _run(argv: list[str], text: str) -> tuple[bytes, str]:
    try:
        done = subprocess.run([*argv, "-c", text], capture_output=True, env={"LC_ALL": "C"})
    except FileNotFoundError:
        missing(argv[0])
    return done.stdout, done.stderr.decode()


@pytest.mark.parametrize("argv", SHELLS, ids=["sh", "busybox"])
def test_files_come_back_exactly(argv: list[str], tmp_path: Path) -> None:
    contents = {
        "a": b"one\n",
        "b": b"",
        "c": bytes(range(256)) * 3,
        "d": b"no newline",
        "e": b"\n\n",
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    text = shell.read_files([f"{tmp_path}/[a-e]", f"{tmp_path}/gone", f"{tmp_path}/none*"], 4096)
    found = parse_files(*_run(argv, text.replace("head", "command head", 1)))
    for name, data in contents.items():
        assert found[f"{tmp_path}/{name}"] == data
    gone = found[f"{tmp_path}/gone"]
    assert isinstance(gone, Unknown) and gone.reason is Reason.NOT_PRESENT
    assert isinstance(found[f"{tmp_path}/none*"], Unknown)


def test_a_forged_header_is_refused() -> None:
    output = b"==> /proc/a <==\n1\n\n==> /proc/b <==\n0\n\n==> /proc/a <==\nx\n"
    found = parse_files(output, "")
    forged = found["/proc/a"]
    assert isinstance(forged, Unknown) and forged.reason is Reason.PARSE_FAILED
    assert found["/proc/b"] == b"0\n"


@pytest.mark.parametrize(
    ("complaint", "path", "reason"),
    [
        ("head: cannot open '/x' for reading: Permission denied", "/x", Reason.NO_PERMISSION),
        ("head: error reading '/x': Operation not permitted", "/x", Reason.NO_PERMISSION),
        ("head: error reading '/x': Invalid argument", "/x", Reason.NOT_PRESENT),
        ("head: /x: Permission denied", "/x", Reason.NO_PERMISSION),
        ("head: /x: No such file or directory", "/x", Reason.NOT_PRESENT),
    ],
)
def test_complaints(complaint: str, path: str, reason: Reason) -> None:
    found = parse_files(b"", complaint + "\n")[path]
    assert isinstance(found, Unknown) and found.reason is reason


def test_listing_of_links_and_devices(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("../target with space")
    out, err = _run(["sh"], shell.list_entries([f"{tmp_path}/*", "/dev/null", "/gone"]))
    found = parse_listing(out, err)
    link, null = found[f"{tmp_path}/link"], found["/dev/null"]
    assert isinstance(link, bytes) and isinstance(null, bytes)
    assert link_target(link) == "../target with space"
    assert parse_entry(null).device == (1, 3)
    assert isinstance(found["/gone"], Unknown)


def test_select_stops_at_slashes() -> None:
    answers: dict[str, bytes | Unknown] = {"/a/b": b"1", "/a/b/c": b"2", "/a[0]": b"3"}
    assert set(select(answers, ["/a/*"])) == {"/a/b"}
    assert set(select(answers, ["/a/b/c", "/gone"])) == {"/a/b/c"}
