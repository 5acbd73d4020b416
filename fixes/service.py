"""A systemd unit that runs or not, by `systemctl start` and `stop`."""

import re

from gpudoctor.fixes.mechanism import Mechanism, Seen, Values, unread
from gpudoctor.model import Service, Unknown
from gpudoctor.shell import quote

_NAME = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@:.\\-]*")
_RUNNING = {"starting", "running", "degraded"}
# Other units that a start or a stop changes as well, whose state an undo would not put back.
_STOPS = ("RequiredBy", "BoundBy", "ConsistsOf", "PropagatesStopTo")
_CONFLICTS = "Conflicts"
_AT_SHUTDOWN = {"shutdown.target", "umount.target", "reboot.target", "halt.target"}


class ServiceMechanism(Mechanism[Service]):
    """One item, named by the unit: `active` or `inactive`; a failed unit is inactive.

    `systemctl` returns once a start or stop has ended, so nothing waits here: a unit that still
    reads `activating` then is one that systemd starts again and again, which is no success. What
    was failed before reads inactive before and after; its mark of failure is gone. Units that a
    start pulls in (Requires, Wants) stay as they are.
    """

    def reads(self, change: Service) -> dict[str, str]:
        """Return the read text, and those of systemd, of the unit's file and of its ties."""
        unit = quote(change.unit)
        ties = " ".join(f"-p {name}" for name in (*_STOPS, _CONFLICTS))
        return {
            change.unit: f"systemctl is-active {unit} | sed 's/^failed$/inactive/'",
            "systemd": "systemctl is-system-running || :",
            "file": f"systemctl show -p LoadState {unit}",
            "ties": f"systemctl show {ties} {unit} | tr '\\n' ';'",
        }

    def refuse(self, change: Service, now: Seen) -> str:
        """Return why the unit cannot be started or stopped, or could not be put back exactly."""
        if not _NAME.fullmatch(change.unit):
            return f"{change.unit!r} is no name of a unit"
        if now["systemd"] not in _RUNNING:
            return f"no systemd runs there that could {_verb(change)} {change.unit}"
        if sentence := unread(now):
            return sentence
        told = {name: value for name, value in now.items() if not isinstance(value, Unknown)}
        return _refuse_file(change, told) or _refuse_ties(change, told)

    def wanted(self, change: Service, before: Values) -> dict[str, str]:
        """Return the state."""
        return {change.unit: "active" if change.active else "inactive"}

    def write(self, change: Service, item: str, before: Values) -> str:
        """Return the command that starts or stops the unit."""
        return f"systemctl {_verb(change)} {quote(change.unit)}"

    def undo(self, change: Service, item: str, before: Values) -> str:
        """Return the command that gives the unit its captured state back."""
        return f"systemctl {'start' if before[item] == 'active' else 'stop'} {quote(change.unit)}"


def _verb(change: Service) -> str:
    return "start" if change.active else "stop"


def _refuse_file(change: Service, now: Values) -> str:
    """Return what is wrong with the unit's file or its state."""
    loaded, state = now["file"].partition("=")[2], now[change.unit]
    if loaded == "not-found":
        return f"{change.unit} is not installed there"
    if state == ("active" if change.active else "inactive"):
        return ""
    if loaded == "masked":
        return f"{change.unit} is masked there: somebody wants that nothing starts it"
    if loaded != "loaded":
        return f"systemd cannot load {change.unit} there ({loaded})"
    return "" if state in {"active", "inactive"} else f"{change.unit} is just {state} there"


def _refuse_ties(change: Service, now: Values) -> str:
    """Return which other units would start or stop with it, or an empty string."""
    if now[change.unit] == ("active" if change.active else "inactive"):
        return ""
    ties = dict(line.partition("=")[::2] for line in now["ties"].split(";"))
    if change.active:
        others = set(ties.get(_CONFLICTS, "").split()) - _AT_SHUTDOWN
        return f"starting {change.unit} would stop {_named(others)}" if others else ""
    others = {unit for name in _STOPS for unit in ties.get(name, "").split()}
    return f"stopping {change.unit} would stop {_named(others)} too" if others else ""


def _named(units: set[str]) -> str:
    return ", ".join(sorted(units))
