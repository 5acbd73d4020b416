"""Whether an engine still writes what it wrote: a faster one that talks rubbish is no gain."""

import zlib
from collections.abc import Sequence

_LEAST = 40
# Text repeated over and over packs to almost nothing; text at random hardly packs at all.
_PACKED_LOW, _PACKED_HIGH = 0.12, 0.95
_LEAST_WORDLIKE = 0.7


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
    """Return whether most texts were language before, and most are none after."""
    return not _mostly_rubbish(before) and _mostly_rubbish(after)


def _mostly_rubbish(texts: Sequence[str]) -> bool:
    told = [text for text in texts if len(text) >= _LEAST]
    return bool(told) and sum(map(rubbish, told)) * 2 > len(told)
