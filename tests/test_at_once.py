"""Two texts by one exec on this machine: whole answers, or none and nothing left."""

import asyncio
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gpudoctor.hosts.at_once import AtOnce, at_once
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.session_script import Sudo
from gpudoctor.hosts.target import LiveTarget


def running(word: str) -> bool:
    """Return whether a process on this machine has the word in its command line."""
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdecimal() and word.encode() in (folder / "cmdline").read_bytes():
                return True
    return False


async def ask(
    first: str, second: str = ":", cap: int = 1 << 20, limit: float = 20.0, sudo: Sudo = Sudo.NEVER
) -> AtOnce | None:
    target = LiveTarget(LocalTransport(), sudo=sudo)
    await target.connect()
    return await at_once(target, first, second, cap, limit)


async def until(there: bool, word: str) -> None:
    """Wait until a process has the word in its command line, or none has."""

    def wait() -> bool:
        end = time.monotonic() + 20
        while running(word) is not there and time.monotonic() < end:
            time.sleep(0.02)
        return running(word)

    assert await asyncio.to_thread(wait) is there


async def test_each_text_has_its_output() -> None:
    got = await ask(
        "printf 'a\\0\\377\\n'; head /nowhere; printf b", "echo '  c\\d'; echo e; nothing"
    )
    assert got is not None
    assert (got.first.stdout, got.second) == (b"a\0\xff\nb", b"  c\\d\ne\n")
    assert "/nowhere" in got.first.stderr and "nothing" not in got.first.stderr
    assert got.user == ("root" if os.getuid() == 0 else f"uid {os.getuid()}")


async def test_they_run_beside_each_other() -> None:
    """The first waits for a file that the second makes; alone it would wait for ever."""
    name = f"/tmp/at-once-{secrets.token_hex(8)}"
    got = await ask(f"until [ -e {name} ]; do sleep 0.05; done; rm {name}; echo a", f": >{name}")
    assert got is not None and got.first.stdout == b"a\n"


@pytest.mark.parametrize(
    "text", ["echo a; exit 3", "head -c 2000000 /dev/zero", "echo $(", "exec >&-"]
)
async def test_what_is_not_whole_is_no_answer(text: str) -> None:
    assert await ask(text) is None


async def test_the_target_ends_it_after_its_limit() -> None:
    word = f"0.{secrets.randbelow(10**12)}"
    assert await ask(f"sleep 600 {word}", f"sleep 600 {word}", limit=0.5) is None
    await until(False, word)


async def test_the_second_text_is_whole_or_nothing() -> None:
    assert await ask(":", "echo a; sleep 600", limit=0.5) is None


async def test_nothing_to_ask_is_an_answer() -> None:
    got = await ask("", "")
    assert got is not None and (got.first.stdout, got.second) == (b"", b"")


async def test_what_stays_behind_does_not_hold_the_answer_up() -> None:
    """A login file may start what keeps the streams open."""
    word = f"0.{secrets.randbelow(10**12)}"
    async with asyncio.timeout(20):
        got = await ask(f"sleep 60 {word} & echo a", limit=40.0)
    assert got is not None and got.first.stdout == b"a\n"
    await until(False, word)


async def test_complaints_are_clean_text() -> None:
    got = await ask("printf '\\033[2J\\302\\205head: x\\n' >&2")
    assert got is not None and "\x1b" not in got.first.stderr and "\x85" not in got.first.stderr
    assert "head: x" in got.first.stderr


async def test_what_only_a_session_can_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        raise AssertionError("it asked")

    monkeypatch.setattr(LocalTransport, "open", never)
    assert await ask(":", sudo=Sudo.PASSWORD) is None
    assert await ask(f": {'x' * 200_000}") is None


async def test_a_cancelled_one_closes_its_channel() -> None:
    word = f"0.{secrets.randbelow(10**12)}"
    task = asyncio.create_task(ask(f"sleep 600 {word}", limit=600.0))
    await until(True, word)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(False, word)


async def test_one_cancelled_as_it_begins_leaves_nothing() -> None:
    """Also amid the start of its process, whose end asyncio would wait for: some milliseconds."""
    word = f"0.{secrets.randbelow(10**12)}"
    for moment in range(6, 18, 2):
        task = asyncio.create_task(ask(f"sleep 600 {word}", limit=600.0))
        await asyncio.sleep(moment / 2000)
        task.cancel()
        async with asyncio.timeout(20):
            with pytest.raises(asyncio.CancelledError):
                await task
    await until(False, word)
