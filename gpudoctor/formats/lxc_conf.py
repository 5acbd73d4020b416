"""LXC configuration: Proxmox's `key: value` and plain LXC's `key = value`, live section only."""

import re
from dataclasses import dataclass

_LINE = re.compile(r"\s*(?P<key>[A-Za-z][\w.-]*(?:\[\d+\])?)\s*(?P<sep>[:=])(?P<value>.*)")
_DEVICE = re.compile(
    r"(?P<type>[abc])(?:\s+(?P<major>\d+|\*):(?P<minor>\d+|\*)(?:\s+(?P<access>[rwm]+))?)?"
)
_DEV_KEY = re.compile(r"dev(?:\d+|\[\d+\])")
_RULE_KEY = re.compile(r"lxc\.cgroup(?P<two>2?)\.devices\.(?P<action>allow|deny)")


@dataclass(frozen=True, slots=True)
class DeviceRule:
    """One device cgroup rule; `major` and `minor` are None for any. `version` 1 or 2."""

    version: int
    allow: bool
    kind: str
    major: int | None
    minor: int | None

    def covers(self, major: int, minor: int) -> bool:
        """Return whether a character device falls under this rule."""
        if self.kind == "b":
            return False
        return self.major in (None, major) and self.minor in (None, minor)


@dataclass(frozen=True, slots=True)
class LxcConf:
    """The live configuration in order of lines; `refused` holds lines that could not be read."""

    items: tuple[tuple[str, str], ...]
    refused: tuple[str, ...]

    def all(self, key: str) -> tuple[str, ...]:
        """Return every value of a key, in order."""
        return tuple(value for name, value in self.items if name == key)

    def last(self, key: str) -> str | None:
        """Return the value that wins, or None."""
        values = self.all(key)
        return values[-1] if values else None

    @property
    def hostname(self) -> str:
        """Return the container's own name ("" where none is set)."""
        for key in ("hostname", "lxc.uts.name", "lxc.utsname"):
            if value := self.last(key):
                return value
        return ""

    @property
    def features(self) -> dict[str, str]:
        """Return Proxmox's features, such as nesting=1."""
        pairs = (pair.partition("=") for pair in (self.last("features") or "").split(","))
        return {key.strip(): value.strip() for key, _, value in pairs if key.strip()}

    @property
    def nesting(self) -> bool:
        """Return whether nesting is on, by Proxmox's feature or plain LXC's include."""
        included = any("nesting.conf" in value for value in self.all("lxc.include"))
        return self.features.get("nesting") == "1" or included

    @property
    def rules(self) -> tuple[DeviceRule, ...]:
        """Return the device cgroup rules that could be read, in order."""
        made = (_rule(key, value) for key, value in self.items)
        return tuple(rule for rule in made if rule is not None)

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the device paths of Proxmox's dev[n] entries."""
        values = [value for key, value in self.items if _DEV_KEY.fullmatch(key)]
        parts = [value.split(",")[0].strip() for value in values]
        return tuple(part.removeprefix("path=") for part in parts)

    def allows(self, path: str, major: int, minor: int, version: int = 2) -> bool:
        """Return whether a host of that cgroup version lets the container open a device."""
        if path in self.devices:
            return True
        verdict = False
        for rule in self.rules:
            if rule.version == version and rule.covers(major, minor):
                verdict = rule.allow
        return verdict


def parse_lxc_conf(text: str) -> LxcConf:
    """Parse one configuration; the first line that starts with `[` (a snapshot) ends it."""
    items: list[tuple[str, str]] = []
    refused: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("["):
            break
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None or not _separated(match):
            refused.append(stripped)
        else:
            items.append((match["key"], _value(match["value"])))
    return LxcConf(tuple(items), tuple(refused))


def _separated(match: "re.Match[str]") -> bool:
    """Refuse `lxc.key=value<br>` and the like: pasted text that LXC itself does not take."""
    return "<" not in match["value"] or match["key"].startswith("net")


def _value(raw: str) -> str:
    """Return a value without an inline comment and without the quotes around it."""
    value = re.split(r"\s#", raw.strip(), maxsplit=1)[0].strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


def _rule(key: str, value: str) -> DeviceRule | None:
    name = _RULE_KEY.fullmatch(key)
    match = _DEVICE.fullmatch(value)
    if name is None or match is None:
        return None
    major, minor = (
        int(match[part]) if (match[part] or "*") != "*" else None for part in ("major", "minor")
    )
    if match["major"] is None and match["type"] != "a":
        return None
    return DeviceRule(
        2 if name["two"] else 1, name["action"] == "allow", match["type"], major, minor
    )
