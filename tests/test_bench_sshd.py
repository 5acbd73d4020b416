"""The engine of a host behind a real OpenSSH server: found and measured by each kind of user."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from gpudoctor.bench.ask import bodies
from gpudoctor.bench.beside import open_beside
from gpudoctor.bench.engine import find
from gpudoctor.bench.way import BESIDE, NAMESPACE
from gpudoctor.hosts.session_script import Sudo
from gpudoctor.hosts.ssh import SshTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal
from tests.decode_rig import DecodeServer, running_decode_server
from tests.sshd import OPS, PW, VIEWER, Sshd, login_shell, require_ci, running_sshd

NOTHING = AuditResult("there")


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """Give a real sshd with its users."""
    require_ci()
    with running_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@asynccontextmanager
async def target_of(sshd: Sshd, user: str) -> AsyncIterator[LiveTarget]:
    """Give the host as a user sees it; one of them has to give a password to sudo."""
    transport = SshTransport("target", sshd.config(user))
    sudo = Sudo.PASSWORD if user == PW else Sudo.QUIET
    target = LiveTarget(transport, None, sudo, sshd.passwords.get(user, ""))
    try:
        yield target
    finally:
        await target.close()


@pytest.mark.parametrize("user", [OPS, PW])
async def test_who_may_be_root_finds_it_at_any_port(
    sshd: Sshd, decode_server: DecodeServer, user: str
) -> None:
    async with target_of(sshd, user) as target:
        found = await find(target, NOTHING)
        mine = next(one for one in found if one.pid == decode_server.pid)
        assert mine.url == decode_server.url
        async with open_beside(target, mine) as beside:
            requests, _ = await beside.job(bodies(mine, 2, 32, 0), 1)
            assert (beside.path, [r.tokens for r in requests]) == (BESIDE, [32, 32])


async def test_a_network_of_its_own_needs_root_without_a_password(
    sshd: Sshd, decode_server: DecodeServer
) -> None:
    with running_decode_server("--title", "llama-server", apart=True) as server:
        async with target_of(sshd, OPS) as target:
            mine = next(s for s in await find(target, NOTHING) if s.pid == server.pid)
            async with open_beside(target, mine) as beside:
                requests, _ = await beside.job(bodies(mine, 2, 32, 0), 1)
                assert (beside.path, [r.tokens for r in requests]) == (NAMESPACE, [32, 32])
        async with target_of(sshd, PW) as target:
            with pytest.raises(Refusal, match="needs root without a password"):
                async with open_beside(target, mine):
                    pass


async def test_who_may_not_names_the_address(sshd: Sshd, decode_server: DecodeServer) -> None:
    async with target_of(sshd, VIEWER) as target:
        (found,) = await find(target, NOTHING, decode_server.url)
        assert found.kind == "llama.cpp"


@pytest.mark.parametrize(
    ("shell", "file", "noise"),
    [
        ("bash", ".bashrc", "echo hello; printf 'no newline'\n"),
        ("fish", ".config/fish/config.fish", "echo hello\n"),
        ("tcsh", ".tcshrc", "echo -n hello\n"),
    ],
)
async def test_any_login_shell_does(
    sshd: Sshd, decode_server: DecodeServer, shell: str, file: str, noise: str
) -> None:
    with login_shell(VIEWER, shell, file, noise):
        async with target_of(sshd, VIEWER) as target:
            (found,) = await find(target, NOTHING, decode_server.url)
            async with open_beside(target, found) as beside:
                requests, _ = await beside.job(bodies(found, 1, 32, 0), 1)
    assert [r.tokens for r in requests] == [32]
