"""The live side: probes become jobs, and one bad file or tool harms no other probe."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpudoctor.hosts import bulk
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.session import Session
from gpudoctor.hosts.session_script import Sudo
from gpudoctor.hosts.side import LiveSide
from gpudoctor.model import Evidence, Files, Listing, Probe, Reason, Tool


@pytest.fixture
async def side() -> AsyncIterator[LiveSide]:
    running = LiveSide(Session(LocalTransport().open), Sudo.NEVER)
    await running.start()
    yield running
    await running.close()


async def answers(side: LiveSide, *probes: Probe) -> dict[str, Evidence]:
    return {e.key: e for job in side.ask(probes) for e in await job}


async def test_files_listings_and_tools(side: LiveSide, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff\x00\n")
    (tmp_path / "b").write_text("no newline")
    (tmp_path / "link").symlink_to("a")
    found = await answers(
        side,
        Files("files", (f"{tmp_path}/[ab]", f"{tmp_path}/gone")),
        Listing("list", (f"{tmp_path}/link",)),
        Tool("tool", "echo", "echo hi"),
        Tool("missing", "no-such-tool", "no-such-tool"),
    )
    files = found["files"].files
    assert files[f"{tmp_path}/a"] == b"\xff\x00\n" and files[f"{tmp_path}/b"] == b"no newline"
    assert "link -> a" in str(found["list"].get(f"{tmp_path}/link"))
    assert found["tool"].text == "hi\n"
    problem = found["missing"].problem
    assert problem is not None and problem.reason is Reason.TOOL_MISSING


async def test_nothing_is_followed_out_of_a_container(side: LiveSide, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("plain\n")
    (tmp_path / "to-host").symlink_to("/etc/passwd")
    (tmp_path / "gone-link").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "pipe")
    names = ("plain", "to-host", "gone-link", "pipe", "gone")
    paths = tuple(f"{tmp_path}/{name}" for name in names)
    probe = Files("inside", paths, guarded=True, no_links=True)
    found = (await answers(side, probe))["inside"]
    assert found.texts() == {paths[0]: "plain"}
    details = {path: getattr(answer, "detail", "") for path, answer in found.files.items()}
    assert all(details[path].endswith("not a plain file") for path in paths[1:4])
    assert details[paths[4]].endswith("No such file or directory")
    only_link = Files("link", paths[1:2], guarded=True, no_links=True)
    problem = (await answers(side, only_link))["link"].problem
    assert problem is not None and problem.reason is Reason.NOT_PRESENT


async def test_a_file_that_hangs_is_alone_in_being_unknown(
    side: LiveSide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "_FIRST_LOOK_SECONDS", 0.3)
    monkeypatch.setattr(bulk, "_NEXT_LOOK_SECONDS", 0.3)
    os.mkfifo(tmp_path / "hangs")
    os.mkfifo(tmp_path / "hangs-too")
    writing = [os.open(tmp_path / name, os.O_RDWR) for name in ("hangs", "hangs-too")]
    (tmp_path / "fine").write_text("fine\n")
    found = await answers(
        side,
        Files("bad", (f"{tmp_path}/hangs",)),
        Files("worse", (f"{tmp_path}/*-too",)),
        Files("good", (f"{tmp_path}/fine",)),
        Files("fine", (f"{tmp_path}/gone",)),
    )
    for handle in writing:
        os.close(handle)
    assert found["good"].get(f"{tmp_path}/fine") == "fine"
    for key, name in (("bad", "hangs"), ("worse", "hangs-too")):
        problem = found[key].problem
        assert problem is not None and problem.reason is Reason.TIMEOUT
        assert f"reading {tmp_path}/{name} hangs" in problem.detail


async def test_a_file_above_its_cap_is_unknown_alone(side: LiveSide, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(5000))
    (tmp_path / "small").write_bytes(b"x")
    probe = Files("both", (f"{tmp_path}/large", f"{tmp_path}/small"), cap=4096)
    files = (await answers(side, probe))["both"].files
    assert files[f"{tmp_path}/small"] == b"x"
    assert getattr(files[f"{tmp_path}/large"], "reason", None) is Reason.TOO_BIG


async def test_more_files_than_one_command_can_name(side: LiveSide, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 200) / ("e" * 200) / ("f" * 200)
    deep.mkdir(parents=True)
    for number in range(4000):
        (deep / f"{number:04}").write_text("x")
    halves = tuple(f"{deep}/{digit}*" for digit in range(4))
    found = await answers(
        side, Files("many", halves), Files("few", (f"{tmp_path}/{'d' * 200}/none",))
    )
    assert len(found["many"].files) == 4000
    assert found["few"].problem is not None


async def test_a_tool_without_permission_or_with_too_much_to_say(side: LiveSide) -> None:
    found = await answers(
        side,
        Tool("denied", "tool", "echo 'tool: Permission denied' >&2; exit 1"),
        Tool("large", "tool", "yes", cap=1000),
        Tool("slow", "tool", "sleep 9", limit=1),
    )
    reasons = {key: e.problem.reason for key, e in found.items() if e.problem}
    assert reasons == {
        "denied": Reason.NO_PERMISSION,
        "large": Reason.TOO_BIG,
        "slow": Reason.TIMEOUT,
    }
    assert len(found["large"].stdout) == 1000


async def test_a_probe_of_thousands_of_paths_takes_few_jobs(side: LiveSide, tmp_path: Path) -> None:
    (tmp_path / "last").write_text("read")
    names = [f"{tmp_path}/{'gone' * 8}-{number}" for number in range(2500)]
    files = (await answers(side, Files("many", (*names, f"{tmp_path}/last"))))["many"].files
    assert len(files) == 2501 and files[f"{tmp_path}/last"] == b"read"
    # each job has its number
    assert side.session._count < 10
