"""What two benchmarks allow to be claimed: seeded series with a known change in them."""

import random
from dataclasses import replace
from typing import Any

import pytest

from gpudoctor.bench.history import fits
from gpudoctor.bench.verdict import APPLIED, compare, drift, ratio_interval
from gpudoctor.model.bench import (
    BenchRun,
    Block,
    Conditions,
    Judgement,
    Level,
    Request,
    Serving,
)
from gpudoctor.model.place import ContainerRef

SERVING = Serving("llama.cpp", "http://127.0.0.1:8080", "tiny")
TEXT = "The quick brown fox jumps over the lazy dog, and then it counts its steps to the river. "


def run(pace: float, noise: float, seed: int, blocks: int = 8, full: bool = True) -> BenchRun:
    """Return a run of 32 tokens a request; `noise` varies whole blocks, one-sidedly."""
    chance = random.Random(seed)
    level = []
    for _ in range(blocks):
        slow = 1 + abs(chance.gauss(0, noise))
        paces = [pace * slow * (1 + abs(chance.gauss(0, noise / 4))) for _ in range(4)]
        level.append(Block(tuple(of_pace(one) for one in paces)))
    return BenchRun("id", "", "gpu1", "m", "b", SERVING, (Level(1, tuple(level)),), 32, full)


def of_pace(pace: float) -> Request:
    times = tuple(1 + pace * at for at in range(32))
    return Request(0.0, times, times[-1], 32, finish="length", text=TEXT)


def share(change: float, noise: float, full: bool = True, tries: int = 60) -> dict[Judgement, int]:
    """Return how often each judgement comes of a known change."""
    told: dict[Judgement, int] = {}
    for seed in range(tries):
        before = run(0.01, noise, 2 * seed, 8 if full else 4, full)
        after = run(0.01 * (1 + change), noise, 2 * seed + 1, 8 if full else 4, full)
        judgement = compare([before], after).judgement
        told[judgement] = told.get(judgement, 0) + 1
    return told


def test_the_same_twice_is_hardly_ever_called_a_change() -> None:
    told = share(0.0, 0.02)
    assert told.get(Judgement.FASTER, 0) + told.get(Judgement.SLOWER, 0) <= 3


def test_a_slow_down_is_found_and_never_called_the_other_way() -> None:
    told = share(0.10, 0.02)
    assert told.get(Judgement.SLOWER, 0) >= 59 and Judgement.FASTER not in told
    told = share(-0.10, 0.02)
    assert told.get(Judgement.FASTER, 0) >= 59 and Judgement.SLOWER not in told


def test_a_quick_run_claims_only_big_changes() -> None:
    assert share(0.05, 0.005, full=False).keys() == {Judgement.INCONCLUSIVE}
    assert share(0.0, 0.001, full=False).keys() == {Judgement.INCONCLUSIVE}
    assert share(0.25, 0.01, full=False)[Judgement.SLOWER] >= 57


def test_the_interval_is_the_same_each_time() -> None:
    before, after = [[0.01, 0.011], [0.012]] * 4, [[0.02], [0.021]] * 4
    assert ratio_interval(before, after) == ratio_interval(before, after)


def test_runs_before_tell_how_well_the_host_repeats() -> None:
    first, second, after = run(0.010, 0, 1), run(0.0108, 0, 2), run(0.0113, 0, 3)
    alone = compare([second], after)
    assert alone.margin == 0.05 and alone.judgement is Judgement.INCONCLUSIVE
    assert "one run before" in alone.flags[0]
    twice = compare([second, second], after)
    assert twice.margin == 0.02 and twice.judgement is Judgement.SLOWER and not twice.flags
    three = compare([first, second, second], after)
    assert three.margin == pytest.approx(0.08) and three.judgement is Judgement.INCONCLUSIVE


def test_runs_before_an_earlier_change_tell_nothing_of_repeating() -> None:
    def applied(one: BenchRun, what: str) -> BenchRun:
        return replace(one, conditions=Conditions({APPLIED: what}))

    slow, fast = applied(run(0.014, 0, 1), "none"), applied(run(0.010, 0, 2), "T1")
    again, after = applied(run(0.010, 0, 3), "T1"), applied(run(0.006, 0, 4), "T1, T2")
    told = compare([slow, fast, again], after)
    assert told.margin == 0.02 and told.judgement is Judgement.FASTER
    assert told.flags == (f"{APPLIED}: T1, then T1, T2",)


def test_drift_is_told_and_nothing_claimed() -> None:
    steady = [[0.01 * (1 + 0.02 * at)] * 4 for at in range(8)]
    assert drift(steady) == pytest.approx(0.14 / 1.07, rel=0.05)
    assert drift([[0.01], [0.011]] * 4) is None
    level = Level(1, tuple(Block(tuple(map(of_pace, block))) for block in steady))
    moving = replace(run(0.01, 0, 1), levels=(level,))
    told = compare([run(0.0095, 0, 2)], moving)
    assert told.judgement is Judgement.INCONCLUSIVE and "drift" in told.why


def test_a_jump_that_nothing_explains_is_flagged() -> None:
    told = compare([run(0.01, 0, 1)], run(0.006, 0, 2))
    assert told.judgement is Judgement.FASTER and "jump" in told.flags[0]
    assert not compare([run(0.01, 0, 1)], run(0.006, 0, 2), expected=True).flags


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"machine_id": "other"}, "two machines"),
        ({"serving": replace(SERVING, model="other")}, "another engine or model"),
        ({"tokens_asked": 64}, "other lengths"),
        ({"path": "through a forward"}, "another way"),
        ({"conditions": Conditions({"GPUs": "7"}, frozenset({"GPUs"}))}, "GPUs differs"),
        ({"levels": ()}, "nothing was measured"),
        ({"levels": run(0.01, 0, 1, blocks=3).levels}, "only 3 blocks"),
    ],
)
def test_what_cannot_be_compared_says_why(change: dict[str, object], why: str) -> None:
    after = replace(run(0.01, 0, 2), **change)  # type: ignore[arg-type]
    told = compare([run(0.01, 0, 1)], after)
    assert told.judgement is Judgement.NOT_COMPARABLE and why in told.why


def test_a_disturbed_block_does_not_count() -> None:
    before = run(0.01, 0, 1)
    blocks = before.levels[0].blocks
    marked = tuple(replace(block, foreign="2 requests of others") for block in blocks[:5])
    after = replace(before, levels=(Level(1, marked + blocks[5:]),))
    assert "only 3 blocks were measured undisturbed" in compare([before], after).why
    assert fits(before, SERVING, (1,)) and not fits(after, SERVING, (1,))


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"pid": 7, "version": "2"}, True),
        ({"url": "http://127.0.0.1:9999"}, False),
        ({"container": ContainerRef("docker", "b")}, False),
        ({"model": "other"}, False),
    ],
)
def test_a_run_of_another_engine_is_no_earlier_run(other: dict[str, Any], same: bool) -> None:
    """Containers with networks of their own may share a URL, and replicas a model."""
    assert fits(run(0.01, 0, 1), replace(SERVING, **other), (1,)) is same


def test_faster_rubbish_is_no_gain() -> None:
    after = run(0.005, 0, 2)
    level = after.levels[0]
    blocks = tuple(
        replace(b, requests=tuple(replace(r, text="!!!!" * 40) for r in b.requests))
        for b in level.blocks
    )
    told = compare([run(0.01, 0, 1)], replace(after, levels=(replace(level, blocks=blocks),)))
    assert told.judgement is Judgement.NOT_COMPARABLE and "text" in told.why
