"""Output of the bulk jobs: `head -v` over many files, `ls -ldn` over many entries."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate

from gpudoctor.model import Reason, Unknown

_HEADER = re.compile(rb"(?:\A|\n)==> (/[^\n]*) <==\n")
_COMPLAINT = re.compile(
    r"^(?:\S*/)?(?:head|ls): (?:cannot open '(?P<a>[^']+)' for reading|error reading '(?P<b>[^']+)'"
    r"|cannot access '(?P<c>[^']+)'|cannot read symbolic link '(?P<f>[^']+)'"
    r"|'?(?P<d>/[^:']+)'?): (?P<why>.*)$"
)
_LISTING_PATH = re.compile(r"(?:^| )(/.*?)(?: -> .*)?$")


def parse_files(output: bytes, complaints: str) -> dict[str, bytes | Unknown]:
    """Return the content, or why there is none, of each file in the output of `head -v`.

    A header that comes twice is a forgery by a file's content: both are refused (parse-failed).
    """
    found: dict[str, bytes | Unknown] = {}
    marks = list(_HEADER.finditer(output))
    ends = [mark.start() for mark in marks[1:]] + [len(output)]
    for mark, end in zip(marks, ends, strict=False):
        path = mark.group(1).decode("utf-8", "backslashreplace")
        data = output[mark.end() : end]
        forged = path in found
        found[path] = Unknown(Reason.PARSE_FAILED, f"{path}: header seen twice") if forged else data
    for path, problem in _complaints(complaints):
        if not found.get(path):
            found[path] = problem
    return found


def parse_listing(output: bytes, complaints: str) -> dict[str, bytes | Unknown]:
    """Return the `ls -ldn` line, or why there is none, of each entry."""
    found: dict[str, bytes | Unknown] = {}
    for line in output.split(b"\n"):
        match = _LISTING_PATH.search(line.decode("utf-8", "backslashreplace"))
        if match:
            found[match.group(1)] = line
    for path, problem in _complaints(complaints):
        found.setdefault(path, problem)
    return found


def entry_key(path: str) -> str:
    """Return the name under which `parse_both` tells the `ls -ldn` line of a path."""
    return f"ls {path}"


def parse_both(output: bytes, complaints: str) -> dict[str, bytes | Unknown]:
    """Return files, and by `entry_key` entries, where `ls -ldn` ran before `head -v` in one job."""
    listed = b"" if output.startswith(b"==> ") else output.partition(b"\n==> ")[0]
    entries = parse_listing(listed, complaints)
    return parse_files(output, complaints) | {entry_key(p): entries[p] for p in entries}


def _complaints(stderr: str) -> Iterable[tuple[str, Unknown]]:
    for line in stderr.splitlines():
        match = _COMPLAINT.match(line)
        if match is None:
            continue
        path = next(filter(None, match.group("a", "b", "c", "f", "d")))
        yield path, Unknown(_reason(match.group("why")), f"{path}: {match.group('why')}")


def _reason(why: str) -> Reason:
    if "ermission" in why or "not permitted" in why:
        return Reason.NO_PERMISSION
    return Reason.NOT_PRESENT


def select(
    answers: Mapping[str, bytes | Unknown], patterns: Iterable[str]
) -> dict[str, bytes | Unknown]:
    """Return the answers whose path matches one of the shell patterns (`*` stops at a slash)."""
    exact = [p for p in patterns if not re.search(r"[*?\[]", p)]
    globs = [_glob_regex(p) for p in patterns if re.search(r"[*?\[]", p)]
    chosen = {path: answers[path] for path in exact if path in answers}
    for path, answer in answers.items():
        if any(regex.fullmatch(path) for regex in globs):
            chosen[path] = answer
    return chosen


def _glob_regex(pattern: str) -> "re.Pattern[str]":
    parts = [translate(part)[len("(?s:") : -len(r")\Z")] for part in pattern.split("/")]
    return re.compile("/".join(part.replace(".*", "[^/]*") for part in parts))
