"""The benchmark's client: every engine's stream as it is told, and engines that misbehave."""

import json
import time
import tomllib
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from gpudoctor.bench import client
from gpudoctor.bench.ask import bodies
from gpudoctor.bench.beside import open_beside
from gpudoctor.bench.figures import tpot
from gpudoctor.bench.rows import held_back, request_of
from gpudoctor.bench.sentences import complaints, sentence
from gpudoctor.model.bench import Request, Serving
from tests.decode_rig import DecodeServer, here
from tests.hostile_engine import Hostile, hostile_engine

STREAMS = sorted((Path(__file__).parent / "streams").glob("*.toml"))


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_every_stream_is_told_as_its_engine_means_it(path: Path) -> None:
    case = tomllib.loads(path.read_text())
    raw = case["events"].strip("\n").encode() + b"\n\n"
    events = [event + b"\n\n" for event in raw.split(b"\n\n") if event]
    told = client.told([(float(at), event) for at, event in enumerate(events)])
    expected: dict[str, Any] = case["told"]
    told["pieces"] = len(told["times"])
    told["error"] = told.get("error", {}).get("kind")
    expected.setdefault("error", None)
    expected.setdefault("tokens", None)
    assert {name: told.get(name) for name in expected} == expected


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_how_a_stream_is_cut_into_reads_changes_nothing(path: Path) -> None:
    raw = tomllib.loads(path.read_text())["events"].strip("\n").encode() + b"\n\n"
    whole = client.told([(0.0, raw)])
    bytewise = client.told([(0.0, raw[at : at + 1]) for at in range(len(raw))])
    crlf = client.told([(0.0, raw.replace(b"\n", b"\r\n"))])
    assert whole == bytewise == crlf


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_the_servers_own_time_and_counts(decode_server: DecodeServer, path: str) -> None:
    """TPOT within 1 % of llama.cpp's own in one run, and every token counted.

    A neighbour that keeps the client from its core makes a run worthless: three may be made.
    """
    serving = Serving("llama.cpp", decode_server.url, "tiny", path)
    off: list[float] = []
    async with open_beside(here(), serving) as beside:
        while len(off) < 3 and not any(one <= 0.01 for one in off):
            requests, wall = await beside.job(bodies(serving, 7, 256, 1), 1)
            assert [r.failure for r in requests] == [None] * 7
            assert {(r.tokens, r.finish) for r in requests} == {(256, "length")}
            assert wall > requests[-1].last
            ratios = [1000 * (tpot(r) or 0) / (r.server_ms or 1) for r in requests]
            off.append(abs(median(ratios) - 1))
    assert min(off) <= 0.01


@pytest.mark.parametrize(
    ("manner", "kind", "words"),
    [
        ("dies", "broken", "did the engine end"),
        ("old and dies", "cut", "ended in its midst"),
        ("401", "http", "wants an API key"),
        ("404", "http", "does not know the model"),
        ("429", "http", "too many"),
        ("500", "http", "failed"),
        ("stalls", "stalled", "stood still"),
        ("malformed", "malformed", "server-sent events"),
        ("endless", "endless", "without end"),
        ("buffers", "buffered", "buffering proxy"),
        ("no-stream", "no-stream", "without a stream"),
        ("slow", "slow", "longer over one request"),
    ],
)
async def test_an_engine_that_misbehaves_is_one_sentence(
    manner: str, kind: str, words: str
) -> None:
    with hostile_engine(manner) as engine:
        requests = await _asked(engine, count=1)
    assert [r.failure and r.failure.kind for r in requests] == [kind]
    failure = requests[0].failure
    assert failure is not None
    told = sentence(failure, _serving(engine))
    assert words in told and "\n" not in told and engine.url in told


async def test_what_was_measured_before_the_engine_died_is_kept() -> None:
    with hostile_engine("dies", well=2) as engine:
        requests = await _asked(engine, count=5)
    assert [r.failure and r.failure.kind for r in requests] == [None, None, "broken"]
    assert [r.tokens for r in requests[:2]] == [16, 16]
    assert 0 < len(requests[2].times) < 16
    assert "1 of 3 requests" in complaints(requests, 16, _serving(engine))[0]


