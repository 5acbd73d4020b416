"""Whether an engine still writes language; what it never wrote is no concern."""

import random

import pytest

from gpudoctor.bench.sanity import rubbish, spoiled

PROSE = "The river runs past the old mill, and every spring it floods the meadow below the road. "
CODE = "def add(a, b):\n    return a + b\n\nprint(add(1, 2))  # three, as one would hope\n"
CHINESE = "河流经过古老的磨坊，每年春天都会淹没道路下方的草地，人们便在高处等待水退去再回家。"


def noise(seed: int, length: int = 200) -> str:
    chance = random.Random(seed)
    return "".join(chr(chance.randrange(33, 127)) for _ in range(length))


@pytest.mark.parametrize("text", [PROSE * 2, CODE * 2, CHINESE * 2, "too short"])
def test_language_is_none(text: str) -> None:
    assert not rubbish(text)


@pytest.mark.parametrize("text", ["!!!!" * 40, "the the the " * 60, "\x00\x01" * 50, "<|>" * 40])
def test_no_language_is(text: str) -> None:
    assert rubbish(text)


def test_only_a_clear_turn_counts() -> None:
    prose, shouts = [PROSE * 2] * 8, ["!!!!" * 40] * 8
    assert spoiled(prose, shouts)
    assert not spoiled(shouts, prose) and not spoiled(prose, prose)
    assert not spoiled(prose, shouts[:4] + prose[:4])
    assert not spoiled(prose, []) and not spoiled(prose[:3], shouts[:3])


def test_random_weights_never_alarm() -> None:
    texts = [noise(seed) for seed in range(40)]
    assert not any(spoiled(texts[at : at + 8], texts[at + 8 : at + 16]) for at in range(24))
