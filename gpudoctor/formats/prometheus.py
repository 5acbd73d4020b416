"""Prometheus text format: the samples of a /metrics page."""

import math
import re
from collections.abc import Iterator

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{[^\n]*\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?")


def samples(text: str) -> Iterator[tuple[str, float]]:
    """Yield (name, value) of each sample; comments and values that are no number are skipped."""
    for line in text.split("\n"):
        match = _SAMPLE.fullmatch(line.strip())
        if match is None:
            continue
        try:
            value = float(match.group(2))
        except ValueError:
            continue
        if math.isfinite(value):
            yield match.group(1), value


def totals(text: str) -> dict[str, float]:
    """Return the sum over all label sets of each metric."""
    found: dict[str, float] = {}
    for name, value in samples(text):
        found[name] = found.get(name, 0.0) + value
    return found
