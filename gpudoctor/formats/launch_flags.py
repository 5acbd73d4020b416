"""Command-line arguments of serving engines: `--flag=value`, `--flag value`; the last one wins."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_NUMBER = re.compile(r"-\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Flags:
    """Flags by name (no leading dashes, `-` between words), each with its last value.

    A flag without a value holds an empty string. `given` keeps every occurrence in order.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    positional: tuple[str, ...] = ()

    def get(self, *names: str) -> str | None:
        """Return the value of the first of these names that was given, else None."""
        return next((self.values[n] for n in names if n in self.values), None)

    def number(self, *names: str) -> int | None:
        """Return a flag's whole number, or None where absent or none."""
        text = self.get(*names)
        return int(text) if text is not None and re.fullmatch(r"-?\d{1,12}", text) else None

    def on(self, name: str) -> bool:
        """Return whether a switch is on: given, not undone by a later `--no-` form or `=false`."""
        value = self.values.get(name)
        return value is not None and value.lower() not in {"false", "0", "no", "off"}


def parse_flags(argv: Sequence[str]) -> Flags:
    """Parse arguments (without the program). `--no-x` removes `x`, `--x` removes `no-x`."""
    values: dict[str, str] = {}
    positional: list[str] = []
    index = 0
    while index < len(argv):
        word = argv[index]
        index += 1
        if not is_flag(word):
            positional.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and index < len(argv) and not is_flag(argv[index]):
            value = argv[index]
            index += 1
        _put(values, name.replace("_", "-"), value)
    return Flags(values, tuple(positional))


def is_flag(word: str) -> bool:
    """Return whether a word starts a flag; negative numbers and a lone dash do not."""
    return len(word) > 1 and word.startswith("-") and not _NUMBER.fullmatch(word)


def _put(values: dict[str, str], name: str, value: str) -> None:
    opposite = name.removeprefix("no-") if name.startswith("no-") else f"no-{name}"
    values.pop(opposite, None)
    values.pop(name, None)
    values[name] = value
