"""A real OpenSSH server: login shells, sudo, and nothing left behind however a session ends."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.hosts.session import Job, Session
from gpudoctor.hosts.session_script import Sudo
from gpudoctor.hosts.side import LiveSide
from gpudoctor.hosts.ssh import SshTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import Files, Reason
from gpudoctor.model.error import Refusal
from tests.processes import carrying, settled
from tests.ssh_server import cut
from tests.sshd import OPS, PW, VIEWER, Sshd, login_shell, require_ci, running_sshd, sudoers

NOISE = "echo WELCOME to the box; echo motd >&2; printf 'no newline'"
SHELLS = {
    "bash": (".bashrc", f"{NOISE}; set -x\n"),
    "fish": (".config/fish/config.fish", f"{NOISE}\n"),
    "tcsh": (".tcshrc", "echo WELCOME to the box\necho -n 'no newline'\n"),
}
# Children in sessions of their own, deaf to TERM and HUP, beside one that is waited for.
STUBBORN = (
    "(setsid sleep 400 & setsid sh -c 'trap \"\" TERM HUP; sleep 401; sleep 402' &) "
    ">/dev/null 2>&1; sleep 403"
)
ENDINGS = ("close", "abort", "cancel", "kill-client", "kill-sshd")
CLIENT = """
import asyncio, sys
from gpudoctor.hosts.session import Job, Session
from gpudoctor.hosts.ssh import SshTransport
async def main():
    transport = SshTransport("target", sys.argv[1])
    await transport.connect()
    session = Session(transport.open)
    await session.start()
    print(session._mark, flush=True)
    await session.run(Job(sys.argv[2], limit=60))
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    require_ci()
    with running_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@contextlib.asynccontextmanager
async def session_of(
    sshd: Sshd, user: str, sudo: Sudo = Sudo.QUIET, password: str = ""
) -> AsyncIterator[Session]:
    transport = SshTransport("target", sshd.config(user))
    session = Session(transport.open)
    try:
        await transport.connect()
        await session.start(sudo, password)
        yield session
    finally:
        await session.close()
        await transport.close()


@pytest.mark.parametrize("shell", SHELLS)
async def test_login_shells_with_noisy_start_up_files(sshd: Sshd, shell: str) -> None:
    rc, text = SHELLS[shell]
    with login_shell(VIEWER, shell, rc, text):
        async with session_of(sshd, VIEWER) as session:
            answer = await session.run(Job("printf '\\377'; echo \"$0 it's\"; echo err >&2"))
            assert answer.stdout == b"\xffsh it's\n" and answer.stderr == "err\n"
            mark = f"GPD={session._mark}"
    assert settled(mark, present=False) == []


async def test_who_becomes_root(sshd: Sshd) -> None:
    seen = {}
    for user in ("root", OPS, PW, VIEWER):
        async with session_of(sshd, user) as session:
            seen[user] = session.uid == 0
    assert seen == {"root": True, OPS: True, PW: False, VIEWER: False}


async def test_sudo_that_allows_no_shell_leaves_the_plain_user(sshd: Sshd) -> None:
    with sudoers(f"{VIEWER} ALL=(ALL) NOPASSWD: /usr/bin/true"):
        async with session_of(sshd, VIEWER) as session:
            assert session.uid not in (0, None)


async def test_a_plain_user_gets_no_permission_for_each_file(sshd: Sshd) -> None:
    transport = SshTransport("target", sshd.config(VIEWER))
    await transport.connect()
    side = LiveSide(Session(transport.open))
    await side.start()
    (job,) = side.ask([Files("both", ("/etc/shadow", "/etc/hostname"))])
    (evidence,) = await job
    await side.close()
    await transport.close()
    refused = evidence.files["/etc/shadow"]
    assert getattr(refused, "reason", None) is Reason.NO_PERMISSION
    assert isinstance(evidence.files["/etc/hostname"], bytes)


@pytest.mark.parametrize("defaults", ["", "Defaults use_pty", "Defaults passwd_tries=1"])
async def test_the_right_password_makes_root(sshd: Sshd, defaults: str) -> None:
    secret = sshd.passwords[PW]
    with sudoers(defaults):
        async with session_of(sshd, PW, Sudo.PASSWORD, secret) as session:
            assert session.uid == 0
            seen = await session.run(Job("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ"))
            assert len(seen.stdout) > 1000
            assert secret.encode() not in seen.stdout
            assert secret.encode() not in session._complaints.text


