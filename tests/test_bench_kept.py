"""Kept benchmarks: what is read is what was written; what is damaged is left out."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.model.bench import (
    BenchRun,
    Block,
    Conditions,
    Failure,
    Level,
    Request,
    Serving,
)
from gpudoctor.model.error import Refusal
from gpudoctor.model.place import parse_container
from gpudoctor.snapshots.benchmarks import dump_run, keep_run, kept_runs, load_run

RUN = BenchRun(
    "abc123",
    "2026-01-02T03:04:05+00:00",
    "gpu1",
    "0" * 32,
    "boot",
    Serving(
        "SGLang",
        "http://127.0.0.1:30000",
        'odd "model"\n',
        flags=("--tp", "8"),
        container=parse_container("lxc:101"),
        api_key_env="KEY",
        refused=("ignore_eos",),
    ),
    (
        Level(1, (Block((Request(0.5, (1.0, 1.25), 1.25, 2, text="é\x1b"),), 1, 2.0),)),
        Level(8, (Block((Request(failure=Failure("http", 429, "slow down")),), 8, 1.0, "others"),)),
    ),
    32,
    True,
    conditions=Conditions({"driver": "590"}, frozenset({"driver"}), {"clocks": "2600 MHz"}),
    remarks=("said",),
)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_it_reads_as_it_was_written() -> None:
    path = keep_run(RUN)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(kept_runs(RUN.machine_id, RUN.label)) == [RUN]


def test_a_run_of_a_clone_is_left_out() -> None:
    """One that tells no system UUID counts, as do all where the machine tells none."""
    mine, old = replace(RUN, system_uuid="u-1"), replace(RUN, id="old")
    for run in (mine, old, replace(RUN, id="clone", system_uuid="u-2")):
        keep_run(run)
    found = kept_runs(RUN.machine_id, RUN.label, "u-1")
    assert sorted(found, key=lambda run: run.id) == [mine, old]
    assert len(list(kept_runs(RUN.machine_id, RUN.label))) == 3


def test_a_run_without_a_system_uuid_is_read() -> None:
    raw = dump_run(RUN)
    assert b'system_uuid = ""\n' in raw
    assert load_run(raw.replace(b'system_uuid = ""\n', b""), "it") == RUN


def test_what_is_damaged_or_newer_is_left_out() -> None:
    path = keep_run(RUN)
    raw = path.read_bytes()
    for number, bad in enumerate(
        (
            raw[: len(raw) // 2],
            raw.replace(b"schema = 1", b"schema = 2"),
            raw.replace(b'levels = "', b'levels = "!'),
            b"\xff",
        )
    ):
        path.with_name(f"20260103-bench-{number}.toml").write_bytes(bad)
    assert list(kept_runs(RUN.machine_id, RUN.label)) == [RUN]
    with pytest.raises(Refusal, match="newer gpudoctor"):
        load_run(raw.replace(b"schema = 1", b"schema = 2"), "it")


def test_text_that_unpacks_to_too_much_is_refused() -> None:
    import base64
    import zlib

    bomb = base64.b64encode(zlib.compress(b" " * (64 << 20))).decode()
    raw = dump_run(RUN).decode()
    start = raw.index('levels = "') + 10
    end = raw.index('"', start)
    with pytest.raises(Refusal, match="larger than any run"):
        load_run((raw[:start] + bomb + raw[end:]).encode(), "it")
