"""Frames: the answers in a channel's output, found among whatever else a login shell prints."""

import base64
import binascii
from dataclasses import dataclass

from gpudoctor.hosts.channel import Reading
from gpudoctor.text import clean

_CHUNK = 1 << 16
# A line longer than this is noise: it is dropped as it comes, never kept.
_LONGEST_LINE = 4096


@dataclass(frozen=True, slots=True)
class Header:
    """One frame's first line: the job's number, two words for it, and the bytes that follow."""

    number: int
    first: str
    second: str
    length: int


class FrameReader:
    """Reads headers and bodies with bounded memory, whatever the other end sends."""

    def __init__(self, stream: Reading, mark: str) -> None:
        """Take the stream and the mark that starts every header line."""
        self._stream = stream
        self._mark = mark.encode() + b" "
        self._buffer = bytearray()

    async def header(self) -> Header | None:
        """Return the next frame's header, None at the end. Raises ValueError for a damaged one."""
        while (line := await self._line()) is not None:
            if line.startswith(self._mark):
                return _header(line)
        return None

    async def body(self, length: int) -> bytes:
        """Return exactly `length` bytes. Raises ValueError where the stream ends before."""
        while len(self._buffer) < length:
            chunk = await self._stream.read(_CHUNK)
            if not chunk:
                raise ValueError("it ended in the middle of an answer")
            self._buffer += chunk
        body = bytes(memoryview(self._buffer)[:length])
        del self._buffer[:length]
        return body

    async def _line(self) -> bytes | None:
        noise = False
        while True:
            at = self._buffer.find(b"\n")
            if at >= 0:
                line = bytes(self._buffer[:at])
                del self._buffer[: at + 1]
                if not noise:
                    return line
                noise = False
                continue
            if len(self._buffer) > _LONGEST_LINE:
                self._buffer.clear()
                noise = True
            chunk = await self._stream.read(_CHUNK)
            if not chunk:
                return None
            self._buffer += chunk


def _header(line: bytes) -> Header:
    words = line.decode("ascii", "replace").split()
    if len(words) != 5 or not all(word.isdecimal() for word in (words[1], words[4])):
        raise ValueError("a damaged frame")
    return Header(int(words[1]), words[2], words[3], int(words[4]))


def frame_limit(cap: int, err_cap: int) -> int:
    """Return the most bytes a frame may have: base64 in lines of 76, of output and complaints."""
    return (cap + err_cap + 64) * 4 // 3 * 77 // 76 + 4096


def decode_body(body: bytes) -> tuple[bytes, str, int]:
    """Return output, complaints (safe text) and exit code of a frame's body. Raises ValueError.

    The body is the output's base64, a newline, `=`, and the base64 of `complaints:exit`, or `:exit`
    as it is.
    """
    at = 0 if body.startswith(b"=") else body.find(b"\n=") + 1
    if at == 0 and not body.startswith(b"="):
        raise ValueError("a damaged frame")
    try:
        last = body[at + 1 :]
        said = last if last.startswith(b":") else base64.b64decode(last)
        complaints, _, code = clean(said).rstrip("\n").rpartition(":")
        return base64.b64decode(memoryview(body)[:at]), complaints, int(code)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"a damaged frame ({error})") from error
