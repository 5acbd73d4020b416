"""Many differences that are alike, told as one: 256 policies, 8 GPUs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpudoctor.formats.cpulist import format_cpulist
from gpudoctor.model.diff import Difference, Moved, Name

_NUMBERED = re.compile(r"(\D*?)(\d{1,6})")
_MARK = re.compile(r"GPU-[0-9a-f-]+|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|\d+")
_SHOWN, _PAIRS, _WHATS = 8, 3, 3


def grouped(found: Iterable[Difference]) -> list[Difference]:
    """Return the differences with those of like things and the same values put together."""
    groups: dict[tuple[object, ...], list[Difference]] = {}
    for one in found:
        kind = _MARK.sub("#", one.name.of)
        key = (one.moved, one.sort, kind, one.name.what, one.before, one.after, one.by)
        groups.setdefault(key, []).append(one)
    return [_together(alike) for alike in groups.values()]


def unread_grouped(found: Iterable[Difference]) -> list[Difference]:
    """Return values that one side could not read, put together by thing, side and reason."""
    groups: dict[tuple[object, ...], list[Difference]] = {}
    for one in found:
        key = (_MARK.sub("#", one.name.of), one.by, bool(one.before))
        groups.setdefault(key, []).append(one)
    return [_unread_together(alike) for alike in groups.values()]


def _together(alike: Sequence[Difference]) -> Difference:
    if len(alike) == 1:
        return alike[0]
    items = tuple(sorted(dict.fromkeys(one.name.of for one in alike), key=_order))
    name = Name(_label(items), alike[0].name.what)
    return replace(alike[0], name=name, items=items)


def _unread_together(alike: Sequence[Difference]) -> Difference:
    if len(alike) == 1:
        return alike[0]
    items = tuple(sorted(dict.fromkeys(one.name.of for one in alike), key=_order))
    whats = list(dict.fromkeys(one.name.what for one in alike))
    more = f" and {len(whats) - _WHATS} more" if len(whats) > _WHATS else ""
    what = ", ".join(whats[:_WHATS]) + more
    read = f"{len(alike)} values"
    first = alike[0]
    before, after = (read, "") if first.before else ("", read)
    name = Name(_label(items), what)
    items = items if len(items) > 1 else ()
    return Difference(Moved.NOT_READ, first.sort, name, before, after, first.by, items)


def _order(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]


def _label(items: Sequence[str]) -> str:
    """Return what several things are called together: `policy0-255`, or the first of a list."""
    matches = [_NUMBERED.fullmatch(item) for item in items]
    prefixes = {match[1] for match in matches if match}
    if all(matches) and len(prefixes) == 1:
        return prefixes.pop() + format_cpulist(int(match[2]) for match in matches if match)
    first, *rest = items
    head = first.partition(" ")[0] + " "
    alike = all(item.startswith(head) and " to " not in item for item in items)
    names = [first, *(item.removeprefix(head) if alike else item for item in rest)]
    most = _SHOWN if alike else _PAIRS
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
