"""Before against after: what the blocks of two benchmarks allow to be claimed, and no more.

Requests of one block are not independent of each other, so that blocks are drawn again, never
requests or tokens; the lower quartile is judged, since noise only ever slows. Runs of the same host
differ by themselves, more than the blocks of one: a claim lies beyond the most that the runs before
differed by, beyond what the blocks of a run vary by, and beyond 2 % always; beyond 5 % where one
run before is all there is. The numbers behind this are in docs/benchmark.md.
"""

import random
from collections.abc import Callable, Sequence
from itertools import combinations

from gpudoctor.bench.ask import forced
from gpudoctor.bench.figures import quantile, tpots, valid, variation
from gpudoctor.bench.sanity import spoiled
from gpudoctor.model.bench import BenchRun, Block, Comparison, Judgement

LEAST_MARGIN = 0.02
LONE_MARGIN = 0.05
QUICK_MARGIN = 0.10
# The condition that tells which changes of ours were in force.
APPLIED = "changes applied"
LEAST_BLOCKS, FULL_BLOCKS = 4, 8
_LEVEL, _DRAWS = 0.975, 2000
_MOST_INVALID = 0.05
_ALIKE = 1.5 * LEAST_MARGIN
_JUMP = 0.30
_DRIFT_TAU = 0.7
_TOO_FEW = f"so few blocks tell only changes beyond {QUICK_MARGIN:.0%}"
_ALONE = (
    "one run before does not tell how well this host repeats, so that only changes beyond "
    f"{LONE_MARGIN:.0%} count: two or three before a change tell smaller ones"
)

Statistic = Callable[[Sequence[float]], float]


def floor_of(values: Sequence[float]) -> float:
    """Return the lower quartile."""
    return quantile(values, 0.25)


def median_of(values: Sequence[float]) -> float:
    """Return the median."""
    return quantile(values, 0.5)


