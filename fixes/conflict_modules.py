"""What keeps systemd-modules-load from loading a module: a blacklist, or an `install` command.

Unlike modprobe with a module's own name, it obeys a blacklist.
"""

import re
from collections.abc import Mapping

from gpudoctor.fixes.conflict_lines import drop_ins, in_force, lines_with, names_of, parsed, paths
from gpudoctor.fixes.conflict_wanted import Wanted

_FILES, _CMDLINE = "the files of modprobe.d", "the kernel command line"
_BLACKLISTS = ("modprobe.blacklist=", "module_blacklist=")


def reads(wanted: Wanted) -> dict[str, str]:
    """Return the texts that tell what modprobe.d and the kernel command line say of the module."""
    globs = drop_ins("modprobe.d")
    names = [_kernel_name(name).replace("_", "[-_]") for name in wanted.modules]
    return {
        _FILES: names_of(*globs),
        _lines(wanted): lines_with(names, *globs),
        _CMDLINE: "cat /proc/cmdline",
    }


def conflict(wanted: Wanted, now: Mapping[str, str]) -> str:
    """Return which line forbids or replaces the loading of a module, or nothing."""
    names = {_kernel_name(name) for name in wanted.modules}
    files = set(in_force(paths(now[_FILES])))
    for line in parsed(now[_lines(wanted)]):
        if line.path in files and _forbids(line.text, names):
            return f"{line.path} says `{line.text}`, which loading at boot obeys"
    for word in now[_CMDLINE].split():
        listed = next((word.removeprefix(x) for x in _BLACKLISTS if word.startswith(x)), "")
        if names & {_kernel_name(name) for name in listed.split(",")}:
            return f"the kernel command line says {word}, which loading at boot obeys"
    return ""


def _forbids(text: str, names: set[str]) -> bool:
    words = text.split(None, 2)
    if len(words) < 2 or _kernel_name(words[1]) not in names:
        return False
    if words[0] == "install":  # one that loads the module itself is no hindrance
        return not re.search(r"(insmod|modprobe)\s.*(-i\b|--ignore-install)", words[-1])
    return words[0] == "blacklist"


def _kernel_name(name: str) -> str:
    return name.replace("-", "_")


def _lines(wanted: Wanted) -> str:
    return f"what modprobe.d says of {', '.join(wanted.modules)}"
