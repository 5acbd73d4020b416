"""Kernel files below /sys and /proc/irq, one item a file, written by `tee`."""

import re

from gpudoctor.fixes.drop_ins import sysfs_file
from gpudoctor.fixes.mechanism import GONE, Mechanism, Seen, Values
from gpudoctor.model import OwnFile, Reason, Sysfs, Unknown
from gpudoctor.shell import quote

_GOVERNOR = "scaling_governor"
_PREFERENCE = "energy_performance_preference"
# Files beside a file that list what may be written to it, by the file's name.
_LISTS = {
    _GOVERNOR: "scaling_available_governors",
    _PREFERENCE: "energy_performance_available_preferences",
    "current_clocksource": "available_clocksource",
}
_CHOSEN = r"sed -n 's/.*\[\([^]]*\)\].*/\1/p'"


class SysfsMechanism(Mechanism[Sysfs]):
    """Each path is an item, named by the path; it reads `gone` once the path is no longer there.

    With a file `beside`, an item whose value is not the wanted one reads `value beside`, so that an
    undo is checked for both; once it has the wanted value, what the kernel made of the file beside
    does not count. Where there is none, or it cannot be read, the value stands alone.
    """

    def reads(self, change: Sysfs) -> dict[str, str]:
        """Return the read text of each path, and of what is offered or in force beside it."""
        texts = {path: _read(change, path) for path in change.paths}
        for path in change.paths:
            texts |= {_about(name, path): text for name, text in _context(change, path).items()}
        return texts

    def refuse(self, change: Sysfs, now: Seen) -> str:
        """Return why the files cannot be changed: not there, not read, or the value not offered."""
        if all(_absent(now[path]) for path in change.paths):
            return f"the kernel there has no {change.paths[0]}"
        for path in change.paths:
            if sentence := _refuse_path(change, path, now):
                return sentence
        return ""

    def wanted(self, change: Sysfs, before: Values) -> dict[str, str]:
        """Return the value for every path that is there."""
        return {path: change.value for path in change.paths if path in before}

    def write(self, change: Sysfs, item: str, before: Values) -> str:
        """Return the command that writes the value; `tee` tells the errno, which dash hides."""
        return _put(change.value, item)

    def undo(self, change: Sysfs, item: str, before: Values) -> str:
        """Return the command that writes the captured value back, then the one beside it."""
        if not change.beside:
            return _put(before[item], item)
        own, _, other = before[item].partition(" ")
        back = _put(own, item)
        return f"{back} && {_put(other, _beside(item, change.beside))}" if other else back

    def tolerates(self, change: Sysfs) -> str:
        """Return the complaints that skip a file which kept its value."""
        return change.tolerates

    def persist(self, change: Sysfs, before: Values) -> OwnFile | None:
        """Return the drop-in or unit that writes the files at every boot, where one can."""
        return sysfs_file(change)


def _read(change: Sysfs, path: str) -> str:
    now = f"{_CHOSEN if change.choice else 'cat'} {quote(path)}"
    if change.beside:
        other = quote(_beside(path, change.beside))
        now = f"{now} | grep -xF {quote(change.value)} || echo $({now} && cat {other})"
    return f"! test -e {quote(path)} && echo {GONE} || {now}"


def _context(change: Sysfs, path: str) -> dict[str, str]:
    """Return the texts that tell whether a write can succeed, by what they tell."""
    name = path.rpartition("/")[2]
    texts = {"choices": f"cat {quote(path)}"} if change.choice else {}
    if name in _LISTS:
        texts["choices"] = f"cat {quote(_beside(path, _LISTS[name]))}"
    if name == _PREFERENCE:
        texts["governor"] = f"cat {quote(_beside(path, _GOVERNOR))}"
    return texts


def _refuse_path(change: Sysfs, path: str, now: Seen) -> str:
    value = now[path]
    if not path.startswith(("/sys/", "/proc/irq/")) or ".." in path.split("/"):
        return f"{path} is no setting of the kernel's"
    if _absent(value):
        return ""
    if isinstance(value, Unknown):
        return f"{path} cannot be read there ({value})"
    if not value:
        return f"{path} shows no value there that an undo could go back to"
    return "" if value == change.value else _refuse_value(change, path, now)


def _refuse_value(change: Sysfs, path: str, now: Seen) -> str:
    """Return why the kernel would not take the value for a path whose own can be read."""
    offered, governor = now.get(_about("choices", path)), now.get(_about("governor", path))
    if isinstance(offered, str) and change.value not in re.split(r"[\s\[\]]+", offered):
        return f"{path} does not offer {change.value} there, only {offered.strip()}"
    if path.endswith(f"/{_GOVERNOR}") and str(now[path]).partition(" ")[0] == "userspace":
        return f"{path} is userspace there: the speed that was set by hand would be lost"
    if governor == "performance":
        return f"{path} is busy there while the governor is performance, which implies a preference"
    return ""


def _absent(value: str | Unknown) -> bool:
    if isinstance(value, Unknown):
        return value.reason is Reason.NOT_PRESENT
    return value == GONE


def _about(what: str, path: str) -> str:
    return f"{what} of {path}"


def _beside(path: str, name: str) -> str:
    return f"{path.rpartition('/')[0]}/{name}"


def _put(value: str, path: str) -> str:
    plain = not value.startswith("-") and "\\" not in value
    said = f"echo {quote(value)}" if plain else f"printf '%s\\n' {quote(value)}"
    return f"{said} | tee {quote(path)}"
