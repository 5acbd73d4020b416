"""The session: one `sh` for all jobs, over several shells, against hostile output."""

import asyncio
import os
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gpudoctor.hosts.frames import decode_body
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.session import Job, JobAnswer, Session
from gpudoctor.hosts.session_script import Sudo, job
from gpudoctor.hosts.side import LiveSide
from gpudoctor.model import Reason, Tool
from gpudoctor.model.error import HostUnreachable
from tests.processes import marked
from tests.tools import missing

SHELLS = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"]}


@pytest.fixture(params=SHELLS)
def shell_path(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Put a folder first on PATH whose `sh` is the shell; busybox brings its own tools."""
    words = SHELLS[request.param]
    found = shutil.which(words[0])
    if found is None:
        missing(words[0])
    folder = tmp_path / "bin"
    folder.mkdir()
    names = ["sh"]
    if request.param == "busybox":
        names += ["base64", "head", "tail", "timeout", "grep", "env", "id", "sleep"]
    for name in names:
        (folder / name).symlink_to(found)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return str(folder)


def first_on_path(folder: str) -> Callable[[str], str]:
    """Return how sh text finds that folder's tools first, after the session set its own PATH."""

    def carried(text: str) -> str:
        return text.replace('eval "$l"', f'eval "$l";PATH={folder}:$PATH')

    return carried


@pytest.fixture
async def session(shell_path: str) -> AsyncIterator[Session]:
    running = Session(LocalTransport().open, first_on_path(shell_path))
    await running.start(Sudo.NEVER)
    yield running
    await running.close()


async def test_output_complaints_and_exit_code_come_back_exactly(session: Session) -> None:
    answer = await session.run(Job("echo out; echo err >&2; exit 3"))
    assert (answer.stdout, answer.stderr, answer.exit) == (b"out\n", "err\n", 3)


async def test_any_byte_comes_back_as_it_is(session: Session) -> None:
    answer = await session.run(Job("printf '\\377\\000\\033[31m\\n\\n'; printf '\\376' >&2"))
    assert answer.stdout == b"\xff\x00\x1b[31m\n\n"
    assert answer.stderr == "\\xfe"


async def test_jobs_run_beside_each_other(session: Session) -> None:
    begun = time.monotonic()
    answers = await asyncio.gather(*(session.run(Job(f"sleep 0.5; echo {n}")) for n in range(20)))
    assert [int(a.stdout) for a in answers] == list(range(20))
    assert time.monotonic() - begun < 5


async def test_output_above_the_cap_is_cut_there(session: Session) -> None:
    endless = await session.run(Job("yes", limit=20, cap=10_000))
    assert len(endless.stdout) == 10_001 and endless.exit != 124
    large = await session.run(Job("head -c 3000000 /dev/zero", cap=3_000_000))
    assert large.stdout == bytes(3_000_000)


async def test_endless_complaints_end_with_the_limit(session: Session) -> None:
    answer = await session.run(Job("yes complaint >&2", limit=1))
    assert answer.exit in (124, 143) or answer.lost
    assert len(answer.stderr) <= 4000


async def test_a_hung_job_harms_no_other(session: Session) -> None:
    hung, other = await asyncio.gather(
        session.run(Job("trap '' TERM; while :; do sleep 1; done", limit=1)),
        session.run(Job("echo fine")),
    )
    assert other.stdout == b"fine\n"
    assert hung.lost is not None and hung.lost.reason is Reason.TIMEOUT


async def test_a_job_reads_no_jobs_and_holds_no_channel(session: Session) -> None:
    answer = await session.run(Job("cat; ls /proc/self/fd"))
    assert answer.stdout.split() == [b"0", b"1", b"2", b"3"]
    assert (await session.run(Job("echo again"))).stdout == b"again\n"


async def test_closing_leaves_nothing_even_of_escaped_children(session: Session) -> None:
    await session.run(Job("(setsid sleep 300 & setsid sh -c 'sleep 301' &) >/dev/null 2>&1"))
    asking = asyncio.create_task(session.run(Job("trap '' TERM HUP; sleep 302; sleep 303")))
    assert len(await marked(session, present=True)) >= 3
    await session.close()
    assert await marked(session, present=False) == []
    lost = (await asking).lost
    assert lost is not None and lost.reason is Reason.DISCONNECTED


async def test_a_gentle_tool_that_ignores_sigterm_is_named_and_never_killed(
    tmp_path: Path,
) -> None:
    stubborn = tmp_path / "stubborn-tool"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", stubborn)
    # An ignored signal stays ignored over exec: the tool itself is deaf to SIGTERM.
    script = f"trap '' TERM; exec {stubborn} 600"
    running = Session(LocalTransport().open)
    side = LiveSide(running, Sudo.NEVER)
    await side.start()
    probe = Tool("stubborn", "stubborn-tool", script, limit=1, gentle=True)
    (answer,) = side.ask([probe])
    (evidence,) = await answer
    begun = time.monotonic()
    await side.close()
    closing = time.monotonic() - begun
    left = await marked(running, present=True, gentle=True)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert evidence.problem is not None and evidence.problem.reason is Reason.TIMEOUT
    assert "stubborn-tool (pid " in evidence.problem.detail
    assert left, "a gentle tool must not be killed"
    assert closing < 2


async def test_no_job_has_two_lines() -> None:
    with pytest.raises(ValueError):
        job(1, "echo\necho", 1, 1, 1, False)


class Scripted:
    """A channel whose far end is the test."""

    def __init__(self) -> None:
        self.stdout = asyncio.StreamReader()
        self.stderr = asyncio.StreamReader()
        self.sent = b""
        self.mark = b""

    async def open(self, command: str) -> "Scripted":
        found = re.search("GPD=([0-9a-f]+)", command)
        assert found
        self.mark = found[1].encode()
        self.stdout.feed_data(b"Welcome!\nno newline yet\n" + self.mark + b" 0 1000 , 0\n")
        return self

    def write(self, data: bytes) -> None:
        self.sent += data

    async def drain(self) -> None:
        return

    async def close(self) -> None:
        for stream in (self.stdout, self.stderr):
            stream.feed_eof()


@pytest.fixture
async def far() -> AsyncIterator[tuple[Scripted, Session]]:
    channel = Scripted()
    session = Session(channel.open)
    await session.start(Sudo.NEVER)
    yield channel, session
    await session.close()


async def asked(session: Session) -> "asyncio.Task[JobAnswer]":
    task = asyncio.create_task(session.run(Job("true", limit=5, cap=100)))
    await asyncio.sleep(0)
    return task


async def test_the_login_noise_is_skipped(far: tuple[Scripted, Session]) -> None:
    channel, session = far
    assert session.uid == 1000
    task = await asked(session)
    channel.stdout.feed_data(b"x" * 9000 + b"\n" + channel.mark + b" 1 1.0 1.5 10\naGk=\n=OjA=\n")
    answer = await task
    assert (answer.stdout, answer.exit, answer.seconds) == (b"hi", 0, 0.5)


@pytest.mark.parametrize(
    "frame",
    [
        b" 1 0 0 10000000000\n",
        b" 99 0 0 10\nxxxxxxxxxx",
        b" 1 0 0 -5\n",
        b" 1 0 0\n",
        b" 1 0 0 8\n!!!!!!!!",
        b" 1 0 0 5\n=bm8=",
        b" 1 soon later 6\n=OjA=\n",
        b" zero 0 0 0\n",
        b" \xff\xfe 0 0 0\n",
    ],
)
async def test_a_forged_frame_ends_the_session_and_not_the_program(
    far: tuple[Scripted, Session], frame: bytes
) -> None:
    channel, session = far
    task = await asked(session)
    channel.stdout.feed_data(b"\n" + channel.mark + frame)
    lost = (await task).lost
    assert lost is not None and lost.reason is Reason.DISCONNECTED
    assert (await session.run(Job("true"))).lost == lost


async def test_a_connection_that_ends_in_an_answer_is_an_unknown(
    far: tuple[Scripted, Session],
) -> None:
    channel, session = far
    task = await asked(session)
    channel.stdout.feed_data(b"\n" + channel.mark + b" 1 0 0 100\naGk=")
    channel.stdout.feed_eof()
    lost = (await task).lost
    assert lost is not None and lost.reason is Reason.DISCONNECTED


async def test_a_late_answer_is_dropped(far: tuple[Scripted, Session]) -> None:
    channel, session = far
    late = asyncio.create_task(session.run(Job("true", limit=0.0, cap=100)))
    assert (await late).lost is not None
    task = await asked(session)
    body = b"aGk=\n=OjA="
    for number in (b"1", b"2"):
        channel.stdout.feed_data(
            channel.mark + b" %s 0 0 %d\n" % (number, len(body)) + body + b"\n"
        )
    assert (await task).stdout == b"hi"


async def test_a_shell_without_the_needed_tools_is_said() -> None:
    channel = Scripted()

    async def poor(command: str) -> Scripted:
        await channel.open(command)
        channel.stdout = asyncio.StreamReader()
        channel.stdout.feed_data(channel.mark + b" 0 0 ,base64,timeout, 0\n")
        return channel

    with pytest.raises(HostUnreachable, match="lacks base64, timeout"):
        await Session(poor).start(Sudo.NEVER)


async def test_a_command_that_is_no_shell_is_told_in_its_own_words() -> None:
    def no_shell(_: str) -> str:
        return "echo 'the door is locked' >&2; exit 1"

    with pytest.raises(HostUnreachable, match="the door is locked"):
        await Session(LocalTransport().open, no_shell).start(Sudo.NEVER)


async def test_a_cancelled_start_leaves_no_process() -> None:
    session = Session(LocalTransport().open, lambda text: f"sleep 5; {text}")
    task = asyncio.create_task(session.start(Sudo.NEVER))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert session.ended is not None


@pytest.mark.parametrize("body", [b"", b"aGk=", b"=", b"aGk=\n=YWI="])
def test_a_damaged_body_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        decode_body(body)
