"""Kernel modules: loaded by modprobe, and taken out again with just what it loaded beside them."""

from gpudoctor.fixes.drop_ins import module_file
from gpudoctor.fixes.mechanism import Mechanism, Seen, Values
from gpudoctor.model import Module, OwnFile, Reason, Unknown
from gpudoctor.shell import quote

# `modprobe -D` names files (`insmod /lib/modules/…/a-b.ko.xz OPTIONS`); the kernel says a_b.
_NAMES = r"sed -n 's|^insmod [^ ]*/\([^ /]*\)\.ko.*|\1|p' | tr - _"
_NEEDS = "what modprobe would load"


class ModuleMechanism(Mechanism[Module]):
    """One module is one item: `absent` or `loaded`, then which modules it needs are loaded.

    So a write that loads half of them (nvidia_peermem without the RDMA stack's symbols: `Invalid
    argument`) reads as neither before nor wanted, and its undo removes what was not there before.
    That is `rmmod` by name: `modprobe -r` would also take an idle module that somebody else loaded.
    """

    def reads(self, change: Module) -> dict[str, str]:
        """Return the read text of the module, and of what modprobe would load for it."""
        name = quote(_kernel_name(change.name))
        needs = f"modprobe -D {name} | {_NAMES} | grep -vxF {name}"
        return {
            _item(change): f"echo $([ -d /sys/module/{name} ] && echo loaded || echo absent) "
            f"$(sed 's/ .*//' /proc/modules | grep -xF \"$({needs})\" | sort)",
            _NEEDS: f"modprobe -D {name} >/dev/null && modprobe -D {name} | tr '\\n' ';'",
        }

    def refuse(self, change: Module, now: Seen) -> str:
        """Return why the module cannot be loaded: none such there, or modprobe would do more."""
        state, needs = now[_item(change)], now[_NEEDS]
        if isinstance(state, Unknown):
            return f"whether {change.name} is loaded cannot be read there ({state})"
        if state.startswith("loaded"):
            return ""
        if isinstance(needs, Unknown):
            if needs.reason is Reason.NOT_IN_RECORDING:
                return f"{_NEEDS} for {change.name}: {needs.detail}"
            return f"modprobe cannot load {change.name} there ({needs.detail})"
        if odd := [line for line in _lines(needs) if line.split()[0] not in {"insmod", "builtin"}]:
            return f"for {change.name} modprobe would run a command of its own: {odd[0]}"
        if _kernel_name(change.name) not in _loads(needs):
            return f"{change.name} is built into the kernel there"
        return ""

    def wanted(self, change: Module, before: Values) -> dict[str, str]:
        """Return that the module and all that it needs are loaded."""
        name = _kernel_name(change.name)
        if before[_item(change)].startswith("loaded"):
            return {_item(change): before[_item(change)]}
        others = sorted(set(_loads(before[_NEEDS])) - {name})
        return {_item(change): " ".join(["loaded", *others])}

    def write(self, change: Module, item: str, before: Values) -> str:
        """Return the command that loads it."""
        return f"modprobe {quote(_kernel_name(change.name))}"

    def undo(self, change: Module, item: str, before: Values) -> str:
        """Return the command that removes what was not loaded before, the last one first."""
        there = set(before[item].split())
        ours = [name for name in _loads(before.get(_NEEDS, "")) if name not in there]
        return f"rmmod {' '.join(quote(name) for name in reversed(ours))}"

    def guard(self, change: Module, item: str, before: Values) -> str:
        """Return the text that prints who uses the module now."""
        name = _kernel_name(change.name)
        users, place = quote(f"/sys/module/{name}/refcnt"), quote(f"/sys/module/{name}")
        return (
            f'[ ! -d {place} ] || [ "$(cat {users})" = 0 ] || '
            f"echo {quote(name)} is in use, refcnt: $(cat {users})"
        )

    def persist(self, change: Module, before: Values) -> OwnFile | None:
        """Return the file in /etc/modules-load.d that loads the module at every boot."""
        return module_file(change)


def _item(change: Module) -> str:
    return f"module {_kernel_name(change.name)}"


def _kernel_name(name: str) -> str:
    return name.replace("-", "_")


def _lines(needs: str) -> list[str]:
    return [line.strip() for line in needs.split(";") if line.strip()]


def _loads(needs: str) -> list[str]:
    """Return the kernel's names of the modules that modprobe would load, in its order."""
    files = [line.split()[1] for line in _lines(needs) if line.startswith("insmod ")]
    names = [file.rpartition("/")[2].partition(".ko")[0] for file in files]
    return list(dict.fromkeys(_kernel_name(name) for name in names))
