"""Which services start at boot: those enabled and not masked, and rc.local where it can be run."""

from collections.abc import Mapping

from gpudoctor.fixes.conflict_lines import ON_ONE, names_of, parsed, paths

SYSTEM = (
    "/etc/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
RC_LOCAL = ("/etc/rc.local", "/etc/rc.d/rc.local")
_STARTED, _EMPTY, _LOCAL = "the units started at boot", "units without a line", "mode of rc.local"


def reads() -> dict[str, str]:
    """Return the texts that tell it: the links that enable, and units that are empty."""
    links = [f"{base}/*.{kind}/*.service" for base in SYSTEM for kind in ("wants", "requires")]
    return {
        _STARTED: names_of(*links, "/etc/rc?.d/S*"),
        # an empty file, or a link to /dev/null, masks the unit
        _EMPTY: f"grep -HsEc '' /etc/systemd/system/*.service | {ON_ONE}",
        _LOCAL: f"stat -Lc %A {RC_LOCAL[0]} 2>/dev/null || :",
    }


def started(now: Mapping[str, str]) -> set[str]:
    """Return the names of the services that start at boot."""
    masked = {line.file for line in parsed(now[_EMPTY]) if line.text == "0"}
    names = (path.rpartition("/")[2] for path in paths(now[_STARTED]))
    units = {name if name.endswith(".service") else f"{name[3:]}.service" for name in names}
    units -= masked
    templates = {f"{name.partition('@')[0]}@.service" for name in units if "@" in name}
    return units | templates - masked | ({"rc-local.service"} if "x" in now[_LOCAL] else set())
