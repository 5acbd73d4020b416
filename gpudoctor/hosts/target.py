"""A target: one host with the container that serves on it, and the sides that answer for them."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from gpudoctor.hosts.channel import Channel, Transport
from gpudoctor.hosts.container import enter
from gpudoctor.hosts.session import Session
from gpudoctor.hosts.session_script import Sudo, boot_command
from gpudoctor.hosts.side import AnswerSide, LiveSide
from gpudoctor.model.place import ContainerRef


class Target(Protocol):
    """What an audit reads: a host side, and a container side where there is one."""

    @property
    def label(self) -> str:
        """Return the host's name for the operator."""
        ...

    @property
    def chosen_container(self) -> ContainerRef | None:
        """Return the container the operator named; None lets the audit find it."""
        ...

    @property
    def simulated(self) -> bool:
        """Return whether this is the demo's machine, labelled so everywhere."""
        ...

    async def connect(self) -> None:
        """Reach the host. Raises HostUnreachable."""
        ...

    def host(self) -> AnswerSide:
        """Return the host's side, not started."""
        ...

    def container(self, ref: ContainerRef) -> AnswerSide:
        """Return a container's side, not started."""
        ...

    async def close(self) -> None:
        """Leave the host."""
        ...


class LiveTarget:
    """A real host over a transport."""

    simulated = False

    def __init__(
        self,
        transport: Transport,
        container: ContainerRef | None = None,
        sudo: Sudo = Sudo.QUIET,
        password: str = "",
        reach: Callable[[str], Transport] | None = None,
    ) -> None:
        """Take the transport, the container if named, and how to reach an `ssh:` container."""
        self._transport = transport
        self.chosen_container = container
        self._sudo = sudo
        self._password = password
        self._reach = reach
        self._others: list[Transport] = []

    @property
    def label(self) -> str:
        """Return the transport's name for the operator."""
        return self._transport.label

    @property
    def transport(self) -> Transport:
        """Return the transport, for what runs beside the audit (a transaction)."""
        return self._transport

    @property
    def asks_password(self) -> bool:
        """Return whether sudo on the host is to be given a password."""
        return self._sudo is Sudo.PASSWORD

    async def connect(self) -> None:
        """Log in. Raises HostUnreachable."""
        await self._transport.connect()

    def host(self) -> LiveSide:
        """Return the host's side."""
        return LiveSide(Session(self._transport.open), self._sudo, self._password)

    def container(self, ref: ContainerRef) -> LiveSide:
        """Return the side of a container, entered through the host, or over its own SSH."""
        if ref.kind == "ssh" and self._reach is not None:
            other = self._reach(ref.name)
            self._others.append(other)
            # The password is the host's, and is sent nowhere else.
            quiet = Sudo.QUIET if self._sudo is Sudo.PASSWORD else self._sudo
            return LiveSide(Session(_connecting(other)), quiet)
        session = Session(self._transport.open, enter(ref))
        return LiveSide(session, self._sudo, self._password)

    async def open(
        self, text: str, ref: ContainerRef | None = None, as_root: bool = False
    ) -> Channel:
        """Start sh text on the host, or in a container, as root where no password is asked for.

        Raises HostUnreachable. The target is connected; the channel's reader closes it.
        """
        sudo = Sudo.QUIET if as_root and self._sudo is not Sudo.NEVER else Sudo.NEVER
        if ref is None:
            return await self._transport.open(boot_command(text, sudo))
        if ref.kind == "ssh" and self._reach is not None:
            other = self._reach(ref.name)
            self._others.append(other)
            return await _connecting(other)(boot_command(text, Sudo.NEVER))
        return await self._transport.open(boot_command(enter(ref)(text), sudo))

    async def close(self) -> None:
        """Log out everywhere."""
        for transport in (self._transport, *self._others):
            await transport.close()


def _connecting(transport: Transport) -> Callable[[str], Awaitable[Channel]]:
    async def open_channel(command: str) -> Channel:
        await transport.connect()
        return await transport.open(command)

    return open_channel
