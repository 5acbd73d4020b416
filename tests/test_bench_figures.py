"""The figures' definitions, on requests whose numbers can be worked out by hand."""

import pytest

from gpudoctor.bench.figures import figures, quantile, together, tpot, valid, variation
from gpudoctor.model.bench import Block, Failure, Level, Request


def request(began: float = 0.0, first: float = 1.0, gap: float = 0.1, n: int = 11) -> Request:
    """Return a request of n tokens, one a piece."""
    times = tuple(first + gap * at for at in range(n))
    return Request(began, times, times[-1], n, finish="length", text="word " * n)


def test_time_per_token_leaves_the_first_one_out() -> None:
    assert tpot(request()) == pytest.approx(0.1)


def test_a_piece_of_several_tokens_counts_as_many() -> None:
    several = Request(0.0, (1.0, 1.5, 2.0), 2.0, tokens=9, first_tokens=3, finish="length")
    assert tpot(several) == pytest.approx(1.0 / 6)


def test_the_finish_event_ends_it_where_it_comes_after_the_last_text() -> None:
    late = Request(0.0, (1.0, 1.5), 2.0, tokens=3, finish="length")
    assert tpot(late) == pytest.approx(0.5)


def test_without_usage_pieces_are_counted_and_it_is_said() -> None:
    plain = Request(0.0, (1.0, 1.1, 1.2), 1.2, finish="length")
    assert tpot(plain) == pytest.approx(0.1)
    assert figures(Level(1, (Block((plain,)),))).estimated


@pytest.mark.parametrize(
    "odd",
    [
        Request(failure=Failure("stalled")),
        Request(),
        Request(0.0, (1.0,), 1.0, 1, finish="length"),
        Request(0.0, (1.0, 1.0), 1.0, 2, finish="length"),  # all at once: nothing to tell
    ],
)
def test_what_gives_no_time_gives_none(odd: Request) -> None:
    assert tpot(odd) is None


def test_another_length_than_forced_is_no_measurement() -> None:
    assert valid(request(), 11)
    assert not valid(request(), 12)
    assert valid(request(), 12, forced=False)
    assert not valid(request(n=10), 12, forced=False)
    stopped = Request(0.0, (1.0, 1.1), 1.1, 2, finish="stop")
    assert not valid(stopped, 2)


def test_figures_of_one_stream() -> None:
    level = Level(1, (Block((request(gap=0.1), request(gap=0.2))), Block((request(gap=0.3),))))
    told = figures(level)
    assert (told.requests, told.failed, told.tokens) == (3, 0, 33)
    assert told.ttft == pytest.approx((1.0, 1.0, 1.0))
    assert told.typical == pytest.approx(0.2) and told.rate == pytest.approx(5.0)
    assert told.floor == pytest.approx(0.15)


def test_streams_together_count_only_while_all_run() -> None:
    early, late = request(first=1.0, gap=0.1), request(first=1.5, gap=0.2)
    assert together(Block((early, late), 2)) == pytest.approx(10 + 5)
    after = request(first=9.0)
    assert together(Block((early, after), 2)) is None  # they never ran together


def test_quantiles_and_variation() -> None:
    assert quantile([3, 1, 2], 0.5) == 2 and quantile([1, 2], 0.25) == 1.25
    assert variation([1.0]) is None and variation([1.0, 1.0]) == 0
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)
