"""Whether an engine still writes what it wrote: a faster one that talks rubbish is no gain."""

import zlib
from collections.abc import Sequence

_LEAST = 40
# Text repeated over and over packs to almost nothing; text at random hardly packs at all.
_PACKED_LOW, _PACKED_HIGH = 0.12, 0.95
_LEAST_WORDLIKE = 0.7
_LEAST_TEXTS, _FEW = 4, 0.2


def rubbish(text: str) -> bool:
    """Return whether a text is no language: mostly no words, one thing over and over, or noise."""
    if len(text) < _LEAST:
        return False  # too short to tell
    wordlike = sum(c.isalnum() or c.isspace() or c in ".,;:!?'\"-()*#`" for c in text)
    if wordlike < _LEAST_WORDLIKE * len(text):
        return True
    raw = text.encode()
    packed = len(zlib.compress(raw, 9)) / len(raw)
    return not _PACKED_LOW < packed < _PACKED_HIGH


def spoiled(before: Sequence[str], after: Sequence[str]) -> bool:
    """Return whether nearly all texts were language before, and nearly none is after.

    An engine that always wrote what is no language (random weights) is no concern of ours.
    """
    was, now = _rubbish_share(before), _rubbish_share(after)
    return was is not None and now is not None and was <= _FEW and now >= 1 - _FEW


def _rubbish_share(texts: Sequence[str]) -> float | None:
    told = [text for text in texts if len(text) >= _LEAST]
    return sum(map(rubbish, told)) / len(told) if len(told) >= _LEAST_TEXTS else None
