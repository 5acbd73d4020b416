"""Mode 4 on the real server of this machine: what is left running, kept, and refused."""

import json
import os
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gpudoctor.app import GpuDoctor
from gpudoctor.snapshots.store import state_home
from tests.decode_rig import DecodeServer, here
from tests.pictures import settle
from tests.screen_pilot import press, wait_for, wait_until_shown

_SECONDS = 120.0  # a real audit and real blocks, on a machine that is busy with other tests


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")


def _clients() -> set[str]:
    """Return the pids of this process's children that wait for a program of ours."""
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes() if folder.name.isdecimal() else b""
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1] if words else ""
        except OSError:
            continue
        if b'"gpudoctor","exec"' in words and parent == str(os.getpid()):
            found.add(folder.name)
    return found


async def _in_mode_4(pilot: Pilot[None], app: GpuDoctor, server: DecodeServer) -> None:
    """Audit this machine, find its engines and choose the one of this test."""
    board = app.board
    await settle(pilot, lambda: bool(board.result) and not board.running, _SECONDS)
    await press(pilot, "4")
    await settle(pilot, lambda: bool(board.bench.engines) and not board.bench.looking, _SECONDS)
    assert server.url in {one.url for one in board.bench.engines or ()}
    board.bench.place = next(
        one.place for one in board.bench.engines or () if one.url == server.url
    )


async def _amid(pilot: Pilot[None], app: GpuDoctor) -> None:
    """Measure until some blocks are there."""
    bench = app.board.bench
    await press(pilot, "g")
    await settle(
        pilot,
        lambda: bool(bench.going and bench.going.progress and bench.going.progress.done),
        _SECONDS,
    )
    assert _clients()


async def test_an_ended_run_leaves_no_client_and_keeps_its_blocks(
    decode_server: DecodeServer,
) -> None:
    app = GpuDoctor(here)
    async with app.run_test(size=(160, 45)) as pilot:
        await _in_mode_4(pilot, app, decode_server)
        await _amid(pilot, app)
        await press(pilot, "x")
        await settle(pilot, lambda: app.board.bench.going is None, _SECONDS)
        assert not _clients()
        (run,) = app._bencher._runs
        assert run.stopped and run.serving.url == decode_server.url
        assert 0 < len(run.levels[0].blocks) < 4
        assert len(list(state_home().glob("*/*-bench-*.toml"))) == 1
        await wait_until_shown(pilot, app, "kept: the operator ended it")
    assert app.fault is None


async def test_quitting_amid_a_run_asks_nothing_and_leaves_no_client(
    decode_server: DecodeServer,
) -> None:
    app = GpuDoctor(here)
    async with app.run_test(size=(80, 24)) as pilot:
        await _in_mode_4(pilot, app, decode_server)
        await _amid(pilot, app)
        await press(pilot, "q")
        await wait_for(pilot, lambda: not _clients())
    assert app.fault is None and not list(state_home().glob("*/*-bench-*.toml"))


async def test_an_engine_that_answers_others_is_refused_in_a_sentence(
    decode_server: DecodeServer,
) -> None:
    app = GpuDoctor(here)
    async with app.run_test(size=(80, 24)) as pilot:
        await _in_mode_4(pilot, app, decode_server)
        with _others(decode_server.url):
            await press(pilot, "g")
            await settle(pilot, lambda: app.board.bench.going is None, _SECONDS)
        await wait_until_shown(pilot, app, "not measured: the engine answers 1 requests of others")
        assert not app._bencher._runs and not _clients()


@contextmanager
def _others(url: str) -> Iterator[None]:
    """Keep the engine busy with somebody else's requests, one after another."""
    body = {"prompt": "count", "max_tokens": 400, "ignore_eos": True}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    over, under_way = threading.Event(), threading.Event()

    def ask() -> None:
        while not over.is_set():
            under_way.set()
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                answer.read()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        assert under_way.wait(_SECONDS)
        yield
    finally:
        over.set()
        thread.join()
