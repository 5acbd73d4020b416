"""Host keys: an unknown one is a question, a changed one is refused, and none goes unchecked."""

from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from gpudoctor.hosts.known_hosts import trust
from gpudoctor.hosts.ssh import SshTransport
from gpudoctor.model.error import Refusal, UnknownHostKey
from tests.ssh_server import Server, echoed, refusal, ssh_server


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


async def test_an_unknown_key_is_a_question_and_then_trusted(server: Server) -> None:
    server.known_hosts.write_text("# nothing\nother.example ssh-ed25519 damaged")
    config = server.config()
    transport = SshTransport("gpubox", config)
    with pytest.raises(UnknownHostKey) as caught:
        await transport.connect()
    error = caught.value
    assert error.fingerprint == server.host_key.get_fingerprint()
    assert (error.host, error.port) == ("127.0.0.1", server.port)
    assert error.fingerprint in error.sentence
    trust(error, transport.known_hosts_file)
    trust(error, transport.known_hosts_file)
    assert server.known_hosts.read_text().splitlines()[2:] == [server.known_line().strip()]
    assert await echoed(SshTransport("gpubox", config)) == b"hello\n"


async def test_trust_makes_the_missing_folder(tmp_path: Path) -> None:
    error = UnknownHostKey("", "GPU1", 22, "ssh-ed25519 AAAA", "SHA256:x")
    path = tmp_path / "new/.ssh/known_hosts"
    trust(error, path)
    assert path.read_text() == "gpu1 ssh-ed25519 AAAA\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_trust_says_when_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = UnknownHostKey("", "gpu1", 22, "ssh-ed25519 AAAA", "SHA256:x")
    with pytest.raises(Refusal, match="cannot be written"):
        trust(error, tmp_path / "file/known_hosts")


@pytest.mark.parametrize("file", ["none", "/dev/null"])
async def test_a_configuration_that_keeps_no_keys_does_not_switch_the_check_off(
    server: Server, home: Path, file: str
) -> None:
    config = server.config(f"UserKnownHostsFile {file}", "StrictHostKeyChecking no")
    assert isinstance(await refusal("gpubox", config), UnknownHostKey)
    (home / ".ssh/known_hosts").write_text(server.known_line())
    assert await echoed(SshTransport("gpubox", config)) == b"hello\n"


async def test_a_changed_key_is_refused_with_its_place(server: Server) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    server.known_hosts.write_text(f"# one\n[127.0.0.1]:{server.port} {other}")
    error = await refusal("gpubox", server.config())
    assert not isinstance(error, UnknownHostKey)
    assert f"{server.known_hosts}:2" in error.sentence
    assert "ssh-keygen -R" in error.sentence


async def test_a_key_of_another_kind_is_a_changed_key(server: Server) -> None:
    other = asyncssh.generate_private_key("ecdsa-sha2-nistp256").export_public_key().decode()
    server.known_hosts.write_text(f"[127.0.0.1]:{server.port} {other}")
    error = await refusal("gpubox", server.config())
    assert not isinstance(error, UnknownHostKey)
    assert f"{server.known_hosts}:1" in error.sentence


async def test_a_revoked_key_is_refused(server: Server) -> None:
    server.known_hosts.write_text("@revoked " + server.known_line())
    error = await refusal("gpubox", server.config())
    assert not isinstance(error, UnknownHostKey)
    assert "revoked" in error.sentence


async def test_a_host_key_alias_names_the_key(server: Server) -> None:
    key = server.known_line().split(" ", 1)[1]
    server.known_hosts.write_text(f"the-gpu-box {key}")
    config = server.config("HostKeyAlias the-gpu-box")
    assert await echoed(SshTransport("gpubox", config)) == b"hello\n"
    server.known_hosts.write_text("")
    error = await refusal("gpubox", config)
    assert isinstance(error, UnknownHostKey)
    trust(error, server.known_hosts)
    assert await echoed(SshTransport("gpubox", config)) == b"hello\n"


async def test_a_key_known_at_the_usual_port_counts(server: Server) -> None:
    server.known_hosts.write_text("127.0.0.1 " + server.known_line().split(" ", 1)[1])
    assert await echoed(SshTransport("gpubox", server.config())) == b"hello\n"
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    server.known_hosts.write_text(f"127.0.0.1 {other}")
    assert isinstance(await refusal("gpubox", server.config()), UnknownHostKey)
