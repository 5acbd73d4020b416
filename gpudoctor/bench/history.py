"""Earlier runs: what the next is judged against, whose length it takes over, and which is fresh."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

from gpudoctor.bench.measure import Wish
from gpudoctor.bench.standing import standing
from gpudoctor.bench.verdict import LEAST_BLOCKS, compare
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.bench import BenchRun, Comparison, Serving
from gpudoctor.model.ceiling import Ceiling

# What `ask` writes before it asks for output.
_PROMPT_TOKENS = 64
_FRESH = timedelta(hours=1)
_MOST_EARLIER = 3


def fits(run: BenchRun, serving: Serving, streams: Sequence[int]) -> bool:
    """Return whether an earlier run measured the same thing, and enough of it to be judged."""
    first = run.level(streams[0])
    quiet = sum(not block.foreign for block in first.blocks) if first is not None else 0
    enough = quiet >= LEAST_BLOCKS
    return (
        run.serving.same(serving)
        and enough
        and set(streams) <= {level.streams for level in run.levels}
    )


def earlier(known: Iterable[BenchRun], serving: Serving, wish: Wish) -> list[BenchRun]:
    """Return the last of the runs (newest first) that this wish repeats, older first."""
    same = (run for run in known if fits(run, serving, wish.streams) and run.full == wish.full)
    return list(reversed(list(islice(same, _MOST_EARLIER))))


def with_length(wish: Wish, runs: Sequence[BenchRun]) -> Wish:
    """Return the wish with the output length of the last run, so that both can be compared."""
    return replace(wish, tokens=runs[-1].tokens_asked) if runs else wish


def judged(runs: Sequence[BenchRun], run: BenchRun, streams: int) -> Comparison | None:
    """Return what a run says against the last of earlier ones; None where there are none.

    A change that it was measured after explains a jump.
    """
    return compare(runs, run, streams, expected=bool(run.transaction)) if runs else None


def ceiling_of(result: AuditResult, run: BenchRun) -> Ceiling:
    """Return what one stream could reach there, halfway through a request's output."""
    return standing(result, run.serving, _PROMPT_TOKENS + run.tokens_asked // 2)


def fresh(known: Iterable[BenchRun], serving: Serving, boot: str, now: datetime) -> BenchRun | None:
    """Return the newest run that measured this very process, in this boot, within the last hour."""
    who = (serving.pid, serving.started, boot)
    for run in known:
        same = (run.serving.pid, run.serving.started, run.boot_id) == who
        age = now - datetime.fromisoformat(run.taken)
        if same and age <= _FRESH and fits(run, serving, (1,)):
            return run
    return None
