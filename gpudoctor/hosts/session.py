"""One persistent `sh` session on one channel: jobs in, framed answers out as each ends."""

import asyncio
import base64
import binascii
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gpudoctor.hosts.channel import Channel
from gpudoctor.hosts.session_script import Sudo, boot, boot_command, job, prelude
from gpudoctor.model import Reason, Unknown
from gpudoctor.model.error import HostUnreachable, Refusal
from gpudoctor.text import clean, one_line

HELLO_SECONDS = 15.0
# How long after a job's own limit the client still waits: a reader in state D cannot be killed.
GRACE_SECONDS = 0.8
_HELLO = 0
_FRAME_SLACK = 4096


@dataclass(frozen=True, slots=True)
class Job:
    """One line of sh with its limits: seconds on the target, bytes of output and of complaints."""

    command: str
    limit: float = 10.0
    cap: int = 1 << 20
    err_cap: int = 4000
    gentle: bool = False


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """What a job gave; `lost` is set where it gave nothing at all."""

    stdout: bytes = b""
    stderr: str = ""
    exit: int = -1
    seconds: float = 0.0
    lost: Unknown | None = None


class Session:
    """A running session; `uid` is whom the target lets us be, known after `start`."""

    def __init__(
        self,
        open_channel: Callable[[str], Awaitable[Channel]],
        enter: Callable[[str], str] = str,
    ) -> None:
        """Take how to open a channel, and how sh text is carried to the side (into a container)."""
        self._open = open_channel
        self._enter = enter
        self._mark = secrets.token_hex(8)
        self._waiting: dict[int, asyncio.Future[JobAnswer]] = {}
        self._caps: dict[int, int] = {}
        self._count = 0
        self._channel: Channel | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._complaints = b""
        self.uid: int | None = None
        self.ended: Unknown | None = None

    async def start(self, sudo: Sudo = Sudo.QUIET, password: str = "") -> None:
        """Open the channel and wait for the hello frame. Raises HostUnreachable or Refusal."""
        prompt = secrets.token_hex(8)
        channel = await self._open(boot_command(self._enter(boot(self._mark)), sudo, prompt))
        self._channel = channel
        hello = asyncio.get_running_loop().create_future()
        self._waiting[_HELLO] = hello
        self._tasks = [
            asyncio.create_task(self._read_frames(channel)),
            asyncio.create_task(self._read_complaints(channel)),
        ]
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                if sudo is Sudo.PASSWORD:
                    await self._answer_sudo(channel, prompt, password, hello)
                else:
                    channel.write(prelude().encode())
                await channel.drain()
                answer: JobAnswer = await hello
        except TimeoutError:
            await self.close()
            raise HostUnreachable(
                "the shell on the host did not answer; check its login files"
            ) from None
        if answer.lost is not None:
            said = one_line(self._complaints)
            await self.close()
            raise HostUnreachable(f"no shell could be started there: {said or answer.lost.detail}")

    async def _answer_sudo(
        self, channel: Channel, prompt: str, password: str, hello: "asyncio.Future[JobAnswer]"
    ) -> None:
        """Send the password only when sudo asks for it: else sh would take it for a command."""
        asked = 0
        while not hello.done():
            seen = self._complaints.count(prompt.encode())
            if seen > asked:
                asked = seen
                if asked > 1:
                    await self.close()
                    raise Refusal("sudo refused the password", 1)
                channel.write(password.encode() + b"\n" + prelude().encode())
                await channel.drain()
            elif asked == 0 and self._complaints == b"":
                pass
            await asyncio.wait([hello], timeout=0.02)

    async def run(self, job_: Job) -> JobAnswer:
        """Run one job beside the others and return its answer; never raises for the target."""
        if self.ended is not None or self._channel is None:
            return JobAnswer(lost=self.ended or Unknown(Reason.DISCONNECTED, "not connected"))
        self._count += 1
        number = self._count
        future: asyncio.Future[JobAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._caps[number] = (job_.cap + job_.err_cap) * 4 // 3 + _FRAME_SLACK
        line = job(number, job_.command, job_.limit, job_.cap, job_.err_cap, job_.gentle)
        self._channel.write(line.encode())
        try:
            async with asyncio.timeout(job_.limit + GRACE_SECONDS):
                await self._channel.drain()
                return await future
        except TimeoutError:
            return JobAnswer(lost=Unknown(Reason.TIMEOUT, f"no answer within {job_.limit:g} s"))
        finally:
            self._waiting.pop(number, None)

    async def gentle_left(self) -> str:
        """Return pid and name of gentle tools of ours that still run, for the operator."""
        look = (
            f'for p in $(grep -las "GPG={self._mark}" /proc/[0-9]*/environ); do p=${{p%/environ}}; '
            'read -r n <$p/comm; case $n in timeout|sh|env) ;; *) echo "${p#/proc/} $n";; esac; done'
        )
        answer = await self.run(Job(look, limit=2.0, cap=4096))
        return ", ".join(clean(answer.stdout).split("\n")).strip(", ")

    async def close(self) -> None:
        """End the session's input and wait for the target to clean up, a limited time."""
        self._end(Unknown(Reason.DISCONNECTED, "the session was closed"))
        if self._channel is not None:
            await self._channel.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _end(self, why: Unknown) -> None:
        self.ended = self.ended or why
        for future in self._waiting.values():
            if not future.done():
                future.set_result(JobAnswer(lost=self.ended))
        self._waiting.clear()

    async def _read_complaints(self, channel: Channel) -> None:
        with contextlib.suppress(OSError):
            while chunk := await channel.stderr.read(4096):
                self._complaints = (self._complaints + chunk)[-8192:]

    async def _read_frames(self, channel: Channel) -> None:
        why = "the connection ended"
        try:
            while line := await channel.stdout.readline():
                if line.startswith(self._mark.encode()):
                    await self._frame(line, channel)
        except (asyncio.IncompleteReadError, ValueError, OSError) as error:
            why = f"the connection broke: {one_line(str(error), 80)}"
        self._end(Unknown(Reason.DISCONNECTED, why))

    async def _frame(self, line: bytes, channel: Channel) -> None:
        _, number, start, end, length = line.split()
        key = int(number)
        if key == _HELLO:
            self.uid = int(start)
            self._settle(key, JobAnswer(exit=0))
            return
        if int(length) > self._caps.get(key, 0):
            raise ValueError("an answer larger than its limit")
        body = await channel.stdout.readexactly(int(length))
        seconds = max(0.0, float(end) - float(start))
        self._settle(key, decode_body(body, seconds))

    def _settle(self, number: int, answer: JobAnswer) -> None:
        future = self._waiting.pop(number, None)
        if future is not None and not future.done():
            future.set_result(answer)


def decode_body(body: bytes, seconds: float) -> JobAnswer:
    """Return a frame's body as an answer: base64, newline, `=`, base64. Raises ValueError."""
    start = body.find(b"\n=")
    out, errors = (body[:start], body[start + 2 :]) if start >= 0 else (b"", body.lstrip(b"=\n"))
    try:
        complaints, _, code = clean(base64.b64decode(errors)).rstrip("\n").rpartition(":")
        return JobAnswer(base64.b64decode(out), complaints, int(code), seconds)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"a damaged frame ({error})") from error
