"""Kernel parameters under /proc/sys, by `sysctl -w`; coupled ones as pairs."""

from gpudoctor.fixes.drop_ins import sysctl_file
from gpudoctor.fixes.mechanism import Mechanism, Seen, Values, unread
from gpudoctor.model import OwnFile, Reason, Sysctl, Unknown
from gpudoctor.shell import quote

# Writing one of a pair zeroes the other (kernel.org Documentation/admin-guide/sysctl/vm.rst).
_PAIRS = {
    "vm.dirty_bytes": "vm.dirty_ratio",
    "vm.dirty_background_bytes": "vm.dirty_background_ratio",
}
_PARTNERS = _PAIRS | {ratio: number for number, ratio in _PAIRS.items()}
# What a process uses of vm.max_map_count now, at most; /dev/null counts 0 where none can be read.
_MOST_MAPS = (
    "wc -l /dev/null /proc/[0-9]*/maps 2>/dev/null | grep -v total | sort -n | tail -n 1 | "
    r"sed 's/^ *\([0-9]*\) .*/\1/'"
)
_MEMINFO = r"sed -n 's/^{name}: *\([0-9]*\) kB$/\1/p' /proc/meminfo"
_PROMISED, _LIMIT = _MEMINFO.format(name="Committed_AS"), _MEMINFO.format(name="CommitLimit")


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

    def guard(self, change: Sysctl, item: str, before: Values) -> str:
        """Return the text that holds an undo back while what is in use exceeds the old limit."""
        old = before[item]
        if change.key == "vm.max_map_count":
            why = f"a process has more than {old} memory mappings now"
            return f'[ "$({_MOST_MAPS})" -le {quote(old)} ] || echo {quote(why)}'
        if change.key == "vm.overcommit_memory" and old == "2":
            why = "more memory is promised now than strict accounting allows"
            return f'[ "$({_PROMISED})" -le "$({_LIMIT})" ] || echo {quote(why)}'
        return ""

    def persist(self, change: Sysctl, before: Values) -> OwnFile | None:
        """Return the file of its own in /etc/sysctl.d that sets the parameter at every boot."""
        return sysctl_file(change)


def _path(key: str) -> str:
    return f"/proc/sys/{key.replace('.', '/')}"


def _set(key: str, value: str) -> str:
    return f"sysctl -w {quote(f'{key}={value}')}"
