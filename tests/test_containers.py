"""Into containers through the host: which tool runs, how a wrong name is told, what is left."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.hosts.container import enter
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.session import Job, Session
from gpudoctor.hosts.session_script import Sudo
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import Panel, Reason, Side
from gpudoctor.model.error import HostUnreachable
from gpudoctor.model.place import ContainerRef, parse_container
from tests.dockerd import NAME, Docker, require_docker, running_docker
from tests.processes import carrying, settled

# Stands in for a container tool: says how it was called, then runs what it was given.
TOOL = """#!/bin/sh
echo "$0 $1 $2 $3" >"{log}"
while [ "$1" != sh ]; do shift; done
exec "$@"
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a folder first on PATH for container tools of the test."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def install(tools: Path, name: str, text: str = TOOL) -> None:
    (tools / name).write_text(text.replace("{log}", str(tools / "log")))
    (tools / name).chmod(0o755)


@pytest.mark.parametrize(
    ("name", "tool", "called"),
    [
        ("lxc:101", "lxc-attach", "--clear-env -n 101"),
        ("docker:llm-1", "docker", "exec -i llm-1"),
        ("podman:llm.2", "podman", "exec -i llm.2"),
    ],
)
async def test_the_tool_of_each_kind(tools: Path, name: str, tool: str, called: str) -> None:
    install(tools, tool)
    session = Session(LocalTransport().open, enter(parse_container(name)))
    await session.start(Sudo.NEVER)
    answer = await session.run(Job('echo "it\'s inside"'))
    await session.close()
    assert answer.stdout == b"it's inside\n"
    assert (tools / "log").read_text().strip() == f"{tools / tool} {called}"


async def test_pct_stands_in_where_there_is_no_lxc_attach(tools: Path) -> None:
    install(tools, "pct")
    install(tools, "sh", '#!/bin/sh\nexec /bin/sh "$@"\n')
    install(tools, "env", '#!/bin/sh\nexec /usr/bin/env "$@"\n')
    text = enter(ContainerRef("lxc", "101"))("echo ${OF_THE_HOST-inside}")
    child = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        f"export OF_THE_HOST=secret PATH={tools}; {text}",
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    assert out == b"inside\n"
    assert "pct exec 101 --" in (tools / "log").read_text()


async def test_a_wrong_name_is_told_in_the_tools_words(tools: Path) -> None:
    said = "Error: No such container: llm"
    install(tools, "docker", f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    with pytest.raises(HostUnreachable, match=said):
        await Session(LocalTransport().open, enter(ContainerRef("docker", "llm"))).start()


async def test_the_source_lines_of_lxc_are_not_shown(tools: Path) -> None:
    line = "lxc-attach: 9: ../src/lxc/attach.c: get_context: 406 Connection refused - no init pid"
    install(tools, "lxc-attach", f"#!/bin/sh\necho '{line}' >&2\necho '{line}' >&2\nexit 1\n")
    with pytest.raises(HostUnreachable) as caught:
        await Session(LocalTransport().open, enter(ContainerRef("lxc", "9"))).start()
    assert caught.value.sentence.endswith("there: Connection refused - no init pid")


async def test_with_a_wrong_container_the_host_is_judged(tools: Path) -> None:
    install(tools, "docker", "#!/bin/sh\necho 'No such container: llm' >&2\nexit 1\n")
    target = LiveTarget(LocalTransport(), ContainerRef("docker", "llm"))
    result = await run_audit(target, [Panel.KERNEL_KNOBS])
    assert result.findings
    assert any("No such container: llm" in problem for problem in result.problems)


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    require_docker()
    with running_docker(tmp_path_factory.mktemp("dk")) as daemon:
        os.environ["DOCKER_HOST"] = daemon.socket
        yield daemon
        del os.environ["DOCKER_HOST"]


def inside(name: str = NAME) -> Session:
    return Session(LocalTransport().open, enter(ContainerRef("docker", name)))


async def test_a_real_container(docker: Docker) -> None:
    session = inside()
    await session.start()
    answers = await asyncio.gather(
        session.run(Job("cat /proc/1/comm; printf '\\377' >&2")),
        session.run(Job("head -c 300000 /dev/zero")),
        session.run(Job("yes", cap=1000)),
        session.run(Job("sleep 60", limit=1)),
    )
    await session.close()
    assert (answers[0].stdout, answers[0].stderr) == (b"sleep\n", "\\xff")
    assert answers[1].stdout == bytes(300000)
    assert len(answers[2].stdout) == 1001
    assert answers[3].exit in (124, 143) or answers[3].lost


async def test_a_real_wrong_name(docker: Docker) -> None:
    with pytest.raises(HostUnreachable, match=r"No such container: no-such"):
        await inside("no-such").start()


async def test_the_side_of_a_real_container(docker: Docker) -> None:
    target = LiveTarget(LocalTransport(), ContainerRef("docker", NAME))
    result = await run_audit(target, [Panel.CONTAINER])
    assert result.problems == ()
    answered = [e for e in result.evidence.values() if e.side is Side.CONTAINER]
    assert all(e.problem is None or e.problem.reason is not Reason.DISCONNECTED for e in answered)


@pytest.mark.parametrize("ending", ["close", "kill-client"])
async def test_nothing_is_left_in_a_real_container(docker: Docker, ending: str) -> None:
    session = inside()
    await session.start()
    mark = f"GPD={session._mark}"
    job = "(setsid sleep 400 & setsid sh -c 'trap \"\" TERM HUP; sleep 401' &) >/dev/null 2>&1"
    waiting = asyncio.create_task(session.run(Job(f"{job}; sleep 402", limit=60)))
    assert await asyncio.to_thread(settled, mark, True)
    if ending == "kill-client":
        for pid in _clients(session._mark):
            os.kill(pid, signal.SIGKILL)
    else:
        await session.close()
    assert (await waiting).lost is not None
    left = await asyncio.to_thread(settled, mark, False)
    await session.close()
    assert left == []


def _clients(mark: str) -> list[int]:
    """Return the pids of the docker clients that carry a session: its mark is in their words."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            words = _words(folder)
            if words.startswith(b"docker\0exec") and mark.encode() in words:
                found.append(int(folder.name))
    assert found and not set(found) & set(carrying(f"GPD={mark}"))
    return found


def _words(folder: Path) -> bytes:
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""
