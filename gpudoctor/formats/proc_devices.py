"""/proc/devices: which major number each character driver has today."""


def parse_char_majors(text: str) -> dict[str, frozenset[int]]:
    """Return the majors of each character device name. Raises ValueError without that section."""
    _, heading, rest = text.partition("Character devices:")
    if not heading:
        raise ValueError("no `Character devices:` section")
    found: dict[str, frozenset[int]] = {}
    for line in rest.partition("Block devices:")[0].splitlines():
        words = line.split(None, 1)
        if len(words) == 2 and words[0].isdigit():
            name = words[1].strip()
            found[name] = found.get(name, frozenset()) | {int(words[0])}
    return found
