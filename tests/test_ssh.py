"""SSH: strict keys, the operator's configuration, and one sentence for each failure."""

import asyncio
import contextlib
import getpass
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from gpudoctor.hosts.session import Job, Session
from gpudoctor.hosts.session_script import Sudo
from gpudoctor.hosts.ssh import SshTransport
from gpudoctor.hosts.ssh_settings import Login, parse_login, resolve
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.error import HostUnreachable, UnknownHostKey, WrongUsage
from gpudoctor.model.place import ContainerRef
from tests.ssh_server import Server, cut, echoed, refusal, ssh_server
from tests.tools import missing


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a home of its own, and no agent."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with ssh_server(tmp_path / "server") as running:
        yield running


async def test_a_job_over_the_configured_alias(server: Server) -> None:
    transport = SshTransport("gpubox", server.config())
    assert await echoed(transport) == b"hello\n"


async def test_the_configuration_of_the_home_is_read(server: Server, home: Path) -> None:
    (home / ".ssh/config").write_text(server.config().read_text())
    assert await echoed(SshTransport("gpubox")) == b"hello\n"


async def test_user_host_and_port_on_the_command_line(server: Server, home: Path) -> None:
    (home / ".ssh/id_ed25519").write_bytes(server.identity.read_bytes())
    (home / ".ssh/known_hosts").write_text(server.known_line())
    assert await echoed(SshTransport(f"op@127.0.0.1:{server.port}")) == b"hello\n"


async def test_a_remote_command_of_the_configuration_does_not_replace_ours(
    server: Server,
) -> None:
    config = server.config("RemoteCommand tmux attach", "RequestTTY force", "ForwardAgent yes")
    assert await echoed(SshTransport("gpubox", config)) == b"hello\n"


async def test_raw_bytes_do_not_end_the_connection(server: Server) -> None:
    transport = SshTransport("gpubox", server.config())
    await transport.connect()
    channel = await transport.open("printf '\\377\\376'; printf '\\375' >&2")
    assert await channel.stdout.read(100) == b"\xff\xfe"
    assert await channel.stderr.read(100) == b"\xfd"
    await channel.close()
    await transport.close()


async def test_a_refused_key_names_user_and_keys(server: Server) -> None:
    (server.folder / "authorized").write_bytes(
        asyncssh.generate_private_key("ssh-ed25519").export_public_key()
    )
    error = await refusal("gpubox", server.config(f"IdentityFile {server.folder}/gone"))
    assert "login of op" in error.sentence
    assert str(server.identity) in error.sentence
    assert f"{server.folder}/gone does not exist" in error.sentence


async def test_a_missing_identity_is_named(server: Server) -> None:
    server.identity.rename(server.folder / "elsewhere")
    error = await refusal("gpubox", server.config())
    assert str(server.identity) in error.sentence and "does not exist" in error.sentence


async def test_a_damaged_identity_is_named(server: Server) -> None:
    config = server.config(keys=False)
    server.identity.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n")
    with config.open("a") as file:
        file.write(f"  IdentityFile {server.identity}\n")
    assert str(server.identity) in (await refusal("gpubox", config)).sentence


