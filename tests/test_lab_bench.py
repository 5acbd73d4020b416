"""The real decode server on the lab VM: found and measured over SSH by the command line."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from gpudoctor.bench.ask import bodies
from gpudoctor.bench.beside import open_beside
from gpudoctor.bench.engine import find
from gpudoctor.bench.run import QUICK
from gpudoctor.bench.way import BESIDE, FORWARD, NAMESPACE
from gpudoctor.cli import main
from gpudoctor.hosts.ssh import SshTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal
from gpudoctor.report_bench_json import BenchModel
from gpudoctor.snapshots.store import state_home
from tests.lab_serving import serving, serving_installed, serving_removed, whole_python
from tests.lab_vm import Lab

NOTHING = AuditResult("lab")
KEY = "sesame-4711"


@pytest.fixture(scope="module", autouse=True)
def _installed(lab: Lab) -> Iterator[None]:
    serving_installed(lab)
    yield
    serving_removed(lab)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a quick run minutes: an emulated CPU reads a prompt for ten seconds."""
    monkeypatch.setattr("gpudoctor.bench.measure.QUICK", replace(QUICK, hard=600.0))


@pytest.fixture
def python(lab: Lab) -> Iterator[None]:
    """Have a whole python3 on the host."""
    with whole_python(lab):
        yield


def bench(lab: Lab, *more: str) -> list[str]:
    """Return a command line for the lab that measures one stream."""
    where = ["--host", "lab", "--ssh-config", str(lab.config)]
    return ["bench", "--streams", "1", *more, *where]


@asynccontextmanager
async def target(lab: Lab) -> AsyncIterator[LiveTarget]:
    """Give the lab's host as root sees it."""
    target = LiveTarget(SshTransport("lab", lab.config))
    try:
        yield target
    finally:
        await target.close()


@pytest.mark.usefixtures("python")
def test_it_is_found_by_its_process_and_measured_beside_it(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lab, key=KEY) as server:
        assert main(bench(lab)) == 3
        (sentence,) = capsys.readouterr().err.splitlines()
        assert server.url in sentence and "--api-key-env" in sentence
        monkeypatch.setenv("LAB_KEY", KEY)
        counted = server.counter("tokens_predicted_total")
        assert main(bench(lab, "--json", "--api-key-env", "LAB_KEY")) == 0
        counted = server.counter("tokens_predicted_total") - counted
    out = capsys.readouterr().out
    run = BenchModel.model_validate_json(out)
    assert (run.engine.kind, run.engine.model, run.engine.url) == ("llama.cpp", "tiny", server.url)
    assert (run.host, run.client, run.engine.container) == ("lab", BESIDE, "")
    (level,) = run.levels
    assert (level.blocks, level.failed, level.tokens_estimated) == (4, 0, False)
    assert level.tokens == level.requests * run.tokens_asked < counted
    assert level.ttft and level.tpot_typical and level.output_tokens_per_second
    # Within 1 % on a quiet machine (docs/benchmark.md); this one's CPUs are emulated, and shared.
    assert level.tpot_typical == pytest.approx(level.tpot_of_server, rel=0.03)
    (kept,) = state_home().glob("*/*-bench-*.toml")
    assert KEY not in out + kept.read_text() and "--api-key" in run.engine.flags


@pytest.mark.usefixtures("python")
def test_the_one_in_the_container_is_chosen_and_measured_in_its_network(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(lab) as outer, serving(lab, contained=True) as inner:
        assert main(bench(lab)) == 1
        said = capsys.readouterr().err
        assert outer.url in said and f"{inner.url} in lxc:gpu" in said and "--container" in said
        assert main(bench(lab, "--container", "lxc:gpu")) == 0
    told = capsys.readouterr().out
    assert f"serves tiny at {inner.url}" in told and NAMESPACE in told
    for name in ("1 stream:", "tok/s", "TPOT", "TTFT", "the server's own"):
        assert name in told


async def test_without_a_python_there_it_goes_through_a_forward_and_says_so(lab: Lab) -> None:
    with serving(lab) as server:
        async with target(lab) as host:
            (found,) = await find(host, NOTHING)
            assert (found.url, found.pid) == (server.url, server.pid)
            async with open_beside(host, found) as beside:
                assert beside.path == FORWARD
                requests, _ = await beside.job(bodies(found, 2, 16, 0), 1)
    assert [one.tokens for one in requests] == [16, 16]


async def test_a_container_without_a_python_has_no_way_in(lab: Lab) -> None:
    with serving(lab, contained=True):
        async with target(lab) as host:
            with pytest.raises(Refusal, match="nothing of ours can be run beside") as refused:
                await find(host, NOTHING)
    assert "python3 there is not whole: it lacks the module " in refused.value.sentence
    assert "Traceback" not in refused.value.sentence
