"""The kernel command line: quoting as the kernel reads it, order and repeated keys kept."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cmdline:
    """Parameters in order, as (key, value); value is None for a bare word."""

    items: tuple[tuple[str, str | None], ...]

    def last(self, key: str) -> str | None:
        """Return the value that wins ("" for a bare word), or None when the key is absent."""
        values = self.all(key)
        return values[-1] if values else None

    def all(self, key: str) -> tuple[str, ...]:
        """Return every value of a key in order; `-` and `_` are the same to the kernel."""
        wanted = key.replace("-", "_")
        return tuple(value or "" for name, value in self.items if name.replace("-", "_") == wanted)

    def options(self, key: str) -> tuple[str, ...]:
        """Return the comma-separated words of every value of a key, such as pci=a,b."""
        return tuple(word for value in self.all(key) for word in value.split(",") if word)


def parse_cmdline(text: str) -> Cmdline:
    """Parse /proc/cmdline; what follows a lone `--` goes to init and is left out."""
    items: list[tuple[str, str | None]] = []
    for word in _words(text):
        if word == "--":
            break
        key, equals, value = word.partition("=")
        items.append((key.strip('"'), value.strip('"') if equals else None))
    return Cmdline(tuple(items))


def _words(text: str) -> list[str]:
    """Split at white space outside of double quotes (lib/cmdline.c next_arg)."""
    words, word, quoted = [], "", False
    for char in text + " ":
        if char == '"':
            quoted = not quoted
        if char.isspace() and not quoted:
            if word:
                words.append(word)
            word = ""
        else:
            word += char
    return [*words, word.strip()] if word.strip() else words
