"""What a channel says on stderr: the end of it, and the words for the operator."""

import asyncio
import contextlib
import re

from gpudoctor.hosts.channel import Reading
from gpudoctor.text import one_line

# LXC's tools name their source file and line before each complaint.
_SOURCE_LINE = re.compile(rb"lxc-attach: [^\n:]*: \S+\.c: \w+: \d+ ")


class Complaints:
    """The end of what a channel says on stderr, and a way to wait for more."""

    def __init__(self) -> None:
        """Start with nothing said."""
        self.text = b""
        self.ended = False
        self._more = asyncio.Event()

    async def follow(self, stream: Reading) -> None:
        """Read until the end; a broken connection is an end too."""
        with contextlib.suppress(OSError):
            while chunk := await stream.read(4096):
                self.text = (self.text + chunk)[-8192:]
                self._more.set()
        self.ended = True
        self._more.set()

    def told(self) -> str:
        """Return what was said, on one line, each thing once."""
        lines = _SOURCE_LINE.sub(b"", self.text).splitlines()
        return one_line(b"; ".join(dict.fromkeys(line for line in lines if line.strip())))

    def told_without(self, *secrets: bytes) -> str:
        """Return what was said on one line, our prompt and the password taken out."""
        text = self.text
        for secret in filter(None, secrets):
            text = text.replace(secret, b"")
        return one_line(text) or "it said nothing"

    async def more(self) -> None:
        """Wait until something is said, or the end."""
        if not self.ended:
            await self._more.wait()
            self._more.clear()
