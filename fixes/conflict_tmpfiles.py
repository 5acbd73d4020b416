"""What writes the same kernel file as our line in tmpfiles.d, as systemd-tmpfiles applies them.

Of lines for one path the first counts, in the order of the files' names; a glob that matches the
path is a line of its own, and is written after those that come before it.
"""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from gpudoctor.fixes.conflict_lines import (
    Line,
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

_FILES, _LINES = "the files of tmpfiles.d", "what tmpfiles.d writes below /sys"
_WRITES = re.compile(r"w[!+=~^$-]*")


def reads(wanted: Wanted) -> dict[str, str]:
    """Return the texts that tell which files there are, and the lines that write below /sys."""
    globs = drop_ins("tmpfiles.d")
    return {_FILES: names_of(*globs), _LINES: lines_with(["/sys/"], *globs)}


def conflict(wanted: Wanted, now: Mapping[str, str]) -> str:
    """Return which line wins over ours with another value, or nothing."""
    files = in_force([*paths(now[_FILES]), wanted.file])
    told = by_file(parsed(now[_LINES]))
    for path, value in wanted.values.items():
        lines = [w for file in files for w in _writes(wanted, told, file, path)]
        file, pattern, last = _applied(lines)[-1]
        if file != wanted.file and not same(last, value):
            return _sentence(file, pattern, path, last)
    return ""


def _sentence(file: str, pattern: str, path: str, value: str) -> str:
    if pattern == path:
        return f"{file} is read before it, and its line sets {path} to {value}: the first counts"
    return f"{file} is read after it, and sets {pattern} to {value}"


def _writes(
    wanted: Wanted, told: Mapping[str, list[Line]], file: str, path: str
) -> Iterator[tuple[str, str, str]]:
    """Yield file, pattern and value of each line of a file that writes the path."""
    if file == wanted.file:
        yield file, path, wanted.values[path]
        return
    for line in told.get(file, ()):
        words = line.text.split(None, 6)
        if len(words) == 7 and _WRITES.fullmatch(words[0]):
            pattern = words[1].strip("\"'")
            if fnmatchcase(path, pattern):
                yield file, pattern, words[6]


def _applied(lines: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Return the lines that are applied, in order: of each pattern the first."""
    first: dict[str, tuple[str, str, str]] = {}
    for line in lines:
        first.setdefault(line[1], line)
    return list(first.values())
