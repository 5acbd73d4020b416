"""Kernel parameters under /proc/sys, by `sysctl -w`."""

from collections.abc import Mapping

from gpudoctor.fixes.reading import printed
from gpudoctor.model import Reason, Sysctl, Unknown
from gpudoctor.shell import quote


class SysctlMechanism:
    """One parameter, one item, named by its key."""

    def reads(self, change: Sysctl) -> dict[str, str]:
        """Return the read text: the kernel's own file, since `sysctl` may not be installed."""
        return {change.key: f"cat {quote(_path(change.key))}"}

    def seen(
        self, change: Sysctl, files: Mapping[str, bytes | Unknown]
    ) -> dict[str, str | Unknown]:
        """Return the parameter's value as the audit read it."""
        return {change.key: printed(files, _path(change.key))}

    def refuse(self, change: Sysctl, now: Mapping[str, str | Unknown]) -> str:
        """Return why the parameter cannot be set: not there, or not to be read."""
        value = now[change.key]
        if not isinstance(value, Unknown):
            return ""
        if value.reason is Reason.NOT_PRESENT:
            return f"the kernel there has no {change.key}"
        return f"{change.key} cannot be read there ({value})"

    def wanted(self, change: Sysctl, before: Mapping[str, str]) -> dict[str, str]:
        """Return the wanted value, whatever it was before."""
        return {change.key: change.value}

    def write(self, change: Sysctl, item: str, wanted: str) -> str:
        """Return the command that sets the parameter."""
        return _set(item, wanted)

    def undo(self, change: Sysctl, item: str, before: str) -> str:
        """Return the command that sets the parameter to the captured value."""
        return _set(item, before)


def _path(key: str) -> str:
    return f"/proc/sys/{key.replace('.', '/')}"


def _set(key: str, value: str) -> str:
    return f"sysctl -w {quote(f'{key}={value}')}"
