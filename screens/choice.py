"""The selection as data: entries `check`, or `check:2` for its second way; pure functions."""

from collections.abc import Mapping

Chosen = tuple[str, ...]


def check_of(entry: str) -> str:
    """Return the check that an entry names."""
    return entry.partition(":")[0]


def way_of(chosen: Chosen, check: str) -> int | None:
    """Return which way of a check is chosen: from 1, 0 for the best that can be done, or None."""
    entry = next((entry for entry in chosen if check_of(entry) == check), None)
    if entry is None:
        return None
    number = entry.partition(":")[2]
    return int(number) if number.isdecimal() else 0


def toggled(chosen: Chosen, check: str) -> Chosen:
    """Return the selection with a check's best way added, or the check taken out."""
    if way_of(chosen, check) is None:
        return (*chosen, check)
    return tuple(entry for entry in chosen if check_of(entry) != check)


def turned(chosen: Chosen, check: str, way: int, ways: int) -> Chosen:
    """Return the selection with the way after `way` (from 1); after the last, the best again."""
    entry = f"{check}:{way + 1}" if way < ways else check
    if way_of(chosen, check) is None:
        return (*chosen, entry)
    return tuple(entry if check_of(old) == check else old for old in chosen)


def still_there(chosen: Chosen, ways: Mapping[str, int]) -> Chosen:
    """Return the entries whose check still has so many ways."""
    return tuple(
        entry
        for entry in chosen
        if max(way_of((entry,), check_of(entry)) or 0, 1) <= ways.get(check_of(entry), 0)
    )
