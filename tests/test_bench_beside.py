"""The client's process: it ends with us however we end, and reaches an engine wherever it is."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.bench import way
from gpudoctor.bench.ask import bodies
from gpudoctor.bench.asking import asking
from gpudoctor.bench.beside import open_beside
from gpudoctor.bench.sent import NotStarted, Sent, python_command
from gpudoctor.bench.way import near
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.ssh import SshTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import Side
from gpudoctor.model.bench import Serving
from gpudoctor.model.error import Refusal
from gpudoctor.model.place import ContainerRef
from tests.decode_rig import here
from tests.hostile_engine import Hostile, hostile_engine
from tests.ssh_server import ssh_server

_ROOT = Path(__file__).parent.parent


def _clients() -> set[int]:
    """Return the pids of Pythons that wait for a program of ours."""
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes() if folder.name.isdecimal() else b""
        except OSError:
            continue
        if b"\0-IBc\0" in words and b'"gpudoctor","exec"' in words:
            found.add(int(folder.name))
    return found


async def _gone(pids: set[int]) -> bool:
    await _until(lambda: not pids & _clients())
    return True


def _serving(engine: Hostile) -> Serving:
    return Serving("vLLM", engine.url, "m")


async def test_jobs_come_after_each_other_over_one_process() -> None:
    seen: list[tuple[float, int]] = []
    with hostile_engine("well") as engine:
        serving = _serving(engine)
        async with open_beside(here(), serving) as beside:
            assert beside.path == way.BESIDE
            before = _clients()
            for streams in (1, 3):
                requests, wall = await beside.job(
                    bodies(serving, 6, 16, 0), streams, lambda at, pieces: seen.append((at, pieces))
                )
                assert [r.tokens for r in requests] == [16] * 6
                assert wall > 0
            assert _clients() == before
    assert any(pieces > 0 for _, pieces in seen)


async def test_a_cancelled_job_leaves_nothing_and_the_next_runs() -> None:
    with hostile_engine("forever", well=0) as engine:
        serving = _serving(engine)
        before = _clients()
        async with open_beside(here(), serving) as beside:
            mine = _clients() - before
            job = asyncio.create_task(beside.job(bodies(serving, 4, 16, 0), 4))
            await _until(lambda: engine.open == 4)
            job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await job
            assert mine and await _gone(mine)
            await _until(lambda: engine.open == 0)
            engine.well = 99
            requests, _ = await beside.job(bodies(serving, 1, 16, 0), 1)
            assert [r.failure for r in requests] == [None]
            mine = _clients() - before
        assert mine and await _gone(mine)


async def test_it_ends_when_whoever_sent_it_is_killed() -> None:
    """A process of its own opens a client and a stream, and is killed in the midst of it."""
    with hostile_engine("forever") as engine:
        before = _clients()
        script = (
            "import asyncio, sys\n"
            "from gpudoctor.bench.ask import bodies\n"
            "from gpudoctor.bench.beside import open_beside\n"
            "from gpudoctor.model.bench import Serving\n"
            "from tests.decode_rig import here\n"
            "async def main():\n"
            "    serving = Serving('vLLM', sys.argv[1], 'm')\n"
            "    async with open_beside(here(), serving) as beside:\n"
            "        await beside.job(bodies(serving, 1, 16, 0), 1)\n"
            "asyncio.run(main())\n"
        )
        ours = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, engine.url, cwd=_ROOT
        )
        try:
            await _until(lambda: engine.open == 1)
            mine = _clients() - before
        finally:
            ours.kill()
            await ours.wait()
        assert mine and await _gone(mine)
        await _until(lambda: engine.open == 0)


async def test_the_end_of_its_input_ends_it_though_its_output_is_read_on() -> None:
    with hostile_engine("forever") as engine:
        before = _clients()
        async with near(here(), _serving(engine), "client.py") as place:
            job = {"job": 1, "url": engine.url, "path": "/v1/completions", "headers": {}}
            limits = {"streams": 1, "stall_seconds": 60, "request_seconds": 60}
            await place.sent.tell({**job, **limits, "bodies": bodies(_serving(engine), 1, 16, 0)})
            await _until(lambda: engine.open == 1)
            mine = _clients() - before
            place.sent._channel._stdin.close()  # type: ignore[attr-defined]
            async with asyncio.timeout(10):
                while await place.sent.hear() is not None:
                    pass
            assert mine and await _gone(mine)


async def test_what_a_login_file_prints_is_skipped() -> None:
    noise = "echo Welcome; echo '{\"motd\": 1}'; printf '\\033[1m\\377\\n';"
    channel = await LocalTransport().open(noise + python_command(sys.executable))
    sent = Sent(channel)
    await sent.start("client.py")
    assert sent.python.startswith("3.")
    await sent.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("exec nothing-of-this-name", "not found"),
        ("yes", "prints without end"),
        ("echo broken python>&2; exit 3", "broken python"),
    ],
)
async def test_no_python_there_is_one_sentence(text: str, words: str) -> None:
    sent = Sent(await LocalTransport().open(text))
    with pytest.raises(NotStarted, match=words):
        await sent.start("client.py")
    await sent.close()


async def test_no_way_to_an_engine_is_one_sentence() -> None:
    serving = Serving("vLLM", "http://127.0.0.1:1", "m", side=Side.CONTAINER, pid=os.getpid())
    gone = Serving("vLLM", "http://127.0.0.1:1", "m", side=Side.CONTAINER, pid=1, started=1)
    nowhere = Serving("vLLM", "http://127.0.0.1:1", "m", side=Side.CONTAINER)
    for one in (gone, nowhere):
        with pytest.raises(Refusal, match="nothing of ours can be run beside the engine"):
            async with open_beside(here(), one):
                pass
    if os.geteuid() == 0:
        async with open_beside(here(), serving) as beside:
            assert beside.path == way.NAMESPACE


async def test_another_network_namespace_is_entered() -> None:
    if os.geteuid() != 0:
        pytest.skip("enters a network namespace: only as root")
    script = (
        "import threading,sys\nfrom tests.hostile_engine import hostile_engine\n"
        "import subprocess\nsubprocess.run(['ip','link','set','lo','up'],check=True)\n"
        "with hostile_engine('well') as engine:\n"
        " print(engine.url,flush=True)\n sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    engine = await asyncio.create_subprocess_exec(
        "unshare", "-n", sys.executable, "-c", script, cwd=_ROOT, stdin=pipe, stdout=pipe
    )
    assert engine.stdout
    try:
        url = (await engine.stdout.readline()).decode().strip()
        serving = Serving(
            "vLLM", url, "m", pid=engine.pid, started=_started(engine.pid), side=Side.CONTAINER
        )
        async with open_beside(here(), serving) as beside:
            requests, _ = await beside.job(bodies(serving, 2, 16, 0), 1)
        assert [r.tokens for r in requests] == [16, 16]
        again = replace(serving, started=serving.started + 1)
        with pytest.raises(Refusal, match="has ended or was started again"):
            async with open_beside(here(), again):
                pass
    finally:
        await engine.communicate(b"")


def _started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


async def test_a_container_is_entered_and_the_lifeline_reaches_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for Docker's client, which runs what it is given here."""
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\n[ "$1 $2 $3" = "exec -i box" ] || exit 9\nshift 3;exec "$@"\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with hostile_engine("well") as engine:
        box = ContainerRef("docker", "box")
        serving = replace(_serving(engine), side=Side.CONTAINER, container=box)
        before = _clients()
        async with open_beside(here(), serving) as beside:
            assert beside.path == way.INSIDE
            requests, _ = await beside.job(bodies(serving, 2, 16, 0), 1)
            mine = _clients() - before
        assert [r.tokens for r in requests] == [16, 16]
        assert mine and await _gone(mine)


