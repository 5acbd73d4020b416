"""The sh text that a simulated machine understands: lists of simple commands, and nothing more.

Quoting, globs, `$(…)`, pipes, `;`, `&&`, `||`, `!` and redirections are read; loops, conditions,
functions and variables are refused, so that nothing is ever half understood.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

_OPERATORS = ("&&", "||", ";;", ">>", "|", ";", "\n", "(", ")", "&", "<", ">")
_KEYWORDS = frozenset("if then else elif fi for while until do done case esac function { }".split())
_ENDS = frozenset({";", "\n", "&&", "||", "|"})


class NotSimulated(Exception):
    """Text that goes beyond what is simulated; its message names the part."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word: literal text, whose globs count if not `quoted`, or a command to run."""

    text: str
    quoted: bool = False
    command: bool = False


Word = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Redirect:
    """`fd` goes to (`>`, `>>`) or comes from (`<`) the word, or joins another fd (`>&`)."""

    fd: int
    operator: str
    word: Word


@dataclass(slots=True)
class Command:
    """One simple command."""

    words: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True)
class Pipeline:
    """Commands joined by `|`; `when` is what the last exit code must be: any, zero, nonzero."""

    when: str
    negated: bool = False
    commands: list[Command] = field(default_factory=list)


def parse(text: str) -> list[Pipeline]:
    """Parse a list of pipelines. Raises NotSimulated."""
    found = [Pipeline("any", commands=[Command()])]
    tokens = _tokens(text)
    for token in tokens:
        command = found[-1].commands[-1]
        if isinstance(token, Redirect):
            command.redirects.append(token)
        elif isinstance(token, tuple):
            _add_word(found[-1], command, token)
        elif token == "|":
            found[-1].commands.append(Command())
        elif token in _ENDS:
            when = {"&&": "zero", "||": "nonzero"}.get(token, "any")
            found.append(Pipeline(when, commands=[Command()]))
        else:
            raise NotSimulated(f"the operator {token!r}")
    return [p for p in found if any(c.words or c.redirects for c in p.commands)]


def _add_word(pipeline: Pipeline, command: Command, word: Word) -> None:
    bare = word[0].text if len(word) == 1 and not word[0].quoted else ""
    if not command.words and bare in _KEYWORDS:
        raise NotSimulated(f"the keyword {bare!r}")
    if not command.words and bare == "!":
        pipeline.negated = True
    elif not command.words and "=" in bare and bare.partition("=")[0].isidentifier():
        raise NotSimulated(f"the assignment {bare!r}")
    else:
        command.words.append(word)


def _tokens(text: str) -> Iterator[str | Word | Redirect]:
    at = 0
    while at < len(text):
        if text[at] in " \t":
            at += 1
            continue
        if text[at] == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            continue
        redirect = _redirect(text, at)
        if redirect is not None:
            token, at = redirect
            yield token
            continue
        operator = next((op for op in _OPERATORS if text.startswith(op, at)), None)
        if operator is not None:
            yield operator
            at += len(operator)
            continue
        word, at = _word(text, at)
        yield word


def _redirect(text: str, at: int) -> tuple[Redirect, int] | None:
    """Return a redirection that starts here, and where it ends."""
    start = at
    while at < len(text) and text[at].isdigit():
        at += 1
    if at == len(text) or text[at] not in "<>":
        return None
    operator = ">>" if text.startswith(">>", at) else text[at]
    fd = int(text[start:at] or ("0" if operator == "<" else "1"))
    at += len(operator)
    if text.startswith("&", at):
        operator, at = f"{operator}&", at + 1
    while at < len(text) and text[at] in " \t":
        at += 1
    word, at = _word(text, at)
    return Redirect(fd, operator, word), at


def _word(text: str, at: int) -> tuple[Word, int]:
    parts: list[Part] = []
    while at < len(text) and text[at] not in " \t\n;&|<>()":
        char = text[at]
        if char == "'":
            end = _end(text, at, "'")
            parts.append(Part(text[at + 1 : end], quoted=True))
            at = end + 1
        elif char == '"':
            inner, at = _double(text, at + 1)
            parts += inner
        elif char == "\\":
            parts.append(Part(text[at + 1 : at + 2], quoted=True))
            at += 2
        elif char == "$":
            part, at = _dollar(text, at, quoted=False)
            parts.append(part)
        elif char == "`":
            raise NotSimulated("the backquote")
        else:
            parts.append(Part(char))
            at += 1
    return _joined(parts), at


def _joined(parts: list[Part]) -> Word:
    """Join literal pieces of a kind, so that a plain word is one part."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last and not part.command and not last.command and last.quoted == part.quoted:
            joined[-1] = Part(last.text + part.text, part.quoted)
        else:
            joined.append(part)
    return tuple(joined)


def _double(text: str, at: int) -> tuple[list[Part], int]:
    """Return the pieces of a double-quoted string, and where it ends."""
    parts = [Part("", quoted=True)]
    while at < len(text):
        char = text[at]
        if char == '"':
            return parts, at + 1
        if char == "\\" and text[at + 1 : at + 2] in ("$", "`", '"', "\\", "\n"):
            parts.append(Part(text[at + 1], quoted=True))
            at += 2
        elif char == "$":
            part, at = _dollar(text, at, quoted=True)
            parts.append(part)
        elif char == "`":
            raise NotSimulated("the backquote")
        else:
            parts.append(Part(char, quoted=True))
            at += 1
    raise NotSimulated("a quote without its end")


def _dollar(text: str, at: int, quoted: bool) -> tuple[Part, int]:
    """Return `$(…)`, or a dollar that stands for itself; variables are refused."""
    following = text[at + 1 : at + 2]
    if following != "(":
        if following.isalnum() or following in ("_", "{", "?", "$", "!", "@", "*", "#"):
            raise NotSimulated(f"the variable ${following}")
        return Part("$", quoted=quoted), at + 1
    depth, end = 1, at + 2
    while depth:
        if end >= len(text):
            raise NotSimulated("a command substitution without its end")
        if text[end] == "'":
            end = _end(text, end, "'")
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    return Part(text[at + 2 : end - 1], quoted, command=True), end


def _end(text: str, at: int, quote: str) -> int:
    end = text.find(quote, at + 1)
    if end < 0:
        raise NotSimulated("a quote without its end")
    return end