@pytest.mark.parametrize("user", ["root", OPS])
async def test_no_password_is_sent_where_none_is_asked(sshd: Sshd, user: str) -> None:
    async with session_of(sshd, user, Sudo.PASSWORD, "not-asked-for") as session:
        assert session.uid == 0
        assert b"not-asked-for" not in session._complaints.text


async def test_a_traced_login_file_does_not_pass_for_sudo(sshd: Sshd) -> None:
    with login_shell(OPS, "bash", ".bashrc", "set -vx\n"):
        async with session_of(sshd, OPS, Sudo.PASSWORD, "not-asked-for") as session:
            assert session.uid == 0
            assert b"not-asked-for" not in session._complaints.text


@pytest.mark.parametrize("defaults", ["", "Defaults passwd_tries=1"])
async def test_a_wrong_password_is_refused_and_not_repeated(sshd: Sshd, defaults: str) -> None:
    with sudoers(defaults), pytest.raises(Refusal) as caught:
        async with session_of(sshd, PW, Sudo.PASSWORD, "wrong-secret"):
            pass
    assert "sudo" in caught.value.sentence and "password" in caught.value.sentence
    assert "wrong-secret" not in repr(caught.value) + caught.value.sentence


async def test_a_user_whom_sudo_does_not_know_is_told_so(sshd: Sshd) -> None:
    with pytest.raises(Refusal, match="sudo gave no root shell.*sudoers"):
        async with session_of(sshd, VIEWER, Sudo.PASSWORD, sshd.passwords[VIEWER]):
            pass


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("user", ["root", OPS, VIEWER])
async def test_nothing_is_left(sshd: Sshd, user: str, ending: str) -> None:
    await nothing_is_left(sshd, user, ending)


@pytest.mark.parametrize("ending", ENDINGS)
async def test_nothing_is_left_where_sudo_uses_a_pty(sshd: Sshd, ending: str) -> None:
    with sudoers("Defaults use_pty"):
        await nothing_is_left(sshd, OPS, ending)


async def nothing_is_left(sshd: Sshd, user: str, ending: str) -> None:
    ended = _by_client if ending == "kill-client" else _in_process
    mark = await ended(sshd, user, ending)
    assert settled(mark, present=False, seconds=10) == []


async def _in_process(sshd: Sshd, user: str, ending: str) -> str:
    transport = SshTransport("target", sshd.config(user))
    session = Session(transport.open)

    async def work() -> None:
        try:
            await transport.connect()
            await session.start()
            await session.run(Job(STUBBORN, limit=60))
        finally:
            await session.close()
            await transport.close()

    task = asyncio.create_task(work())
    mark = f"GPD={session._mark}"
    await asyncio.to_thread(_wait_until_running, mark)
    if ending == "close":
        await session.close()
    elif ending == "abort":
        cut(transport)
    elif ending == "cancel":
        task.cancel()
    else:
        for pid in sshd.sessions():
            os.kill(pid, signal.SIGKILL)
    await asyncio.wait([task])
    return mark


async def _by_client(sshd: Sshd, user: str, _: str) -> str:
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, str(sshd.config(user)), STUBBORN, stdout=subprocess.PIPE
    )
    assert client.stdout is not None
    mark = f"GPD={(await client.stdout.readline()).decode().strip()}"
    await asyncio.to_thread(_wait_until_running, mark)
    client.kill()
    await client.communicate()
    return mark


def _wait_until_running(mark: str) -> None:
    """Wait for the stubborn children, the last of which is the sleep that is waited for."""
    assert settled(mark, present=True, seconds=15)
    for _ in range(300):
        names = {_command(pid) for pid in carrying(mark)}
        if {"sleep 400", "sleep 401", "sleep 403"} <= names:
            return
        settled("GPD=never-there", present=True, seconds=0.05)
    pytest.fail("the job did not start")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


async def test_an_audit_is_one_login_and_one_channel(sshd: Sshd) -> None:
    before = sshd.log()
    target = LiveTarget(SshTransport("target", sshd.config("root")))
    result = await run_audit(target)
    log = sshd.log()[len(before) :]
    assert result.user == "root" and result.findings
    assert log.count("Accepted publickey") == 1
    assert log.count("Starting session:") == 1
