"""A writer killed anywhere, and a full disk: old snapshots stay whole, no half file counts."""

import contextlib
import os
import random
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from gpudoctor.model import Evidence
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal
from gpudoctor.model.snapshot import Kind
from gpudoctor.snapshots.catalog import heads, load_head
from gpudoctor.snapshots.prune import remove_left_over
from gpudoctor.snapshots.store import machine_folder, save, write_whole
from tests.snapshot_rig import KNOB, MACHINE, PROBE, audit, kept

KILLED_RUNS = 15
# The children save and end; they take no lock that a thread of ours may hold.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def folder() -> Path:
    return machine_folder(MACHINE, "")


def large(kib: int = 150) -> AuditResult:
    """Return an audit whose snapshot has more than so many KiB: noise is not compressed."""
    noise = random.Random(3).randbytes(kib << 10)
    result = audit()
    return AuditResult(
        label=result.label,
        identity=result.identity,
        evidence={PROBE.key: Evidence(PROBE.key, files={KNOB: noise})},
        asked=result.asked,
        taken=result.taken,
    )


def assert_whole() -> int:
    """Assert that every file that counts is whole, and return how many there are."""
    found, skipped = heads(folder())
    assert skipped == []
    for head in found:
        assert not head.altered and load_head(head).id == head.id
    return len(found)


def unfinished() -> list[Path]:
    return sorted(folder().glob(".*.new"))


def in_child(work: Any) -> int:
    """Run something in a forked child and return its wait status."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            work()
        os._exit(0)
    return os.waitpid(child, 0)[1]


def killed_at_line(number: int) -> bool:
    """Save in a child that is killed at that line of the writing; return whether it was."""
    seen = 0
    watched = {"write_whole", "_write_new", "_sync_folder"}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if frame.f_code.co_name not in watched:
            return None
        if event == "line":
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    def work() -> None:
        sys.settrace(trace)
        save(large(), Kind.MANUAL)

    return os.WIFSIGNALED(in_child(work))


def test_a_writer_killed_at_each_line() -> None:
    old = kept(audit("2025-12-31T00:00:00+00:00"))
    left, number, counts = 0, 1, set()
    while killed_at_line(number):
        counts.add(assert_whole())
        left = max(left, len(unfinished()))
        for path in (*unfinished(), *(Path(head.path) for head in heads(folder())[0])):
            if str(path) != old.path:
                path.unlink()
        number += 1
    assert number > 10 and counts == {1, 2} and left == 1


def test_a_writer_killed_in_the_middle_of_many() -> None:
    result, done, rounds = large(), 0, random.Random(4)
    for _ in range(KILLED_RUNS):
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                while True:
                    save(result, Kind.MANUAL)
                    os.write(theirs, b"x")
            os._exit(0)
        os.close(theirs)
        for _ in range(rounds.randrange(1, 4)):
            assert os.read(ours, 1) == b"x"
            done += 1
        select.select([ours], [], [], rounds.random() / 200)  # anywhere in the next one
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ours)
    assert assert_whole() >= done


def test_what_a_killed_writer_left_goes_with_age() -> None:
    head = kept(audit())
    for name in (".x.toml.0badcafe.new", ".y.note.0badcaff.new"):
        (folder() / name).write_bytes(b"half")
    assert remove_left_over([folder()]) == 0  # it may be at work
    os.utime(folder() / ".x.toml.0badcafe.new", (0, 0))
    assert remove_left_over([folder()]) == 1
    assert [path.name for path in unfinished()] == [".y.note.0badcaff.new"]
    assert heads(folder())[0] == [head]


@contextlib.contextmanager
def small_disk(path: Path, kib: int) -> Iterator[None]:
    """Mount a file system of that size; skip where this process may not."""
    path.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(path)]
    try:
        done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no mount: {error.strerror}")
    if done.returncode:
        pytest.skip(f"nothing may be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "small"))
    with small_disk(tmp_path / "small", 700):
        said, saved = "", 0
        while not said:
            try:
                save(large(), Kind.MANUAL)
                saved += 1
            except Refusal as refusal:
                said = refusal.sentence
        assert saved > 0 and "cannot be written (No space left on device)" in said
        assert assert_whole() == saved and unfinished() == []


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """The same where nothing may be mounted: the write fails in its middle."""
    old, told = kept(audit()), tmp_path / "told"

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))
        try:
            save(large(), Kind.MANUAL)
        except Refusal as refusal:
            told.write_text(f"{refusal.code} {refusal.sentence}")

    assert in_child(work) == 0
    assert told.read_text().startswith("1 ") and "cannot be written (File too large)" in (
        told.read_text()
    )
    assert assert_whole() == 1 and unfinished() == [] and load_head(old).id == old.id


def test_a_write_over_an_older_file_leaves_it_until_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpudoctor.snapshots.store.os.fsync", full)
    with pytest.raises(Refusal, match="No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["file"]
