"""The real decode server on the lab VM: found, measured and proved over SSH by the command line."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from gpudoctor.bench.ask import bodies
from gpudoctor.bench.beside import open_beside
from gpudoctor.bench.engine import find
from gpudoctor.bench.way import BESIDE, FORWARD, NAMESPACE
from gpudoctor.cli import main
from gpudoctor.hosts.ssh import SshTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal
from gpudoctor.report_bench_json import BenchModel
from gpudoctor.report_prove import ProofModel
from gpudoctor.snapshots.benchmarks import load_run
from gpudoctor.snapshots.store import state_home
from tests.cli_rig import Terminal, terminal
from tests.lab_serving import (
    LabServer,
    serving,
    serving_installed,
    serving_removed,
    slowed,
    until,
    whole_python,
)
from tests.lab_vm import Lab

NOTHING = AuditResult("lab")
GPUDOCTOR = "from gpudoctor.cli import main; raise SystemExit(main())"
KEY = "sesame-4711"
# What runs there for a benchmark: our client and asker, and sessions.
OURS = "grep -las '[i]mport sys;sys.version_info' /proc/[0-9]*/cmdline"
SESSIONS = "grep -las 'GP[DG]=' /proc/[0-9]*/environ"
NUMA = "kern-numa-balancing"
KNOB = "/proc/sys/kernel/numa_balancing"
LEFT = (
    "ls -A /var/lib/gpudoctor /run/gpudoctor 2>/dev/null; "
    "systemctl list-units --all --no-legend 'gpudoctor*'"
)


@pytest.fixture(scope="module", autouse=True)
def _installed(lab: Lab) -> Iterator[None]:
    serving_installed(lab)
    yield
    serving_removed(lab)


@pytest.fixture
def python(lab: Lab) -> Iterator[None]:
    """Have a whole python3 on the host."""
    with whole_python(lab):
        yield


def words(lab: Lab, verb: str, *more: str) -> list[str]:
    """Return a command line for the lab; benchmarks measure one stream."""
    return [verb, *more, "--host", "lab", "--ssh-config", str(lab.config)]


def bench(lab: Lab, *more: str) -> list[str]:
    return words(lab, "bench", "--streams", "1", *more)


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
    assert level.tpot_typical == pytest.approx(level.tpot_of_server, rel=0.01)
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


def measuring(lab: Lab, server: LabServer, ours: Terminal) -> None:
    """Wait until a benchmark is in its third block."""
    ours.until("block 3 of 4", 120)
    assert lab.run(OURS) and server.pid


@pytest.mark.usefixtures("python")
def test_a_client_that_is_killed_leaves_nothing_running(lab: Lab) -> None:
    with serving(lab) as server:
        with terminal(GPUDOCTOR, *bench(lab), state=state_home().parent) as ours:
            measuring(lab, server, ours)
            ours.process.kill()
            lab.run(until(f"! {OURS} && ! {SESSIONS}"))
        assert server.counter("requests_processing") == 0
    assert not list(state_home().glob("*/*-bench-*.toml"))


@pytest.mark.usefixtures("python")
def test_an_engine_that_dies_is_one_sentence_and_what_was_measured_is_kept(lab: Lab) -> None:
    with serving(lab) as server:
        with terminal(GPUDOCTOR, *bench(lab), state=state_home().parent) as ours:
            measuring(lab, server, ours)
            server.kill()
            ours.until("stopped early: ")
            assert ours.end() == 3
    assert server.url in ours.said[ours.read :] and "Traceback" not in ours.said
    (kept,) = state_home().glob("*/*-bench-*.toml")
    (level,) = load_run(kept.read_bytes(), kept.name).levels
    well = [one for block in level.blocks for one in block.requests if not one.failure]
    assert len(level.blocks) in {2, 3} and len(well) >= 2 and all(one.tokens for one in well)


@pytest.mark.usefixtures("python")
def test_a_fix_that_frees_a_slowed_engine_is_proved(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server is really stopped for half of the time while memory is balanced."""
    values = f"cat {KNOB}; {LEFT}"
    before = lab.run(values)
    argv = words(lab, "prove", NUMA, "--yes", "--json", "--budget", "30s")
    with serving(lab) as server, slowed(lab, server, (KNOB, "1", 0.5)) as record:
        assert main(argv) == 0
        states = lab.run(f"cat {record}").split()
    proof = ProofModel.model_validate(json.loads(capsys.readouterr().out))
    assert lab.run(values) == before and not proof.stopped
    assert not lab.run(f"{OURS} || {SESSIONS} || :")
    (told,) = proof.proved
    assert told.blocks == proof.rounds and told.verdict and told.verdict.judgement == "faster"
    # It was on once a round, and was taken back each time.
    assert states == ["1", "0"] * proof.rounds + ["1"]
