"""`gpudoctor bench`: on the demo's made-up engine, and on a real server of this machine."""

import json
from pathlib import Path

import pytest

from gpudoctor.cli import main
from gpudoctor.report_bench_json import BenchModel
from gpudoctor.snapshots.store import state_home
from tests.decode_rig import DecodeServer


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def code_of(*argv: str) -> int:
    """Return the exit code, also of wrong usage."""
    try:
        return main(["bench", *argv])
    except SystemExit as end:
        return int(str(end.code))


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["--streams", "0"], 2, "numbers from 1 to 64"),
        (["--streams", "1,x"], 2, "wants numbers such as 1,8"),
        (["--url", "ftp://here"], 2, "--url wants http://HOST:PORT"),
        (["--url", "http://127.0.0.1:9"], 3, "nothing answers at http://127.0.0.1:9"),
        (["--api-key-env", "NO_SUCH_VARIABLE"], 2, "NO_SUCH_VARIABLE is not set"),
        (["--from", "/dev/null"], 3, "/dev/null"),
    ],
)
def test_bad_input_is_one_sentence(
    argv: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(*argv) == code
    told = capsys.readouterr()
    assert says in told.err and len(told.err.strip().split("\n")) == 1 and not told.out


def test_the_demo_says_that_it_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("--demo") == 0
    told = capsys.readouterr().out
    assert told.startswith("SIMULATED") and "simulated engine" in told
    assert "roofline" in told and "1 stream:" in told and "8 streams together:" in told
    assert not list(state_home().glob("*/*bench*"))  # the demo leaves nothing


def test_a_real_server_is_measured_and_compared_with_the_run_before(
    decode_server: DecodeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--url", decode_server.url, "--streams", "1", "--json"]
    assert code_of(*argv) == 0
    first = BenchModel.model_validate_json(capsys.readouterr().out)
    assert first.verdict is None and first.engine.kind == "llama.cpp"
    (level,) = first.levels
    assert level.failed == 0 and level.blocks == 4 and level.streams == 1
    assert level.output_tokens_per_second and level.tpot_typical and level.tpot_of_server
    assert level.output_tokens_per_second * level.tpot_typical == pytest.approx(1)
    assert code_of(*argv) == 0
    told = capsys.readouterr().out
    second = BenchModel.model_validate_json(told)
    assert second.tokens_asked == first.tokens_asked
    assert second.verdict is not None and second.verdict.judgement != "not comparable"
    (waking,) = second.witnesses
    assert waking.now is not None and waking.before == first.witnesses[0].now and waking.moved
    assert len(list(state_home().glob("*/*-bench-*.toml"))) == 2
    assert json.loads(told)["version"] == 1