@pytest.mark.parametrize("manner", ["old", "reaps"])
async def test_a_server_that_keeps_no_connection_is_measured_all_the_same(manner: str) -> None:
    with hostile_engine(manner) as engine:
        requests = await _asked(engine, count=3)
    assert [(r.failure, r.tokens) for r in requests] == [(None, 16)] * 3


async def test_an_ignored_length_is_told() -> None:
    with hostile_engine("ignores") as engine:
        requests = await _asked(engine, count=2)
    assert [r.failure for r in requests] == [None, None]
    told = complaints(requests, 16, _serving(engine))
    assert told == [
        "2 of 2 requests gave 9 tokens where 16 were asked for: "
        f"the engine at {engine.url} ignores the forced length"
    ]


async def test_one_token_a_minute_ends_at_the_stall_limit() -> None:
    with hostile_engine("minute") as engine:
        began = time.monotonic()
        requests = await _asked(engine, count=1)
    assert time.monotonic() - began < 10
    assert requests[0].failure and requests[0].failure.kind == "stalled"
    assert len(requests[0].times) == 1


async def test_a_certificate_counts_but_on_loopback(tmp_path: Path) -> None:
    with hostile_engine("well", tls=tmp_path) as engine:
        (request,) = await _asked(engine, count=1)
        assert request.failure is None
        # Any name but loopback's is verified; this one is a name of this very machine.
        named = Serving("vLLM", engine.url.replace("127.0.0.1", engine.hostname), "m")
        async with open_beside(here(), named) as beside:
            requests, _ = await beside.job(bodies(named, 1, 16, 0), 1)
    assert requests[0].failure and requests[0].failure.kind == "tls"
    assert "no TLS connection" in sentence(requests[0].failure, named)


async def test_a_key_that_an_engine_repeats_is_blanked() -> None:
    with hostile_engine("401") as engine:
        async with open_beside(here(), _serving(engine), "sesame-1234") as beside:
            (request,), _ = await beside.job(bodies(_serving(engine), 1, 16, 0), 1)
    assert engine.keys == ["Bearer sesame-1234"]
    assert request.failure and "sesame" not in request.failure.said
    assert "***" in request.failure.said


async def test_a_server_without_nodelay_holds_nothing_back_from_us() -> None:
    """On a kept connection, tokens would wait for our delayed acknowledgement: 40 ms."""
    with hostile_engine("well") as engine:
        requests = await _asked(engine, count=4)
    heads = [r.times[4] - r.times[0] for r in requests]
    assert [r.failure for r in requests] == [None] * 4
    assert min(heads[1:]) > 0.010  # four tokens, each sent 5 ms after the last


def _serving(engine: Hostile) -> Serving:
    return Serving("vLLM", engine.url, "m")


async def _asked(engine: Hostile, count: int) -> tuple[Request, ...]:
    serving = _serving(engine)
    async with open_beside(here(), serving) as beside:
        requests, _ = await beside.job(
            bodies(serving, count, 16, 0), 1, stall_seconds=1.0, request_seconds=4.0
        )
    return requests


def test_a_row_may_hold_anything() -> None:
    row = json.loads(
        '{"began":1e999,"times":[3,1],"last":"x","tokens":true,"first_tokens":-1,"text":7,'
        '"finish":{"a":1},"server_ms":NaN,"error":[]}'
    )
    request = request_of(row)
    assert (request.began, request.times, request.tokens, request.first_tokens) == (0, (), None, 1)
    assert request.server_ms is None and request.failure is None


def test_bursts_are_held_back_but_not_a_fast_engine() -> None:
    fast = Request(times=tuple(0.01 + at * 0.0001 for at in range(64)))
    fast_in_turns = Request(times=tuple(0.01 + (at // 16) * 0.004 for at in range(64)))
    at_once = Request(times=tuple(0.7 + at * 1e-5 for at in range(64)))
    bursts = Request(times=tuple(0.5 + (at // 20) * 0.3 for at in range(64)))
    chunks = Request(times=tuple(0.1 + at * 0.03 for at in range(16)))
    told = [held_back(r) for r in (fast, fast_in_turns, at_once, bursts, chunks)]
    assert told == [False, False, True, True, False]
