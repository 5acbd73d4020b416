"""The rule table of a diff (tables/compared.toml): what each answer of a host means."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from gpudoctor.model.diff import Sort

HEADER = "header"
_TOKEN = re.compile(r"\*\*|\*|[^*]+")
_LONGEST = 4096  # no path is longer; a glob with several stars takes the square of it
_DIGITS = re.compile(r"\d+")
_SORTS = {str(sort) for sort in Sort}


@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind of answer is compared: as one value of a sort, or by a parser, or not at all.

    `glob` is the path that it is for, `of` and `what` are templates of the value's name, in which
    `{0}` is what the first `*` stood for.
    """

    glob: str
    sort: Sort | None = None
    parse: str = ""
    form: str = "plain"
    of: str = ""
    what: str = ""

    @property
    def left_out(self) -> bool:
        """Return whether nothing of it is compared: volatile, or told by the header."""
        return not self.parse and self.sort in {None, Sort.VOLATILE}


class Rules:
    """The rules of one kind of probe (files, listings), found by path."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Take the rules; the first that matches counts."""
        self._rules = [(re.compile(_regex(rule.glob), re.DOTALL), rule) for rule in rules]
        self._seen: dict[str, int] = {}

    @property
    def all(self) -> tuple[Rule, ...]:
        """Return all rules, in order."""
        return tuple(rule for _, rule in self._rules)

    def find(self, path: str) -> tuple[Rule, tuple[str, ...]] | None:
        """Return a path's rule and what its globs stood for, or None; a probe's pattern is one."""
        if len(path) > _LONGEST:
            return None
        shape = _DIGITS.sub("#", path)
        first = self._seen.get(shape)
        if first is not None:  # of thousands of alike paths only the first is looked for
            regex, rule = self._rules[first]
            if match := regex.fullmatch(path):
                return rule, match.groups()
        for at, (regex, rule) in enumerate(self._rules):
            if match := regex.fullmatch(path):
                self._seen[shape] = at
                return rule, match.groups()
        return None


@dataclass(frozen=True, slots=True)
class Table:
    """All rules: of files, of listings, and of tools by probe key."""

    files: Rules
    listings: Rules
    tools: Mapping[str, Rule]


@cache
def table() -> Table:
    """Return the rule table. Raises ValueError for a sort that there is not."""
    text = files("gpudoctor.tables").joinpath("compared.toml").read_text(encoding="utf-8")
    raw = tomllib.loads(text)
    tools = {key: _tool(key, word) for key, word in raw["tools"].items()}
    return Table(Rules(_rules(raw["files"])), Rules(_rules(raw["listings"])), tools)


def _rules(entries: Sequence[Mapping[str, Any]]) -> list[Rule]:
    return [_rule(entry, glob) for entry in entries for glob in entry["paths"]]


def _rule(entry: Mapping[str, Any], glob: str) -> Rule:
    sort = entry.get("sort", "")
    if "parse" in entry:
        return Rule(glob, parse=entry["parse"])
    last = f"{{{glob.count('*') - 1}}}"
    named = entry.get("what", glob.rsplit("/", 1)[-1].replace("*", last))
    kind = None if sort == HEADER else Sort(sort)
    form, of = entry.get("form", "plain"), entry.get("of", "")
    return Rule(glob, kind, "", form, of, named)


def _tool(key: str, word: str) -> Rule:
    return Rule(key, Sort(word)) if word in _SORTS else Rule(key, parse=word)


def _regex(glob: str) -> str:
    marks = {"*": "([^/]*)", "**": "(.*)"}
    return "".join(marks.get(token) or re.escape(token) for token in _TOKEN.findall(glob))
