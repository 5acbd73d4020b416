"""A text of ours that runs in a python3 beside the engine: lines of JSON in, lines of JSON out.

Its input stays open while it is wanted: the text ends itself at the end of it, whatever became of
us, and nothing is written to the target's disk.
"""

import asyncio
import contextlib
import json
import re
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files

from gpudoctor.hosts.channel import Channel, Reading
from gpudoctor.hosts.complaints import Complaints
from gpudoctor.model.error import Refusal
from gpudoctor.text import one_line

READY_SECONDS = 15.0
_LACKS = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_MOST_LINE = 4 << 20
_MOST_GARBAGE = 1 << 16
# -I and -B: no code of the user's, no __pycache__; backslash-free, for any login shell.
_BOOT = (
    "import sys;sys.version_info<(3,7) and sys.exit('python3 there is older than 3.7');"
    'exec(compile(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())),"gpudoctor","exec"))'
)


class NotStarted(Refusal):
    """No python3 could be started that way; the sentence says why."""


def python_command(python: str = "python3") -> str:
    """Return the sh text that becomes a Python which reads its program from its input."""
    return f"exec {shlex.quote(python)} -IBc {shlex.quote(_BOOT)}"


class Lines:
    """The lines of a stream, each of at most a few megabytes."""

    def __init__(self, stream: Reading) -> None:
        """Take the stream."""
        self._stream = stream
        self._parts: list[bytes] = []
        self._size = 0
        self._lines: list[bytes] = []

    async def next(self) -> bytes | None:
        """Return the next line, or None at the end. Raises OSError: broken, or an endless line."""
        while not self._lines:
            chunk = await self._stream.read(1 << 16)
            if not chunk:
                return None
            *whole, rest = chunk.split(b"\n")
            if whole:
                whole[0] = b"".join([*self._parts, whole[0]])
                self._parts, self._size = [], 0
                self._lines = whole[::-1]
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > _MOST_LINE:
                raise ConnectionError("an endless line came instead of an answer")
        return self._lines.pop()

    async def discard(self) -> None:
        """Read to the end: output that nobody reads would hold a command's end back."""
        with contextlib.suppress(OSError):
            while await self._stream.read(1 << 16):
                pass


class Sent:
    """A running text; `python` is the version it runs in."""

    def __init__(self, channel: Channel) -> None:
        """Take a channel on which a Python waits for its program."""
        self._channel = channel
        self._lines = Lines(channel.stdout)
        self._complaints = Complaints()
        self._heard = asyncio.create_task(self._complaints.follow(channel.stderr))
        self.python = ""

    async def start(self, name: str) -> None:
        """Send one of our texts and wait until it is ready. Raises NotStarted."""
        text = files("gpudoctor.bench").joinpath(name).read_bytes()
        self._channel.write(b"%d\n%b" % (len(text), text))
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._channel.drain()
                self.python = await self._ready()
        except TimeoutError:
            raise NotStarted(f"python3 did not start within {READY_SECONDS:g} s") from None
        except OSError as error:
            raise NotStarted(f"the connection broke: {one_line(str(error), 80)}") from None

    async def _ready(self) -> str:
        """Skip what a login file prints."""
        garbage = 0
        while garbage < _MOST_GARBAGE:
            line = await self._lines.next()
            if line is None:
                await asyncio.wait([self._heard], timeout=1)
                raise NotStarted(_complaint(self._complaints.told()) or "no python3 there")
            garbage += len(line) + 1
            if isinstance(version := _row(line).get("ready"), str):
                return one_line(version, 20)
        raise NotStarted("a login file there prints without end")

    async def tell(self, row: Mapping[str, object]) -> None:
        """Send one line."""
        self._channel.write(json.dumps(row).encode() + b"\n")
        await self._channel.drain()

    async def hear(self) -> dict[str, object] | None:
        """Return the next row, or None at the end. Raises OSError where the line is broken."""
        line = await self._lines.next()
        return None if line is None else _row(line)

    def complaint(self) -> str:
        """Return what it said on its standard error, on one line."""
        return self._complaints.told()

    async def close(self) -> None:
        """End its input, and so the text and all that it does."""
        rest = asyncio.create_task(self._lines.discard())
        await self._channel.close()
        await asyncio.wait([rest], timeout=1)
        for task in (rest, self._heard):
            task.cancel()
        await asyncio.gather(rest, self._heard, return_exceptions=True)


def _complaint(told: str) -> str:
    """Return what a Python said as it ended; a whole one has all modules that ours need."""
    lacks = _LACKS.search(told)
    return f"python3 there is not whole: it lacks the module {lacks[1]}" if lacks else told


def _row(line: bytes) -> dict[str, object]:
    with contextlib.suppress(ValueError, RecursionError):
        row = json.loads(line)
        if isinstance(row, dict):
            return row
    return {}


@asynccontextmanager
async def running(channel: Channel, name: str) -> AsyncIterator[Sent]:
    """Yield one of our texts, started on a channel, and end it. Raises NotStarted."""
    sent = Sent(channel)
    try:
        await sent.start(name)
        yield sent
    finally:
        await asyncio.shield(sent.close())
