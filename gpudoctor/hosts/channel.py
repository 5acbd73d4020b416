"""Channels and transports: how text gets to a `sh` on a side and its answers back."""

from typing import Protocol


class Reading(Protocol):
    """The bytes that come from a channel."""

    async def read(self, n: int = ..., /) -> bytes:
        """Return up to n bytes; empty at the end."""
        ...


class Channel(Protocol):
    """One running command with its three streams."""

    @property
    def stdout(self) -> Reading:
        """Return the command's output."""
        ...

    @property
    def stderr(self) -> Reading:
        """Return the command's complaints."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes to the command's input."""
        ...

    async def drain(self) -> None:
        """Wait until the input has room."""
        ...

    async def close(self) -> None:
        """End the command's input and wait, a limited time, for it to finish."""
        ...


class Transport(Protocol):
    """A way to start commands on a machine: this one, or one over SSH."""

    @property
    def label(self) -> str:
        """Return the machine's name for the operator."""
        ...

    async def connect(self) -> None:
        """Log in. Raises HostUnreachable with one sentence."""
        ...

    async def open(self, command: str) -> Channel:
        """Start a command line of the login shell. Raises HostUnreachable."""
        ...

    async def close(self) -> None:
        """Log out."""
        ...