def ratio_interval(
    before: Sequence[Sequence[float]],
    after: Sequence[Sequence[float]],
    statistic: Statistic = floor_of,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Return after over before and its 97.5 % interval, by drawing whole blocks again.

    The seed is fixed, so that kept runs always give the same answer.
    """
    chance = random.Random(seed)

    def drawn(blocks: Sequence[Sequence[float]]) -> float:
        return statistic([t for b in chance.choices(blocks, k=len(blocks)) for t in b])

    draws = sorted(drawn(after) / drawn(before) for _ in range(_DRAWS))
    ratio = statistic([t for b in after for t in b]) / statistic([t for b in before for t in b])
    cut = int(_DRAWS * (1 - _LEVEL) / 2)
    return ratio, draws[cut], draws[-1 - cut]


def compare(
    before: Sequence[BenchRun],
    after: BenchRun,
    streams: int = 1,
    expected: bool = False,
    interleaved: bool = False,
) -> Comparison:
    """Judge `after` against the last of `before`, together with those that repeat it.

    `expected` says that a change between them explains a jump. Where blocks of both were
    `interleaved`, what moves all the while moves both alike, and is no concern.
    """
    base = before[-1]
    if why := not_comparable(base, after, streams):
        return Comparison(Judgement.NOT_COMPARABLE, why=why)
    alike = [_blocks(run, streams) for run in before if _repeats(run, base, streams)]
    old, new = [block for blocks in alike for block in blocks], _blocks(after, streams)
    full = base.full and after.full and min(len(alike[-1]), len(new)) >= FULL_BLOCKS
    margin = LEAST_MARGIN if full else QUICK_MARGIN
    if not interleaved:
        margin = max(margin, _repeated_within(alike), *map(_varied, (*alike, new)))
    ratio, low, high = ratio_interval(old, new)
    typical = ratio_interval(old, new, median_of)
    drifts = [] if interleaved else _drifts(alike[-1], new, margin)
    flags = [f"drift of {move:+.1%} within the run {when}" for when, move in drifts]
    flags += _flags(base, after, ratio, expected or _state(base) != _state(after))
    # A steady move inside a run may be the whole difference between the two.
    moving = any(abs(ratio - 1) < 2 * abs(move) for _, move in drifts)
    judgement, why = _judged(low, high, margin, flags[0] if moving else "")
    if judgement is Judgement.SAME and not full:
        judgement, why = Judgement.INCONCLUSIVE, _TOO_FEW
    if (
        full
        and len(alike) == 1
        and margin == LONE_MARGIN
        and judgement in {Judgement.SAME, Judgement.INCONCLUSIVE}
    ):
        flags.append(_ALONE)
    return Comparison(
        judgement,
        ratio,
        low,
        high,
        margin,
        margin + (high - low) / 2,
        why,
        tuple(flags),
        typical[0],
    )


def _judged(low: float, high: float, margin: float, drifting: str) -> tuple[Judgement, str]:
    if high < 1 - margin or low > 1 + margin:
        if drifting:
            return Judgement.INCONCLUSIVE, f"{drifting}: a change cannot be told from that"
        faster = high < 1 - margin
        return (Judgement.FASTER if faster else Judgement.SLOWER), "the whole interval lies beyond"
    if 1 - _ALIKE < low and high < 1 + _ALIKE:
        return Judgement.SAME, "the whole interval lies about no change"
    return Judgement.INCONCLUSIVE, "the interval holds both a change and none"


def not_comparable(before: BenchRun, after: BenchRun, streams: int) -> str:
    """Return why two runs cannot be compared, in one sentence, or nothing."""
    one, other = before.serving, after.serving
    if before.machine_id != after.machine_id:
        return "they are of two machines"
    if (one.kind, one.model) != (other.kind, other.model):
        return f"another engine or model: {one.kind} {one.model}, then {other.kind} {other.model}"
    if (before.tokens_asked, before.path) != (after.tokens_asked, after.path):
        return "other lengths, or another way to the engine"
    kept, now = before.conditions, after.conditions
    for name in sorted(kept.fixed | now.fixed):
        if kept.values.get(name) != now.values.get(name):
            said = (kept.values.get(name, "nothing"), now.values.get(name, "nothing"))
            return f"{name} differs: {said[0]}, then {said[1]}"
    for run, when in ((before, "before"), (after, "after")):
        if why := _too_little(run, streams):
            return f"{when}: {why}"
    if spoiled(_texts(before), _texts(after)):
        return "the text that the engine writes is not what it was: look at it before the speed"
    return ""


def _too_little(run: BenchRun, streams: int) -> str:
    level = run.level(streams)
    if level is None:
        return f"nothing was measured with {streams} streams"
    requests = [r for block in level.blocks for r in block.requests]
    wrong = [r for r in requests if not valid(r, run.tokens_asked, forced(run.serving))]
    if len(wrong) > _MOST_INVALID * len(requests):
        return f"{len(wrong)} of {len(requests)} requests failed or ended at another length"
    if (quiet := len(_blocks(run, streams))) < LEAST_BLOCKS:
        return f"only {quiet} blocks were measured undisturbed, of {LEAST_BLOCKS} that it takes"
    return ""


def _blocks(run: BenchRun, streams: int) -> list[list[float]]:
    """Return the times per token of each block that nobody else disturbed."""
    level = run.level(streams)
    kept = [block for block in (level.blocks if level else ()) if not block.foreign]
    return [times for block in kept if (times := tpots(block))]


def _texts(run: BenchRun) -> list[str]:
    return [r.text for level in run.levels for block in level.blocks for r in block.requests]


def _repeats(run: BenchRun, base: BenchRun, streams: int) -> bool:
    """Return whether a run measured the same thing as another, with the same changes applied."""
    return _state(run) == _state(base) and not not_comparable(run, base, streams)


def _repeated_within(runs: Sequence[Sequence[Sequence[float]]]) -> float:
    """Return by how much the same thing differed, measured several times; by much if only once."""
    if len(runs) < 2:
        return LONE_MARGIN
    floors = [floor_of([t for block in blocks for t in block]) for blocks in runs]
    return max(floors) / min(floors) - 1


def _varied(blocks: Sequence[Sequence[float]]) -> float:
    """Return the coefficient of variation of the blocks' floors."""
    return variation([floor_of(block) for block in blocks]) or 0.0


def _state(run: BenchRun) -> str:
    return run.conditions.values.get(APPLIED, "")


def _drifts(
    old: Sequence[Sequence[float]], new: Sequence[Sequence[float]], margin: float
) -> list[tuple[str, float]]:
    """Return in which runs the blocks moved steadily by more than the margin, and how far."""
    moves = (("before", drift(old)), ("after", drift(new)))
    return [(when, move) for when, move in moves if move is not None and abs(move) > margin]


def _flags(before: BenchRun, after: BenchRun, ratio: float, expected: bool) -> list[str]:
    flags = []
    if abs(ratio - 1) > _JUMP and not expected:
        flags.append(f"a jump of {ratio - 1:+.0%} that no knob explains: measure again")
    kept, now = before.conditions.values, after.conditions.values
    for name in sorted(kept.keys() & now.keys()):
        if kept[name] != now[name] and name not in before.conditions.fixed:
            flags.append(f"{name}: {kept[name]}, then {now[name]}")
    if before.serving.flags != after.serving.flags:
        flags.append("the engine was started with other arguments")
    return flags


def drift(blocks: Sequence[Sequence[float]]) -> float | None:
    """Return by which share the blocks move steadily from first to last, or None if not steadily.

    Theil and Sen's slope, told only where Kendall's tau says that most pairs agree on it.
    """
    floors = [floor_of(block) for block in blocks]
    if len(floors) < LEAST_BLOCKS:
        return None
    pairs = list(combinations(enumerate(floors), 2))
    slopes = sorted((b - a) / (j - i) for (i, a), (j, b) in pairs)
    tau = sum((b > a) - (b < a) for (_, a), (_, b) in pairs) / len(pairs)
    if abs(tau) < _DRIFT_TAU:
        return None
    return median_of(slopes) * (len(floors) - 1) / median_of(floors)


def spread(blocks: Sequence[Block]) -> float | None:
    """Return the coefficient of variation of the blocks' floors."""
    return variation([floor_of(t) for block in blocks if (t := tpots(block))])
