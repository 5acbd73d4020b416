"""What sets a kernel parameter after our file in sysctl.d, as systemd-sysctl reads them.

A line for a glob never wins over one that names the key, and the kernel's own `sysctl.` arguments
are set before init. Of two equal assignments the first one's place counts, which matters where the
kernel zeroes one key of a pair.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.fixes.conflict_lines import (
    by_file,
    drop_ins,
    in_force,
    lines_with,
    names_of,
    parsed,
    paths,
    same,
)
from gpudoctor.fixes.conflict_wanted import Wanted

_PAIRS = (
    ("/proc/sys/vm/dirty_bytes", "/proc/sys/vm/dirty_ratio"),
    ("/proc/sys/vm/dirty_background_bytes", "/proc/sys/vm/dirty_background_ratio"),
)
_CONF = "/etc/sysctl.conf"
# Read after all files (sysctl.d(5), CREDENTIALS).
_CREDENTIAL = "/run/credentials/@system/sysctl.extra"
_FILES, _INIT = "the files of sysctl.d", "whether systemd runs"


@dataclass(frozen=True, slots=True)
class _Set:
    """One assignment; without a value it forbids all assignments before it."""

    path: str
    value: str | None
    file: str


def partner(path: str) -> str:
    """Return the parameter that the kernel zeroes when this one is set, or nothing."""
    pair = next((pair for pair in _PAIRS if path in pair), ())
    return next((other for other in pair if other != path), "")


def parameter(key: str) -> str:
    """Return the file of a parameter; where a slash is a key's first mark, dots are plain."""
    first = next((mark for mark in key if mark in "./"), ".")
    swapped = key if first == "/" else key.translate(str.maketrans("./", "/."))
    return f"/proc/sys/{swapped}"


def reads(wanted: Wanted) -> dict[str, str]:
    """Return the texts that tell which files there are, and what they say of these parameters."""
    globs = drop_ins("sysctl.d")
    return {
        _FILES: names_of(*globs),
        _lines(wanted): lines_with(_patterns(wanted), *globs, _CREDENTIAL, _CONF),
        _INIT: "[ -d /run/systemd/system ] && echo systemd || echo other",
    }


def conflict(wanted: Wanted, now: Mapping[str, str]) -> str:
    """Return which file sets another value after ours, or nothing."""
    sets = list(_all(wanted, now))
    for path, value in wanted.values.items():
        if sentence := _conflict(path, value, sets, wanted.file):
            return sentence
    return ""


def conf_after_all(wanted: Wanted, now: Mapping[str, str]) -> str:
    """Return what /etc/sysctl.conf sets otherwise, for who reads it after every other file."""
    sets = [_Set(p, v, wanted.file) for p, v in wanted.values.items()]
    sets += _of(_CONF, now[_lines(wanted)])
    found = (_conflict(p, v, sets, wanted.file) for p, v in wanted.values.items())
    return next((sentence for sentence in found if sentence), "")


def _all(wanted: Wanted, now: Mapping[str, str]) -> Iterator[_Set]:
    """Yield every assignment in the order it is read, with ours in its place."""
    told = now[_lines(wanted)]
    for file in in_force([*paths(now[_FILES]), wanted.file]):
        if file == wanted.file:
            yield from (_Set(path, value, file) for path, value in wanted.values.items())
        else:
            yield from _of(file, told)
    yield from _of(_CREDENTIAL, told)
    if now[_INIT] != "systemd":  # procps and its like read it last
        yield from _of(_CONF, told)


def _of(file: str, told: str) -> Iterator[_Set]:
    for line in by_file(parsed(told)).get(file, ()):
        key, sets, value = line.text.partition("=")
        name = key.strip()
        if sets:
            yield _Set(parameter(name.removeprefix("-")), value.strip(), file)
        elif not sets and name.startswith("-"):
            yield _Set(parameter(name[1:]), None, file)


def _conflict(path: str, value: str, sets: Sequence[_Set], ours: str) -> str:
    """Return what is in the way of one parameter, or nothing."""
    last = _written(path, sets)
    if last is None or last.file == ours or (last.path == path and same(last.value or "", value)):
        return ""
    key = _key(last.path)
    if last.value is None:
        return f"{last.file} comes after it at boot and excludes {key} (-{key})"
    zeroes = f", which zeroes {_key(path)}" if last.path != path else ""
    return f"{last.file} comes after it at boot and sets {key} = {last.value}{zeroes}"


def _written(path: str, sets: Sequence[_Set]) -> _Set | None:
    """Return the assignment that decides: the last of the key, or one that zeroes it."""
    order: dict[str, _Set] = {}
    for one in sets:
        known = order.get(one.path)
        if known is not None and _equal(known, one):
            continue
        order.pop(one.path, None)
        order[one.path] = one
    mine = [one for one in order.values() if one.path == path or _zeroes(one, path)]
    return mine[-1] if mine else None


def _equal(one: _Set, other: _Set) -> bool:
    return one.value is not None and other.value is not None and same(one.value, other.value)


def _zeroes(one: _Set, path: str) -> bool:
    return one.path == partner(path) and (one.value or "0") != "0"


def _key(path: str) -> str:
    return path.removeprefix("/proc/sys/").replace("/", ".")


def _patterns(wanted: Wanted) -> list[str]:
    every = {*wanted.values, *(partner(path) for path in wanted.values)}
    return sorted(path.rpartition("/")[2] for path in every if path)


def _lines(wanted: Wanted) -> str:
    return f"what sysctl.d says of {', '.join(_patterns(wanted))}"
