"""One persistent `sh` session on one channel: jobs in, framed answers out as each ends."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gpudoctor.hosts.channel import Channel
from gpudoctor.hosts.complaints import Complaints
from gpudoctor.hosts.frames import FrameReader, Header, decode_body, frame_limit
from gpudoctor.hosts.session_script import Prompt, Sudo, boot, boot_command, job, prelude
from gpudoctor.model import Reason, Unknown
from gpudoctor.model.error import HostUnreachable, Refusal
from gpudoctor.text import clean, one_line

HELLO_SECONDS = 25.0
# How long after a job's own limit the client still waits: a reader in state D cannot be killed.
# A machine that was slow to say hello gets more, up to _LONG_GRACE_SECONDS.
GRACE_SECONDS = 0.8
_LONG_GRACE_SECONDS = 5.0
# Jobs at once: on a machine that was slow to say hello, more would push each other into limits.
_SLOTS, _FEW_SLOTS = 64, 8
_SLOW_SECONDS = 1.0
_LAST_WORDS_SECONDS = 1.0
_HELLO = 0


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
        self._limits: dict[int, int] = {}
        self._count = 0
        self._grace = GRACE_SECONDS
        self._slots = asyncio.Semaphore(_SLOTS)
        self._channel: Channel | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._complaints = Complaints()
        self.uid: int | None = None
        self.ended: Unknown | None = None

    async def start(self, sudo: Sudo = Sudo.QUIET, password: str = "") -> None:
        """Open the channel and wait for the hello frame. Raises HostUnreachable or Refusal."""
        prompt = Prompt()
        text = self._enter(boot(self._mark, prompt if sudo is Sudo.PASSWORD else None))
        begun = time.monotonic()
        channel = self._channel = await self._open(boot_command(text, sudo, prompt))
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                await self._greet(channel, prompt if sudo is Sudo.PASSWORD else None, password)
        except TimeoutError:
            await self.close()
            what = "the shell on the host did not answer; check the login files of the user there"
            raise HostUnreachable(what) from None
        except BaseException:
            await self.close()
            raise
        self._suit(time.monotonic() - begun)

    def _suit(self, hello_seconds: float) -> None:
        """Ask a slow machine for less at once, and wait longer for it."""
        self._grace = min(max(GRACE_SECONDS, 2 * hello_seconds), _LONG_GRACE_SECONDS)
        if hello_seconds > _SLOW_SECONDS:
            self._slots = asyncio.Semaphore(_FEW_SLOTS)

    async def run(self, job_: Job) -> JobAnswer:
        """Run one job beside the others and return its answer; never raises for the target."""
        async with self._slots:
            return await self._run(job_)

    async def look(self, job_: Job) -> JobAnswer:
        """Run a job that finds out about the others: it waits for none of them."""
        return await self._run(job_)

    async def _run(self, job_: Job) -> JobAnswer:
        if self.ended is not None or self._channel is None:
            return JobAnswer(lost=self.ended or Unknown(Reason.DISCONNECTED, "not connected"))
        self._count += 1
        number = self._count
        future = self._expect(number, frame_limit(job_.cap, job_.err_cap))
        line = job(number, job_.command, job_.limit, job_.cap, job_.err_cap, job_.gentle)
        self._channel.write(line.encode("utf-8", "surrogateescape"))
        try:
            async with asyncio.timeout(job_.limit + self._grace):
                await self._channel.drain()
                return await future
        except TimeoutError:
            return JobAnswer(lost=Unknown(Reason.TIMEOUT, f"no answer within {job_.limit:g} s"))
        finally:
            self._waiting.pop(number, None)

    async def gentle_left(self) -> str:
        """Return name and pid of gentle tools of ours that still run, for the operator."""
        look = (
            f'for p in $(grep -las "GPG={self._mark}" /proc/[0-9]*/environ); do p=${{p%/environ}}; '
            'read -r n <$p/comm; case $n in timeout|sh|env) ;; *) echo "$n (pid ${p#/proc/})";; '
            "esac; done 2>/dev/null"
        )
        answer = await self.look(Job(look, limit=2.0, cap=4096))
        return ", ".join(clean(answer.stdout).split("\n")).strip(", ")

    def open_files_text(self) -> str:
        """Return sh text that lists the files which jobs of this session have open."""
        return (
            f'for p in $(grep -las "GPD={self._mark}" /proc/[0-9]*/environ); '
            "do ls -ld ${p%/environ}/fd/*; done 2>/dev/null"
        )

    async def close(self) -> None:
        """End the session's input and wait for the target to clean up, a limited time."""
        self._end(Unknown(Reason.DISCONNECTED, "the session was closed"))
        if self._channel is not None:
            await self._channel.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _greet(self, channel: Channel, prompt: Prompt | None, password: str) -> None:
        """Pass sudo, define the session, and wait for its hello frame."""
        hello = self._expect(_HELLO, 0)
        heard = asyncio.create_task(self._complaints.follow(channel.stderr))
        self._tasks = [asyncio.create_task(self._read_frames(channel)), heard]
        if prompt is not None:
            await self._pass_sudo(channel, prompt, password)
        channel.write(prelude().encode())
        await channel.drain()
        answer = await hello
        if answer.lost is None:
            return
        if answer.lost.reason is Reason.TOOL_MISSING:
            raise HostUnreachable(answer.lost.detail)
        await asyncio.wait([heard], timeout=_LAST_WORDS_SECONDS)
        said = self._complaints.told() or answer.lost.detail
        raise HostUnreachable(f"no shell could be started there: {said}")

    async def _pass_sudo(self, channel: Channel, prompt: Prompt, password: str) -> None:
        """Send the password only when sudo asks for it: else sh would take it for a command."""
        sent = False
        heard = self._complaints
        while prompt.ready not in heard.text:
            if heard.text.count(prompt.asked) > sent:
                if sent:
                    raise Refusal("sudo refused the password: check it, or go without sudo", 3)
                channel.write(password.encode() + b"\n")
                await channel.drain()
                sent = True
            elif heard.ended:
                said = heard.told_without(prompt.asked, password.encode())
                raise Refusal(f"sudo gave no root shell: {said}", 3)
            else:
                await heard.more()

    def _expect(self, number: int, limit: int) -> "asyncio.Future[JobAnswer]":
        future: asyncio.Future[JobAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._limits[number] = limit
        return future

    def _end(self, why: Unknown) -> None:
        self.ended = self.ended or why
        for future in self._waiting.values():
            if not future.done():
                future.set_result(JobAnswer(lost=self.ended))
        self._waiting.clear()

    async def _read_frames(self, channel: Channel) -> None:
        frames = FrameReader(channel.stdout, self._mark)
        why = "the connection ended"
        try:
            while header := await frames.header():
                await self._frame(header, frames)
        except (ValueError, OSError) as error:
            why = f"the connection broke: {one_line(str(error), 80)}"
        self._end(Unknown(Reason.DISCONNECTED, why))

    async def _frame(self, header: Header, frames: FrameReader) -> None:
        if header.length > self._limits.get(header.number, -1):
            raise ValueError("an answer that was not asked for, or larger than its limit")
        if header.number == _HELLO:
            self._settle(_HELLO, self._hello(header))
            return
        out, complaints, code = decode_body(await frames.body(header.length))
        seconds = max(0.0, float(header.second) - float(header.first))
        self._settle(header.number, JobAnswer(out, complaints, code, seconds))

    def _hello(self, header: Header) -> JobAnswer:
        missing = [clean(name) for name in header.second.split(",") if name]
        if missing:
            what = f"the shell there lacks {', '.join(missing)}, without which nothing can be read"
            return JobAnswer(lost=Unknown(Reason.TOOL_MISSING, what))
        self.uid = int(header.first)
        return JobAnswer(exit=0)

    def _settle(self, number: int, answer: JobAnswer) -> None:
        future = self._waiting.pop(number, None)
        if future is not None and not future.done():
            future.set_result(answer)
