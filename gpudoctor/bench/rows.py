"""What the client says of a request, checked: it comes from a host, and may be anything."""

import math
from collections.abc import Mapping
from dataclasses import replace

from gpudoctor.bench.asking import blanked
from gpudoctor.model.bench import Failure, Request
from gpudoctor.text import clean

_MOST = 10_000_000
# No engine decodes in less than `_FAST_SECONDS`: events so close together were held back on their
# way. Where tokens take less than `_SLOW_SECONDS`, it may have been our client that waited for its
# turn to run; from there on it was a proxy.
_FAST_SECONDS, _TOGETHER_SECONDS, _SLOW_SECONDS = 50e-6, 100e-6, 5e-3
_LEAST_EVENTS, _EVENTS_A_BURST = 8, 8


def request_of(row: Mapping[str, object], key: str = "") -> Request:
    """Return the request that a row tells of; a stream that was held back counts as failed."""
    request = Request(
        began=_seconds(row.get("began")),
        times=_times(row.get("times")),
        last=_seconds(row.get("last")),
        tokens=_count(row.get("tokens")),
        first_tokens=_count(row.get("first_tokens")) or 1,
        prompt_tokens=_count(row.get("prompt_tokens")),
        cached=_count(row.get("cached")),
        finish=clean(str(row.get("finish") or ""))[:40],
        text=clean(blanked(str(row.get("text") or ""), key)),
        server_ms=_seconds(row.get("server_ms")) or None,
        failure=_failure(row.get("error"), key),
    )
    if request.failure is None and held_back(request):
        return replace(request, failure=Failure("buffered"))
    return request


def held_back(request: Request) -> bool:
    """Return whether text came all at once, or in bursts of many events, as a proxy buffers it."""
    times = request.times
    if len(times) < _LEAST_EVENTS:
        return False
    span, silent = times[-1] - times[0], times[0] - request.began
    if span < _FAST_SECONDS * len(times):
        return silent >= _SLOW_SECONDS * len(times)
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    bursts = 1 + sum(gap >= _TOGETHER_SECONDS for gap in gaps)
    return bursts * _EVENTS_A_BURST <= len(times) and span / len(times) >= _SLOW_SECONDS


def _times(value: object) -> tuple[float, ...]:
    """Return times that never go back; nothing where they do."""
    if not isinstance(value, list):
        return ()
    times = tuple(_seconds(one) for one in value)
    return times if all(a <= b for a, b in zip(times, times[1:], strict=False)) else ()


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if math.isfinite(value) and 0 <= value < _MOST else 0.0


def _count(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and isinstance(value, int) and 0 <= value < _MOST else None


def _failure(value: object, key: str) -> Failure | None:
    if not isinstance(value, dict):
        return None
    status = _count(value.get("status")) or 0
    said = clean(blanked(str(value.get("said") or ""), key))[:400]
    return Failure(clean(str(value.get("kind") or "broken"))[:40], status, said)
