"""Kernel parameters under /proc/sys, by `sysctl -w`; coupled ones as pairs."""

from gpudoctor.fixes.mechanism import Mechanism, Seen, Values, unread
from gpudoctor.model import Reason, Sysctl, Unknown
from gpudoctor.shell import quote

# Writing one of a pair zeroes the other (kernel.org Documentation/admin-guide/sysctl/vm.rst).
_PAIRS = {
    "vm.dirty_bytes": "vm.dirty_ratio",
    "vm.dirty_background_bytes": "vm.dirty_background_ratio",
}
_PARTNERS = _PAIRS | {ratio: number for number, ratio in _PAIRS.items()}


class SysctlMechanism(Mechanism[Sysctl]):
    """One parameter, or one coupled pair, is one item; it is named by the key that is set."""

    def reads(self, change: Sysctl) -> dict[str, str]:
        """Return the read text: the kernel's own file, since `sysctl` may not be installed."""
        path = quote(_path(change.key))
        partner = _PARTNERS.get(change.key)
        if partner is None:
            return {change.key: f"cat {path}"}
        return {change.key: f"echo $(cat {path} {quote(_path(partner))})"}

    def refuse(self, change: Sysctl, now: Seen) -> str:
        """Return why the parameter cannot be set: not there, or not to be read."""
        value = now[change.key]
        if isinstance(value, Unknown) and value.reason is Reason.NOT_PRESENT:
            return f"the kernel there has no {change.key}"
        return unread(now)

    def wanted(self, change: Sysctl, before: Values) -> dict[str, str]:
        """Return the wanted value, whatever it was before; a partner will read 0."""
        return {change.key: f"{change.value} 0" if change.key in _PARTNERS else change.value}

    def write(self, change: Sysctl, item: str, before: Values) -> str:
        """Return the command that sets the parameter."""
        return _set(change.key, change.value)

    def undo(self, change: Sysctl, item: str, before: Values) -> str:
        """Return the command that sets the captured value; of a pair, the one that was not 0."""
        partner = _PARTNERS.get(change.key)
        if partner is None:
            return _set(change.key, before[item])
        own, other = before[item].split()
        return _set(partner, other) if own == "0" else _set(change.key, own)


def _path(key: str) -> str:
    return f"/proc/sys/{key.replace('.', '/')}"


def _set(key: str, value: str) -> str:
    return f"sysctl -w {quote(f'{key}={value}')}"