@pytest.fixture
async def ssh_place(tmp_path: Path) -> AsyncIterator[SshTransport]:
    """Give a login to this machine over SSH."""
    async with ssh_server(tmp_path) as server:
        yield SshTransport("gpubox", server.config())


async def test_over_ssh_and_through_a_forward_where_no_python_is(
    ssh_place: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = LiveTarget(ssh_place)
    with hostile_engine("well") as engine:
        serving = _serving(engine)
        try:
            async with open_beside(target, serving) as beside:
                assert beside.path == way.BESIDE
                requests, _ = await beside.job(bodies(serving, 2, 16, 0), 2)
                assert [r.tokens for r in requests] == [16, 16]
            monkeypatch.setattr(way, "python_command", _no_python)
            async with open_beside(target, serving) as beside:
                assert "round trips are in the numbers" in beside.path
                requests, _ = await beside.job(bodies(serving, 2, 16, 0), 2)
                assert [r.tokens for r in requests] == [16, 16]
        finally:
            await target.close()


def _no_python(python: str = "") -> str:
    return python_command(python) if python else "exec no-python3-here"


async def test_an_asker_asks_and_blanks_the_key() -> None:
    answers = {"/metrics": (200, "vllm:num_requests_running 2\n# key s3same\n")}
    with hostile_engine("well", answers=answers) as engine:
        async with asking(here(), _serving(engine), "s3same") as asker:
            found = await asker.get("/metrics")
            missing = await asker.get("/nothing")
    assert found.good and "running 2" in found.body and "s3same" not in found.body
    assert missing.status == 404 and not missing.good


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        for _ in range(1000):
            if done():
                return
            await asyncio.sleep(0.02)
    raise AssertionError("it did not come about")
