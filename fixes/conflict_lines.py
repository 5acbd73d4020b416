"""Lines of a host's configuration as one read text, and which files of a .d folder are in force."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.shell import quote

# Highest first: a file of the same name in an earlier one masks those after it (sysctl.d(5)).
_BASES = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
# The filter that puts lines on one; no setting has a backquote in it.
ON_ONE = r"tr '`\n\t' ' ` '"
_LINE = re.compile(r"(/[^:]*):(.*)")


@dataclass(frozen=True, slots=True)
class Line:
    """One line that was found, without the blanks around it, and the file that it is in."""

    path: str
    text: str

    @property
    def file(self) -> str:
        """Return the file's name without its folder."""
        return self.path.rpartition("/")[2]


def lines_with(patterns: Sequence[str], *files: str) -> str:
    """Return the text that prints, on one line, the lines of these files (globs) that match."""
    return f"grep -HsE {quote('|'.join(patterns))} {' '.join(files)} | {ON_ONE}"


def parsed(told: str) -> list[Line]:
    """Return the lines that `lines_with` printed, less comments."""
    found = (_LINE.fullmatch(one) for one in told.split("`"))
    lines = [Line(match[1], match[2].strip()) for match in found if match]
    return [line for line in lines if not line.text.startswith(("#", ";"))]


def names_of(*files: str) -> str:
    """Return the text that prints the paths that these globs match; no path has two slashes."""
    return f"printf '%s//' {' '.join(files)}"


def paths(told: str) -> list[str]:
    """Return the paths that `names_of` printed; a glob that matched nothing stands for itself."""
    return [path for path in told.split("//") if path and "*" not in path]


def drop_ins(folder: str) -> tuple[str, ...]:
    """Return the globs of a folder such as sysctl.d wherever it is looked for."""
    return tuple(f"{base}/{folder}/*.conf" for base in _BASES)


def in_force(told: Iterable[str]) -> list[str]:
    """Return the drop-ins that none of the same name masks, in the order they are read."""
    chosen: dict[str, str] = {}
    for path in sorted(told, key=_rank):
        chosen.setdefault(path.rpartition("/")[2], path)
    return [chosen[name] for name in sorted(chosen)]


def by_file(lines: Iterable[Line]) -> Mapping[str, list[Line]]:
    """Return the lines of each file, in their order."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.path, []).append(line)
    return found


def _rank(path: str) -> int:
    return next((n for n, base in enumerate(_BASES) if path.startswith(f"{base}/")), len(_BASES))


def same(one: str, other: str) -> bool:
    """Return whether two values are the same but for blanks and quotes."""
    return one.strip("\"'").split() == other.strip("\"'").split()
