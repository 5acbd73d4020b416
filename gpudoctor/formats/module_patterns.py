"""Lists of module names in a quantised model's configuration: whole names, globs, expressions.

A list is text from the host: no expression of it is ever run, only the simple ones translated.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_MOST_GLOBS, _LONGEST, _MOST_CHOICES = 200, 300, 64
_LAYER = re.compile(r"(model\.layers\.\d+)\.")
_TOKEN = re.compile(r"\.\*\??|\.\+|\\\.|\\d\+?|\[0-9\]\+?|[\w/-]+|\.")
_CHOICE = re.compile(r"\((?:\?:)?([\w|.-]+)\)")
_NESTED = ("model.language_model.", "language_model.model.", "language_model.")


@dataclass(frozen=True, slots=True)
class Patterns:
    """Names of modules: `plain` ones name a module or what lies in it, globs hold `*`.

    A glob is its pieces between the stars. `layers` are those that name one layer, by its name.
    """

    plain: frozenset[str] = frozenset()
    globs: tuple[tuple[str, ...], ...] = ()
    layers: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)

    def match(self, name: str) -> bool:
        """Return whether a module, or one it lies in, is named."""
        words = name.split(".")
        ends = range(1, len(words) + 1)
        if self.plain and any(".".join(words[a:b]) in self.plain for b in ends for a in range(b)):
            return True
        above = [".".join(words[:b]) for b in ends]
        globs = (*self.globs, *self.layers.get(".".join(words[:3]), ()))
        return any(name.startswith(glob[0]) and _any(glob, above) for glob in globs)


def parse_patterns(words: Iterable[object]) -> Patterns:
    """Read a list of names. Raises ValueError for what is not understood."""
    plain: set[str] = set()
    globs: list[tuple[str, ...]] = []
    layers: dict[str, tuple[tuple[str, ...], ...]] = {}
    for word in words:
        if not isinstance(word, str) or len(word) > _LONGEST:
            raise ValueError("a name that is no text, or too long")
        for one in _globs(word[3:]) if word.startswith("re:") else [_bare(word)]:
            pieces, layer = tuple(one.split("*")), _LAYER.match(one)
            if len(pieces) == 1:
                plain.add(one)
            elif layer:
                layers[layer[1]] = (*layers.get(layer[1], ()), pieces)
            else:
                globs.append(pieces)
        if len(globs) > _MOST_GLOBS or max(map(len, layers.values()), default=0) > _MOST_GLOBS:
            raise ValueError(f"more than {_MOST_GLOBS} patterns")
    return Patterns(frozenset(plain), tuple(globs), layers)


def _bare(word: str) -> str:
    """Return a name without the prefix of a language model inside another, and a last dot."""
    nested = next((n for n in _NESTED if word.startswith(n)), None)
    return (word if nested is None else "model." + word[len(nested) :]).removesuffix(".")


def _globs(expression: str) -> Iterator[str]:
    """Yield globs that say what a simple regular expression says. Raises ValueError for others."""
    choices, made = [expression], 0
    while choices:
        text = choices.pop()
        if match := _CHOICE.search(text):
            before, after = text[: match.start()], text[match.end() :]
            choices += [before + one + after for one in match[1].split("|")]
            made += 1
            if made > _MOST_CHOICES:
                raise ValueError(f"the expression {expression!r} has too many choices")
        else:
            yield _bare(_translated(text))


def _translated(text: str) -> str:
    ended = text.endswith("$")
    body, made, at = text.removeprefix("^").removesuffix("$"), "", 0
    while at < len(body):
        token = _TOKEN.match(body, at)
        if token is None:
            raise ValueError(f"the expression {text!r} is not understood")
        said, at = token[0], token.end()
        made += {"\\.": ".", ".": "."}.get(said) or ("*" if said[0] in ".\\[" else said)
    return re.sub(r"\*+", "*", made if ended else made + "*")


def _any(glob: tuple[str, ...], names: Iterable[str]) -> bool:
    return any(_match(glob, name) for name in names)


def _match(pieces: tuple[str, ...], name: str) -> bool:
    """Return whether the pieces of a glob between its stars follow each other in a name."""
    first, last = pieces[0], pieces[-1]
    if len(name) < len(first) + len(last) or not name.startswith(first):
        return False
    if not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    for piece in pieces[1:-1]:
        found = name.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True
