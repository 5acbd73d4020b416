"""This machine as a transport: commands as child processes in sessions of their own."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process

from gpudoctor.hosts.channel import Reading
from gpudoctor.model.error import HostUnreachable

_LINE_LIMIT = 1 << 20
_END_SECONDS = 2.0


class LocalChannel:
    """A child process; closing its input lets the session's `sh` clean up after itself."""

    def __init__(self, process: Process) -> None:
        """Take a process with three pipes."""
        assert process.stdin and process.stdout and process.stderr
        self._process = process
        self._stdin = process.stdin
        self.stdout: Reading = process.stdout
        self.stderr: Reading = process.stderr

    def write(self, data: bytes) -> None:
        """Send bytes; a process that is gone shows at its output's end instead."""
        if not self._stdin.is_closing():
            self._stdin.write(data)

    async def drain(self) -> None:
        """Wait until the pipe has room."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await self._stdin.drain()

    async def close(self) -> None:
        """Close the input, wait, then kill the whole session if it stays."""
        self._stdin.close()
        if not await self._ended():
            _kill(self._process)
            await self._ended()
        _let_go(self._process)

    async def _ended(self) -> bool:
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            return False
        return True


async def _end(starting: "asyncio.Future[Process]") -> None:
    """Kill what was started for nobody, with all its children."""
    with contextlib.suppress(OSError):
        process = await starting
        _kill(process)
        await process.wait()
        _let_go(process)


def _let_go(process: Process) -> None:
    """Close our ends of its pipes: asyncio does that at theirs, which some child may hold open."""
    process._transport.close()  # type: ignore[attr-defined]


def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class LocalTransport:
    """Commands on this machine."""

    label = "this machine"

    async def connect(self) -> None:
        """Do nothing: there is no login."""

    async def open(self, command: str) -> LocalChannel:
        """Start a command line of sh. Raises HostUnreachable where no process can be made."""
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                "sh",
                "-c",
                command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
                limit=_LINE_LIMIT,
            )
        )
        try:
            return LocalChannel(await asyncio.shield(starting))
        except OSError as error:
            raise HostUnreachable(f"no sh can be started here: {error.strerror}") from error
        except asyncio.CancelledError:
            # asyncio would kill sh alone, and wait for all that its children hold open.
            await asyncio.shield(asyncio.ensure_future(_end(starting)))
            raise

    async def close(self) -> None:
        """Do nothing: there is no login."""
