"""A run over a client whose engine is data: what is asked, when it ends, and what it keeps."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from gpudoctor.bench.run import FULL, QUICK, Progress, Run, Size, estimate
from gpudoctor.model.bench import Failure, Request, Serving
from gpudoctor.model.error import Refusal

SERVING = Serving("llama.cpp", "http://127.0.0.1:8080", "tiny")
FAST = replace(QUICK, warm=0.0, block=0.0)


@dataclass
class FakeClient:
    """An engine that takes `pace` seconds a token, of which nothing is really waited for."""

    pace: float = 0.01
    fails_from: int = 1 << 30
    held_back: int = 0
    asked: list[tuple[int, int, int]] = field(default_factory=list)

    async def job(
        self,
        bodies: Sequence[dict[str, object]],
        streams: int,
        live: Callable[[float, int], None] | None = None,
    ) -> tuple[tuple[Request, ...], float]:
        tokens = int(str(bodies[0]["max_tokens"]))
        self.asked.append((len(bodies), streams, tokens))
        if live is not None:
            live(0.5, 10)
            live(1.0, 30)
        return (self._one(tokens),) * len(bodies), 1.0

    def _one(self, tokens: int) -> Request:
        if len(self.asked) >= self.fails_from:
            return Request(failure=Failure("http", 429, "busy"))
        if len(self.asked) <= self.held_back:
            return Request(failure=Failure("buffered"))
        return self._request(tokens)

    def _request(self, tokens: int) -> Request:
        times = tuple(1 + self.pace * at for at in range(tokens))
        return Request(0.0, times, times[-1], tokens, finish="length")


async def nobody() -> str:
    return ""


def run(client: FakeClient, size: Size = FAST, **more: object) -> Run:
    values: dict[str, object] = {"busy": nobody, "tell": lambda progress: None} | more
    return Run(client, SERVING, size, **values)  # type: ignore[arg-type]


def test_every_level_has_its_blocks_and_the_length_fits_the_pace() -> None:
    client = FakeClient()
    told = asyncio.run(run(client).measure((1, 8)))
    assert [(level.streams, len(level.blocks)) for level in told.levels] == [(1, 4), (8, 4)]
    assert told.tokens == 120 and not told.stopped
    assert client.asked[:3] == [(1, 1, 16)] * 3  # warm-up
    assert set(client.asked[3:7]) == {(2, 1, 120)} and set(client.asked[7:]) == {(8, 8, 120)}


def test_the_length_of_an_earlier_run_is_taken_over() -> None:
    client = FakeClient()
    assert asyncio.run(run(client, tokens=33).measure((1,))).tokens == 33
    assert {tokens for _, _, tokens in client.asked} == {33}


def test_what_was_measured_before_a_failure_is_kept() -> None:
    told = asyncio.run(run(FakeClient(fails_from=6)).measure((1, 8)))
    assert [len(level.blocks) for level in told.levels] == [2]
    assert "429" in told.stopped


def test_an_engine_that_never_answers_well_is_refused() -> None:
    with pytest.raises(Refusal, match="nothing was measured: .*429"):
        asyncio.run(run(FakeClient(fails_from=1)).measure((1,)))


def test_it_ends_at_its_hard_limit() -> None:
    told = asyncio.run(run(FakeClient(), replace(FAST, hard=0.0)).measure((1, 8)))
    assert [len(level.blocks) for level in told.levels] == [1]
    assert "time of 0 s was over" in told.stopped


def test_others_on_the_engine_forbid_it_or_mark_it() -> None:
    async def busy() -> str:
        return "2 requests of others"

    with pytest.raises(Refusal, match="2 requests of others"):
        asyncio.run(run(FakeClient(), busy=busy).measure((1,)))
    told = asyncio.run(run(FakeClient(), busy=busy, mark=True).measure((1,)))
    assert all(block.foreign == "2 requests of others" for block in told.levels[0].blocks)


def test_a_disturbed_block_is_measured_again_twice_at_most() -> None:
    answers = iter(["", "others", "others", "others", "", "", "", "", ""])

    async def busy() -> str:
        return next(answers)

    client = FakeClient()
    told = asyncio.run(run(client, busy=busy).measure((1,)))
    assert [block.foreign for block in told.levels[0].blocks] == ["others", "", "", ""]
    assert len(client.asked) == 3 + 6


def test_progress_tells_the_phase_and_the_pace() -> None:
    seen: list[Progress] = []
    asyncio.run(run(FakeClient(), tell=seen.append).measure((1,)))
    assert {p.phase for p in seen} == {"warm-up", "1 stream"}
    assert {p.rate for p in seen} >= {None, 20.0, 40.0}
    assert (seen[-1].done, seen[-1].of) == (3, 4)


def test_a_quick_run_stays_within_its_budget_at_the_founding_pace() -> None:
    assert estimate(0.095, 2, QUICK) <= 45 and estimate(0.003, 2, QUICK) <= 30
    assert estimate(0.095, 2, FULL) > estimate(0.095, 2, QUICK)


@pytest.mark.parametrize("times", [1, 2])
def test_text_that_came_at_once_by_chance_is_asked_for_again(times: int) -> None:
    told = asyncio.run(run(FakeClient(held_back=times)).measure((1,)))
    assert len(told.levels[0].blocks) == 4 and not told.stopped


def test_text_that_always_comes_at_once_is_a_proxy() -> None:
    with pytest.raises(Refusal, match="buffering proxy"):
        asyncio.run(run(FakeClient(held_back=3)).measure((1,)))