def lock(identity: Path) -> None:
    """Protect a key by a passphrase, in OpenSSH's own format."""
    command = ["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(identity)]
    subprocess.run(command, check=True, capture_output=True)


async def test_a_locked_identity_asks_for_the_agent(server: Server) -> None:
    if shutil.which("ssh-keygen") is None:
        missing("ssh-keygen")
    await asyncio.to_thread(lock, server.identity)
    error = await refusal("gpubox", server.config())
    assert "ssh-add" in error.sentence and str(server.identity) in error.sentence


async def test_a_jump_host_with_a_strict_key_of_its_own(server: Server, tmp_path: Path) -> None:
    async with ssh_server(tmp_path / "inner") as inner:
        config = tmp_path / "config"
        jump = server.config(name="bastion").read_text()
        config.write_text(jump + inner.config("ProxyJump bastion").read_text())
        assert await echoed(SshTransport("gpubox", config)) == b"hello\n"
        server.known_hosts.write_text("")
        error = await refusal("gpubox", config)
        assert isinstance(error, UnknownHostKey) and error.port == server.port
        server.known_hosts.write_text(server.known_line())
        inner.known_hosts.write_text("")
        transport = SshTransport("gpubox", config)
        with pytest.raises(UnknownHostKey) as caught:
            await transport.connect()
        assert caught.value.port == inner.port
        assert transport.known_hosts_file == inner.known_hosts


async def test_a_host_beyond_the_jump_host_that_refuses(server: Server, tmp_path: Path) -> None:
    config = tmp_path / "config"
    inner = "Host inner\n  HostName 127.0.0.1\n  Port 1\n  ProxyJump bastion\n"
    config.write_text(server.config(name="bastion").read_text() + inner)
    assert "through the jump host" in (await refusal("inner", config)).sentence


RELAY = """
import socket, sys, threading
print("relay: a warning on stderr", file=sys.stderr, flush=True)
far = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while data := sys.stdin.buffer.raw.read(65536):
        far.sendall(data)
        print("relay: more", file=sys.stderr, flush=True)
    far.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := far.recv(65536):
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
"""


async def test_a_proxy_command_may_chatter(server: Server) -> None:
    relay = server.folder / "relay.py"
    relay.write_text(RELAY)
    command = f"ProxyCommand {sys.executable} {relay} %h %p"
    transport = SshTransport("gpubox", server.config(command))
    assert await echoed(transport) == b"hello\n"


async def test_a_proxy_command_that_fails_is_named(server: Server) -> None:
    error = await refusal("gpubox", server.config("ProxyCommand false"))
    assert "ProxyCommand" in error.sentence and "false" in error.sentence


async def test_an_unknown_name() -> None:
    assert "not a known host name" in (await refusal("no-such-host.invalid", None)).sentence


async def test_a_refused_port(server: Server) -> None:
    with_port = server.config("Port 1").read_text().replace(f"Port {server.port}", "Port 1")
    config = server.folder / "refused"
    config.write_text(with_port)
    sentence = (await refusal("gpubox", config)).sentence
    assert "port 1 refused the connection" in sentence


@asynccontextmanager
async def tcp_server(words: bytes, stay: bool) -> AsyncIterator[int]:
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(task := asyncio.ensure_future(_talk(reader, writer, words, stay)))
        await task

    listener = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with listener:
        yield listener.sockets[0].getsockname()[1]
    if talks:
        await asyncio.wait(talks)


async def _talk(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, words: bytes, stay: bool
) -> None:
    with contextlib.suppress(OSError):
        writer.write(words)
        if stay:
            await reader.read()
        writer.close()
        await writer.wait_closed()


async def test_a_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.hosts.ssh_login.LOGIN_SECONDS", 0.3)
    async with tcp_server(b"", stay=True) as port:
        error = await refusal(f"127.0.0.1:{port}", None)
    assert "did not finish the login within 0.3 s" in error.sentence


@pytest.mark.parametrize("words", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\xff\xfe\r\n"])
async def test_a_server_that_speaks_no_ssh(words: bytes) -> None:
    async with tcp_server(words, stay=False) as port:
        error = await refusal(f"127.0.0.1:{port}", None)
    assert "is an SSH server on that port" in error.sentence


async def test_an_address_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    config = tmp_path / "config"
    config.write_text("ConnectTimeout 1\n")
    error = await refusal("127.0.0.1", config)
    assert "did not answer within 1 s" in error.sentence


async def test_a_missing_configuration_is_wrong_usage(tmp_path: Path) -> None:
    error = await refusal("gpubox", tmp_path / "nowhere")
    assert "nowhere cannot be read: No such file" in error.sentence and error.code == 2


async def test_a_configuration_with_a_mistake(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Port twenty-two\n")
    assert "not understood" in (await refusal("gpubox", config)).sentence


async def test_a_lost_connection_is_said_on_the_next_use(server: Server) -> None:
    transport = SshTransport("gpubox", server.config())
    await transport.connect()
    session = Session(transport.open)
    await session.start(Sudo.NEVER)
    waiting = asyncio.create_task(session.run(Job("sleep 5")))
    await asyncio.sleep(0.1)
    cut(transport)
    lost = (await waiting).lost
    assert lost is not None and lost.reason == "disconnected"
    with pytest.raises(HostUnreachable, match="was lost"):
        await transport.open("true")
    await session.close()
    await transport.close()


async def test_an_ssh_container_has_a_connection_of_its_own(server: Server) -> None:
    config = server.config()

    def reach(login: str) -> SshTransport:
        return SshTransport(login, config)

    target = LiveTarget(reach("gpubox"), None, Sudo.PASSWORD, "secret", reach)
    side = target.container(ContainerRef("ssh", "op@gpubox"))
    await side.start()
    assert (await side.session.run(Job("echo inside"))).stdout == b"inside\n"
    await side.close()
    await target.close()


@pytest.mark.parametrize(
    ("text", "login"),
    [
        ("gpu1", Login("gpu1")),
        ("root@gpu1.example:2222", Login("gpu1.example", "root", 2222)),
        ("[fe80::1%eth0]:22", Login("fe80::1%eth0", None, 22)),
        ("me@::1", Login("::1", "me")),
        ("dom\\me@10.0.0.1", Login("10.0.0.1", "dom\\me")),
    ],
)
def test_logins(text: str, login: Login) -> None:
    assert parse_login(text) == login


@pytest.mark.parametrize("text", ["", "root@", "a b", "host:0", "host:70000", "-oProxyCommand=x"])
def test_what_is_no_login(text: str) -> None:
    with pytest.raises(WrongUsage):
        SshTransport(text)


def test_settings_without_a_configuration(home: Path) -> None:
    settings = resolve(parse_login("gpu1"), None)
    assert (settings.user, settings.port, settings.host) == (getpass.getuser(), 22, "gpu1")
    assert settings.user_known_hosts[0] == home / ".ssh/known_hosts"
    assert settings.known_as == "gpu1"


def test_a_user_without_a_home_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", none)
    with pytest.raises(HostUnreachable, match="this user has none: set HOME"):
        SshTransport("gpu1")
