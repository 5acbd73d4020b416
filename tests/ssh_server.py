"""An SSH server in the test's own process, with keys and a client configuration of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from gpudoctor.hosts.session import Job, Session
from gpudoctor.hosts.session_script import Sudo
from gpudoctor.hosts.ssh import SshTransport
from gpudoctor.model.error import HostUnreachable


@dataclass(frozen=True)
class Server:
    """A running server: where it listens, and the files a client needs."""

    port: int
    folder: Path
    host_key: asyncssh.SSHKey

    @property
    def known_hosts(self) -> Path:
        """Return the file that names this server's key."""
        return self.folder / "known_hosts"

    @property
    def identity(self) -> Path:
        """Return the private key that the server lets in."""
        return self.folder / "id_client"

    def known_line(self, host: str = "127.0.0.1") -> str:
        """Return the known_hosts line of this server."""
        key = " ".join(self.host_key.export_public_key("openssh").decode().split()[:2])
        return f"[{host}]:{self.port} {key}\n"

    def config(self, *more: str, name: str = "gpubox", keys: bool = True) -> Path:
        """Write a client configuration that reaches this server as `name`."""
        lines = [f"Host {name}", "HostName 127.0.0.1", f"Port {self.port}", "User op"]
        if not any(line.startswith("UserKnownHostsFile") for line in more):
            lines.append(f"UserKnownHostsFile {self.known_hosts}")
        if keys:
            lines += [f"IdentityFile {self.identity}", "IdentitiesOnly yes"]
        path = self.folder / "config"
        path.write_text("\n  ".join([*lines, "GlobalKnownHostsFile none", *more]) + "\n")
        return path


def _client_files(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    client_key = asyncssh.generate_private_key("ssh-ed25519")
    client_key.write_private_key(folder / "id_client")
    (folder / "id_client").chmod(0o600)
    (folder / "authorized").write_bytes(client_key.export_public_key())


@asynccontextmanager
async def ssh_server(folder: Path, key_type: str = "ssh-ed25519") -> AsyncIterator[Server]:
    """Run a server that starts each command by `sh -c`, until the block ends."""
    _client_files(folder)
    running: set[asyncio.Task[None]] = set()
    host_key = asyncssh.generate_private_key(key_type)
    listener = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[host_key],
        authorized_client_keys=str(folder / "authorized"),
        process_factory=lambda process: _run(process, running),
        server_factory=_Forwarding,
        encoding=None,
    )
    server = Server(listener.get_port(), folder, host_key)
    server.known_hosts.write_text(server.known_line())
    try:
        yield server
    finally:
        listener.close()
        await listener.wait_closed()
        if running:
            await asyncio.wait(running, timeout=10)


class _Forwarding(asyncssh.SSHServer):
    """Also a jump host."""

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> bool:
        return True


def _run(process: "asyncssh.SSHServerProcess[bytes]", running: set[asyncio.Task[None]]) -> None:
    """Start the command beside the connection: what it cleans up when that ends must finish."""
    task = asyncio.create_task(_child(process))
    running.add(task)
    task.add_done_callback(running.discard)


async def _child(process: "asyncssh.SSHServerProcess[bytes]") -> None:
    child = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        process.command or "exit 9",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stdin and child.stdout and child.stderr
    feeding = asyncio.create_task(_copy(process.stdin, child.stdin))
    await asyncio.gather(
        _copy(child.stdout, process.stdout), _copy(child.stderr, process.stderr), child.wait()
    )
    feeding.cancel()
    with contextlib.suppress(OSError):
        process.exit(child.returncode or 0)


async def _copy(
    source: "asyncio.StreamReader | asyncssh.SSHReader[bytes]",
    sink: "asyncio.StreamWriter | asyncssh.SSHWriter[bytes]",
) -> None:
    """Copy until the end; where the other side is gone, what still comes is dropped."""
    with contextlib.suppress(asyncssh.Error, OSError):
        while chunk := await source.read(1 << 16):
            with contextlib.suppress(asyncssh.Error, OSError):
                sink.write(chunk)
                await sink.drain()
    if isinstance(sink, asyncio.StreamWriter):
        sink.close()


async def refusal(login: str, config: Path | None) -> HostUnreachable:
    """Return how a login is refused; the sentence is one line and ends well."""
    transport = SshTransport(login, config)
    with pytest.raises(HostUnreachable) as caught:
        await transport.connect()
    await transport.close()
    assert "\n" not in caught.value.sentence
    return caught.value


def cut(transport: SshTransport) -> None:
    """Cut the connection at once, as a lost network would."""
    for connection in reversed(transport._connections):
        connection.abort()


async def echoed(transport: SshTransport) -> bytes:
    """Log in, run one job and log out."""
    await transport.connect()
    session = Session(transport.open)
    await session.start(Sudo.NEVER)
    answer = await session.run(Job("echo hello"))
    await session.close()
    await transport.close()
    return answer.stdout
