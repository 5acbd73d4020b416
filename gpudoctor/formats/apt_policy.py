"""`apt-cache policy PACKAGE…`: what is installed and what the package lists offer."""

import re
from dataclasses import dataclass

_PACKAGE = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.+-]*):$")
_FIELD = re.compile(r"^  (?P<field>Installed|Candidate): (?P<value>\S+)$")
_ORIGIN = re.compile(r"^ {8,}-?\d+ (?P<origin>\S.*)$")


@dataclass(frozen=True, slots=True)
class Policy:
    """One package; versions are "" for `(none)`. `offered`: some repository has it, not only dpkg's
    own status file."""

    name: str
    installed: str
    candidate: str
    offered: bool


def parse_policy(text: str) -> dict[str, Policy]:
    """Return the policy of each package, by name."""
    found: dict[str, Policy] = {}
    name, fields, offered = "", {"Installed": "", "Candidate": ""}, False
    for line in [*text.splitlines(), "end:"]:
        package = _PACKAGE.match(line)
        field = _FIELD.match(line)
        origin = _ORIGIN.match(line)
        if package:
            if name:
                found[name] = Policy(name, fields["Installed"], fields["Candidate"], offered)
            name, fields, offered = package["name"], {"Installed": "", "Candidate": ""}, False
        elif field:
            fields[field["field"]] = "" if field["value"] == "(none)" else field["value"]
        elif origin and not origin["origin"].endswith("/dpkg/status"):
            offered = True
    return found
