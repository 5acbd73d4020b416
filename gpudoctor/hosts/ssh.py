"""A host over SSH: one connection, one channel a session, strict host keys."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.hosts.channel import Reading
from gpudoctor.hosts.ssh_settings import Settings, parse_login, resolve
from gpudoctor.model.error import HostUnreachable
from gpudoctor.text import one_line

if TYPE_CHECKING:
    from asyncssh import SSHClientConnection, SSHClientProcess, SSHReader

_OPEN_SECONDS = 10.0
_END_SECONDS = 2.0
_MOST_HOPS = 8


class SshReading:
    """A channel's bytes; a broken connection is a ConnectionError, whatever asyncssh raised."""

    def __init__(self, reader: "SSHReader[bytes]") -> None:
        """Take asyncssh's reader of bytes."""
        self._reader = reader

    async def read(self, n: int = -1, /) -> bytes:
        """Return up to n bytes; empty at the end."""
        with _broken_means_lost():
            return await self._reader.read(n)


class SshChannel:
    """One remote command; its end of input is what makes the target clean up."""

    def __init__(self, process: "SSHClientProcess[bytes]") -> None:
        """Take a process opened with `encoding=None`."""
        self._process = process
        self.stdout: Reading = SshReading(process.stdout)
        self.stderr: Reading = SshReading(process.stderr)

    def write(self, data: bytes) -> None:
        """Send bytes; a channel that is gone shows at its output's end instead."""
        with contextlib.suppress(OSError):
            self._process.stdin.write(data)

    async def drain(self) -> None:
        """Wait until the window has room."""
        with contextlib.suppress(OSError), _broken_means_lost():
            await self._process.stdin.drain()

    async def close(self) -> None:
        """End the input and wait, a limited time, for the command to finish."""
        with contextlib.suppress(OSError):
            self._process.stdin.write_eof()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(_END_SECONDS):
                # What still comes is dropped: unread output would hold the command's end back.
                await asyncio.gather(self._rest(self.stdout), self._rest(self.stderr))
                await self._process.wait_closed()
        self._process.close()

    async def _rest(self, stream: Reading) -> None:
        while await stream.read(1 << 16):
            pass


class SshTransport:
    """A machine reached over SSH, through jump hosts where the configuration says so."""

    def __init__(self, login: str, ssh_config: str | Path | None = None) -> None:
        """Take `[user@]host[:port]` and a configuration file instead of ~/.ssh/config.

        Raises WrongUsage for a login that cannot be read, HostUnreachable for a user without home.
        """
        self._login = parse_login(login)
        self._config = Path(ssh_config) if ssh_config is not None else None
        self._connections: list[SSHClientConnection] = []
        self.label = login
        try:
            self.known_hosts_file = Path("~/.ssh/known_hosts").expanduser()
        except RuntimeError as error:
            what = "SSH keeps the keys of known hosts in a home directory, and this user has none"
            raise HostUnreachable(f"{what}: set HOME") from error

    async def connect(self) -> None:
        """Log in, once. Raises HostUnreachable or UnknownHostKey, with one sentence."""
        if self._connections:
            return
        logging.getLogger("asyncssh").addHandler(logging.NullHandler())
        try:
            settings = await asyncio.to_thread(resolve, self._login, self._config)
            await self._hop(settings, 0)
        except BaseException:
            await self.close()
            raise

    async def open(self, command: str) -> SshChannel:
        """Start a command line of the login shell. Raises HostUnreachable."""
        import asyncssh

        if not self._connections:
            raise HostUnreachable(f"{self.label} is not connected")
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                return SshChannel(await self._process(command))
        except TimeoutError:
            what = f"{self.label} did not open a session within {_OPEN_SECONDS:g} s"
            raise HostUnreachable(what) from None
        except asyncssh.ChannelOpenError as error:
            if "connection closed" in error.reason.lower():
                raise self._lost(error) from None
            what = (
                f"{self.label} refused a session ({error.reason}): see MaxSessions in sshd_config"
            )
            raise HostUnreachable(one_line(what, 400)) from None
        except (asyncssh.Error, OSError) as error:
            raise self._lost(error) from None

    @contextlib.asynccontextmanager
    async def forward(self, host: str, port: int) -> AsyncIterator[int]:
        """Yield a port of this machine's loopback that leads to a port as the host sees it.

        Raises HostUnreachable where the host allows none.
        """
        import asyncssh

        if not self._connections:
            raise HostUnreachable(f"{self.label} is not connected")
        try:
            listener = await self._connections[-1].forward_local_port("127.0.0.1", 0, host, port)
        except (asyncssh.Error, OSError) as error:
            raise self._lost(error) from None
        try:
            yield listener.get_port()
        finally:
            listener.close()
            await listener.wait_closed()

    async def close(self) -> None:
        """Log out, of the jump hosts last; what does not end in time is cut."""
        while self._connections:
            connection = self._connections.pop()
            connection.close()
            try:
                async with asyncio.timeout(_END_SECONDS):
                    await connection.wait_closed()
            except TimeoutError:
                connection.abort()

    def _lost(self, error: Exception) -> HostUnreachable:
        what = f"the connection to {self.label} was lost ({error}): try again"
        return HostUnreachable(one_line(what, 400))

    async def _process(self, command: str) -> "SSHClientProcess[bytes]":
        import asyncssh

        async def start() -> "SSHClientProcess[bytes]":
            return await self._connections[-1].create_process(
                command, encoding=None, request_pty=False, stderr=asyncssh.PIPE
            )

        try:
            return await start()
        except asyncssh.ChannelOpenError:
            # sshd counts a closed channel until it has reaped it; a refusal ran nothing.
            return await start()

    async def _hop(self, settings: Settings, depth: int) -> None:
        """Connect to one host, its jump hosts first."""
        if depth > _MOST_HOPS:
            raise HostUnreachable(f"ProxyJump for {settings.place} goes round in circles")
        for jump in settings.jumps:
            inner = await asyncio.to_thread(resolve, jump, self._config)
            await self._hop(inner, depth + 1) if not self._connections else await self._reach(inner)
        await self._reach(settings)

    async def _reach(self, settings: Settings) -> None:
        from gpudoctor.hosts.ssh_login import LoginAttempt

        self.known_hosts_file = settings.user_known_hosts[0]
        tunnel = self._connections[-1] if self._connections else None
        self._connections.append(await LoginAttempt(settings, tunnel).login())


@contextlib.contextmanager
def _broken_means_lost() -> Iterator[None]:
    import asyncssh

    try:
        yield
    except asyncssh.Error as error:
        raise ConnectionError(one_line(str(error))) from None
