"""GRUB: the menu of grub.cfg, grubenv, and the settings of /etc/default/grub."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_ENTRY = re.compile(r"(?P<kind>menuentry|submenu)\s+(?P<rest>.*)\{\s*")
_LINUX = re.compile(r"linux(?:16|efi)?\s+(?P<image>\S+)(?:\s+(?P<words>.*))?")
_INITRD = re.compile(r"initrd(?:16|efi)?\s+(?P<images>.*)")
_DEFAULT = re.compile(r"set\s+default=(?P<value>.*)")
_CORRECTION = re.compile(
    r"if \[ \"x\$default\" = '(?P<old>[^']*)' \]; then default='(?P<new>[^']*)'; fi;"
)
_VARIABLE = re.compile(r"[\"']?\$\{?(?P<name>\w+)\}?[\"']?")


@dataclass(slots=True)
class MenuEntry:
    """One entry or submenu: `lines` are its kernel command lines, one of them is booted."""

    title: str
    id: str = ""
    image: str = ""
    lines: list[str] = field(default_factory=list)
    initrds: list[str] = field(default_factory=list)
    inside: "list[MenuEntry] | None" = None


@dataclass(frozen=True, slots=True)
class Menu:
    """The menu of a grub.cfg; `defaults` are the values that it may give `default`, in order.

    `bls`: the entries come from /boot/loader/entries instead. `corrected` has the defaults that
    grub.cfg itself replaces: plain titles of entries that lie in a submenu.
    """

    entries: tuple[MenuEntry, ...]
    defaults: tuple[str, ...]
    bls: bool = False
    corrected: Mapping[str, str] = field(default_factory=dict)

    @property
    def takes_once(self) -> bool:
        """Return whether it boots the entry that `grub-reboot` names."""
        return any("next_entry" in value for value in self.defaults)


def parse_menu(text: str) -> Menu:
    """Parse grub.cfg, or its lines that matter, in their order."""
    top: list[MenuEntry] = []
    open_: list[MenuEntry | None] = []
    defaults, bls = [], False
    for line in (raw.strip() for raw in text.splitlines()):
        begins = _ENTRY.fullmatch(line)
        default = _DEFAULT.fullmatch(line)
        if begins:
            _add(top, open_, _entry(begins))
        elif line.startswith("function ") and line.endswith("{"):
            open_.append(None)
        elif line == "}" and open_:
            open_.pop()
        elif default:
            defaults.append(_unquoted(default["value"]))
        elif line == "blscfg":
            bls = True
        elif open_ and open_[-1] is not None:
            _fill(open_[-1], line)
    corrected = {m["old"]: m["new"] for m in _CORRECTION.finditer(text)}
    return Menu(tuple(top), tuple(defaults), bls, corrected)


def _add(top: list[MenuEntry], open_: list[MenuEntry | None], entry: MenuEntry) -> None:
    around = next((one for one in reversed(open_) if one is not None), None)
    place = top if around is None or around.inside is None else around.inside
    place.append(entry)
    open_.append(entry)


def _entry(begins: "re.Match[str]") -> MenuEntry:
    """Return the entry of a heading line. Raises ValueError for quotes that do not close."""
    words = shlex.split(begins["rest"])
    marks = ("$menuentry_id_option", "--id")
    after = (words[at + 1] for at, word in enumerate(words[:-1]) if word in marks)
    by_equals = (word[5:] for word in words if word.startswith("--id="))
    name = next(after, "") or next(by_equals, "")
    inside: list[MenuEntry] | None = [] if begins["kind"] == "submenu" else None
    return MenuEntry(words[0] if words else "", name, inside=inside)


def _fill(entry: MenuEntry, line: str) -> None:
    linux, initrd = _LINUX.fullmatch(line), _INITRD.fullmatch(line)
    if linux:
        entry.image = entry.image or linux["image"]
        entry.lines.append(linux["words"] or "")
    elif initrd:
        entry.initrds += initrd["images"].split()


def _unquoted(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] in "\"'" else value


def wanted_default(menu: Menu, env: Mapping[str, str]) -> tuple[str, str] | str:
    """Return what `default` will be and what decides it; a sentence where that does not show."""
    once = env.get("next_entry", "")
    if once and menu.takes_once:
        return once, f"next_entry in grubenv ({once}), for one boot"
    values = {value for value in menu.defaults if "next_entry" not in value}
    if len(values) > 1:
        return f"grub.cfg gives `default` several values: {', '.join(sorted(values))}"
    value = values.pop() if values else ""
    named = _VARIABLE.fullmatch(value)
    if named is None:
        return menu.corrected.get(value, value), f"default {value or '0'} in grub.cfg"
    kept = env.get(named["name"], "")
    return menu.corrected.get(
        kept, kept
    ), f"{named['name']} in grubenv ({kept or 'not set: the first entry'})"


def find_entry(entries: Sequence[MenuEntry], wanted: str) -> tuple[MenuEntry, bool] | None:
    """Return the entry that GRUB takes for a default, and whether it is the one that was named.

    As GRUB does, a name that is not in the menu leads to its first entry; None for an empty menu
    and for a submenu that is named without an entry in it.
    """
    if not entries:
        return None
    name, rest = _first_part(wanted)
    at = int(name) if name.isdecimal() else 0
    found = next((one for one in entries if name and name in (one.id, one.title)), None)
    if found is None and name.isdecimal() and at < len(entries):
        found = entries[at]
    named = found is not None or not name
    chosen = found or entries[0]
    if chosen.inside is None:
        return chosen, named
    inner = find_entry(chosen.inside, rest) if rest else None
    return (inner[0], named and inner[1]) if inner else None


def named_entries(entries: Sequence[MenuEntry]) -> Iterator[tuple[str, MenuEntry]]:
    """Yield every entry that boots, with the whole name that leads to it, in the menu's order."""
    for one in entries:
        name = (one.id or one.title).replace(">", ">>")
        if one.inside is None:
            yield name, one
        else:
            yield from ((f"{name}>{rest}", inner) for rest, inner in named_entries(one.inside))


def _first_part(wanted: str) -> tuple[str, str]:
    """Split a default at its first `>`; a doubled one is part of a title."""
    parts = re.split(r"(?<!>)>(?!>)", wanted, maxsplit=1)
    return parts[0].replace(">>", ">"), parts[1] if len(parts) > 1 else ""


def parse_grubenv(text: str) -> dict[str, str]:
    """Return the variables of a grubenv block."""
    rows = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, equals, value in rows if equals and key.strip()}


_PLAIN = re.compile(
    r"(?:export\s+)?(?P<key>GRUB_\w+)=(?P<value>'[^']*'|\"[^\"$`\\]*\"|[^\s\"'$`\\;&|]*)"
)
_SET = re.compile(r"\s*(?:export\s+)?(?P<key>GRUB_\w+)\+?=")


def parse_settings(texts: Sequence[str]) -> dict[str, str | None]:
    """Return GRUB's settings, later files winning; None for one that a shell would work out."""
    found: dict[str, str | None] = {}
    for line in (line for text in texts for line in text.splitlines()):
        named = _SET.match(line)
        plain = _PLAIN.fullmatch(re.sub(r"\s+#.*", "", line).strip())
        if named:
            found[named["key"]] = _unquoted(plain["value"]) if plain else None
    return found
