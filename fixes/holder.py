"""A CPU latency request, held by a process in a transient unit of systemd's."""

from gpudoctor.fixes.drop_ins import latency_unit
from gpudoctor.fixes.mechanism import Mechanism, Seen, Values
from gpudoctor.model import LatencyHold, OwnFile, Reason, Unknown
from gpudoctor.shell import quote

_DEVICE = "/dev/cpu_dma_latency"
_UNIT = "gpudoctor-latency.service"
# systemd enables no unit of the transient one's name, so what holds it from boot on has its own.
_AT_BOOT = "gpudoctor-latency-boot.service"
_AGGREGATE = f"od -An -td4 -N4 {_DEVICE}"
_RUNNING = {"starting", "running", "degraded"}


class LatencyHoldMechanism(Mechanism[LatencyHold]):
    """One item: `held` while a unit of ours runs and all requests allow no more than asked for.

    A request lasts while the file it was written to is open (pm_qos_interface.rst), so stopping
    the unit takes it back exactly, whatever others ask for. The unit is of type forking: its start
    ends once the request is written, and fails where that fails. systemd starts the process, so
    that it outlives the transaction and inherits nothing from it.
    """

    def reads(self, change: LatencyHold) -> dict[str, str]:
        """Return the read text, and those of the aggregate in µs, of systemd and of the unit."""
        return {
            _DEVICE: f"systemctl -q is-active {_UNIT} {_AT_BOOT} && "
            f"echo $(test $({_AGGREGATE}) -le {change.microseconds} && "
            "echo held || echo held in vain) || echo not held",
            "aggregate": _AGGREGATE,
            "systemd": "systemctl is-system-running || :",
            "unit": f"systemctl show -p Description {_UNIT} || :",
        }

    def refuse(self, change: LatencyHold, now: Seen) -> str:
        """Return why no request can be held: no such file, no systemd, or the name is taken."""
        aggregate = now["aggregate"]
        if isinstance(aggregate, Unknown):
            if aggregate.reason is Reason.NOT_PRESENT:
                return f"the kernel there has no {_DEVICE}"
            return f"{_DEVICE} cannot be read there ({aggregate})"
        if not aggregate.strip().isdecimal():
            return f"{_DEVICE} tells no latency there: {aggregate!r}"
        if int(aggregate) <= change.microseconds:
            return ""
        if now["systemd"] not in _RUNNING:
            return "no systemd runs there that would keep the process which holds the request"
        unit = now["unit"]
        if unit != f"Description={_UNIT}":
            said = unit.partition("=")[2] if isinstance(unit, str) else str(unit)
            known = f"there already is a unit {_UNIT} ({said})"
            return f"{known}: start that one, or stop and remove it first"
        return ""

    def wanted(self, change: LatencyHold, before: Values) -> dict[str, str]:
        """Return `held`, or what it is where somebody's request is that low already."""
        if int(before["aggregate"]) <= change.microseconds:
            return {_DEVICE: before[_DEVICE]}
        return {_DEVICE: "held"}

    def write(self, change: LatencyHold, item: str, before: Values) -> str:
        """Return the command that starts the unit; the kernel takes µs as ten digits of hex."""
        microseconds = change.microseconds
        held = f"exec 3>{_DEVICE} && printf 0x{microseconds:08x} >&3 && {{ sleep infinity & }}"
        told = f"gpudoctor holds the CPU latency at {microseconds} us"
        return (
            f"systemd-run --quiet --collect --unit={_UNIT.removesuffix('.service')} "
            f"--description={quote(told)} --property=Type=forking /bin/sh -ec {quote(held)}"
        )

    def undo(self, change: LatencyHold, item: str, before: Values) -> str:
        """Return the command that stops the unit, and so closes the file."""
        return f"systemctl stop {_UNIT}"

    def persist(self, change: LatencyHold, before: Values) -> OwnFile:
        """Return the unit that holds the request from boot on."""
        return latency_unit(change, _AT_BOOT)
