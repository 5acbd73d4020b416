"""Figures of a benchmark, by the definitions that `gpudoctor bench --help` prints."""

import math
from collections.abc import Iterable, Sequence

from gpudoctor.model.bench import Block, Figures, Level, Request

# A request that gave another length than was forced is no measurement of it.
_LEAST_TOKENS = 2


def tpot(request: Request) -> float | None:
    """Return seconds per output token after the first event, or None where nothing can be told."""
    if request.failure is not None or not request.times:
        return None
    count = counted(request) - request.first_tokens
    seconds = request.last - request.times[0]
    return seconds / count if count >= 1 and seconds > 0 else None


def counted(request: Request) -> int:
    """Return the output tokens: the server's count, else the pieces of text."""
    return len(request.times) if request.tokens is None else request.tokens


def valid(request: Request, asked: int, forced: bool = True) -> bool:
    """Return whether a request may be judged: it ended as asked, with the length that was forced.

    Engines that cannot force a length (`forced` false) may end earlier, from nine tenths on.
    """
    if request.failure is not None or tpot(request) is None:
        return False
    count = counted(request)
    if not forced:
        return count >= 0.9 * asked
    right = count == asked or request.tokens is None
    return right and request.finish in {"length", ""} and count >= _LEAST_TOKENS


def tpots(block: Block) -> list[float]:
    """Return the times per output token of a block's requests, in seconds."""
    return [t for t in map(tpot, block.requests) if t is not None]


def figures(level: Level) -> Figures:
    """Return what one level says."""
    requests = [r for block in level.blocks for r in block.requests]
    well = [r for r in requests if r.failure is None and r.times]
    every = [t for r in well if (t := tpot(r)) is not None]
    firsts = [r.times[0] - r.began for r in well]
    floors = [quantile(times, 0.25) for block in level.blocks if (times := tpots(block))]
    servers = [r.server_ms / 1e3 for r in well if r.server_ms]
    typical = quantile(every, 0.5) if every else None
    return Figures(
        streams=level.streams,
        requests=len(requests),
        failed=len(requests) - len(well),
        tokens=sum(map(counted, well)),
        ttft=_three(firsts),
        gap=_three(list(_gaps(well))),
        floor=quantile(every, 0.25) if every else None,
        typical=typical,
        rate=_rate(level, typical),
        spread=variation(floors),
        server=quantile(servers, 0.5) if servers else None,
        estimated=any(r.tokens is None for r in well),
    )


def _rate(level: Level, typical: float | None) -> float | None:
    """Return output tokens a second: of one stream by TPOT, of several in their common window."""
    if level.streams == 1:
        return 1 / typical if typical else None
    rates = [rate for block in level.blocks if (rate := together(block)) is not None]
    return quantile(rates, 0.5) if rates else None


def together(block: Block) -> float | None:
    """Return tokens a second while all streams of a block ran: the first `streams` requests.

    The window is from the last one's first text to the first one's end; tokens are spread evenly
    over a request's own time, since one event may hold several.
    """
    first = [r for r in block.requests[: block.streams] if r.failure is None and r.times]
    if len(first) < block.streams:
        return None
    start, end = max(r.times[0] for r in first), min(r.last for r in first)
    if end <= start:
        return None
    each = [tpot(r) for r in first]
    return sum(1 / t for t in each if t) if all(each) else None


def _gaps(requests: Iterable[Request]) -> Iterable[float]:
    for request in requests:
        yield from (b - a for a, b in zip(request.times, request.times[1:], strict=False))


def _three(values: Sequence[float]) -> tuple[float, float, float] | None:
    if not values:
        return None
    return quantile(values, 0.5), quantile(values, 0.9), quantile(values, 0.99)


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation. Raises ValueError for no values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def variation(values: Sequence[float]) -> float | None:
    """Return the coefficient of variation, or None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return spread / mean if mean else None
