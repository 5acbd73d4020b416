"""Kernel parameters under /proc/sys, by `sysctl -w`; coupled ones as pairs."""

from gpudoctor.fixes.drop_ins import sysctl_file
from gpudoctor.fixes.mechanism import Mechanism, Seen, Values, unread
from gpudoctor.model import OwnFile, Reason, Sysctl, Unknown
from gpudoctor.shell import quote

# Writing one of a pair zeroes the other (kernel.org Documentation/admin-guide/sysctl/vm.rst).
_PAIRS = (
    ("vm.dirty_bytes", "vm.dirty_ratio"),
    ("vm.dirty_background_bytes", "vm.dirty_background_ratio"),
)
_PAIR_OF = {key: pair for pair in _PAIRS for key in pair}
# What a process uses of vm.max_map_count now, at most; /dev/null counts 0 where none can be read.
_MOST_MAPS = (
    "wc -l /dev/null /proc/[0-9]*/maps 2>/dev/null | grep -v total | sort -n | tail -n 1 | "
    r"sed 's/^ *\([0-9]*\) .*/\1/'"
)
_MEMINFO = r"sed -n 's/^{name}: *\([0-9]*\) kB$/\1/p' /proc/meminfo"
_PROMISED, _LIMIT = _MEMINFO.format(name="Committed_AS"), _MEMINFO.format(name="CommitLimit")


class SysctlMechanism(Mechanism[Sysctl]):
    """One parameter is one item, named by its key; a coupled pair is one, named by both keys."""

    def reads(self, change: Sysctl) -> dict[str, str]:
        """Return the read text: the kernel's own file, since `sysctl` may not be installed."""
        pair = _PAIR_OF.get(change.key)
        if pair is None:
            return {change.key: f"cat {quote(_path(change.key))}"}
        return {_name(change): f"echo $(cat {' '.join(quote(_path(key)) for key in pair)})"}

    def refuse(self, change: Sysctl, now: Seen) -> str:
        """Return why the parameter cannot be set: not there, or not to be read."""
        value = now[_name(change)]
        if isinstance(value, Unknown) and value.reason is Reason.NOT_PRESENT:
            return f"the kernel there has no {change.key}"
        return unread(now)

    def wanted(self, change: Sysctl, before: Values) -> dict[str, str]:
        """Return the wanted value, whatever it was before; its partner will read 0."""
        pair = _PAIR_OF.get(change.key, (change.key,))
        values = (change.value if key == change.key else "0" for key in pair)
        return {_name(change): " ".join(values)}

    def write(self, change: Sysctl, item: str, before: Values) -> str:
        """Return the command that sets the parameter."""
        return _set(change.key, change.value)

    def undo(self, change: Sysctl, item: str, before: Values) -> str:
        """Return the command that sets the captured value; of a pair, the one that was not 0."""
        pair = _PAIR_OF.get(change.key)
        if pair is None:
            return _set(change.key, before[item])
        number, ratio = before[item].split()
        return _set(pair[1], ratio) if number == "0" else _set(pair[0], number)

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


def _name(change: Sysctl) -> str:
    return ", ".join(_PAIR_OF.get(change.key, (change.key,)))


def _path(key: str) -> str:
    return f"/proc/sys/{key.replace('.', '/')}"


def _set(key: str, value: str) -> str:
    return f"sysctl -w {quote(f'{key}={value}')}"
