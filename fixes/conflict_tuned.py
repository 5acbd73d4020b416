"""What tuned's active profile sets otherwise, with the profiles that it includes.

By default tuned applies sysctl.d anew after its own parameters, and /etc/sysctl.conf last of all.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from gpudoctor.fixes import conflict_started, conflict_sysctl
from gpudoctor.fixes.conflict_lines import Line, by_file, lines_with, parsed, same
from gpudoctor.fixes.conflict_sysctl import parameter, partner
from gpudoctor.fixes.conflict_wanted import Form, Wanted

_ACTIVE = "tuned's active profile"
_MAIN = "/etc/tuned/tuned-main.conf"
# Highest first.
_FOLDERS = (
    "/etc/tuned/profiles",
    "/etc/tuned",
    "/usr/lib/tuned/profiles",
    "/usr/lib/tuned",
)
_CPU = "/sys/devices/system/cpu"
_THP = "/sys/kernel/mm/transparent_hugepage"
_PSTATE = f"{_CPU}/intel_pstate"
# The kernel files that an option stands for, beside those that [sysctl] and [sysfs] name.
_OPTIONS = {
    ("cpu", "governor"): f"{_CPU}/cpu*/scaling_governor",
    ("cpu", "energy_perf_bias"): f"{_CPU}/cpu*/power/energy_perf_bias",
    ("cpu", "energy_performance_preference"): f"{_CPU}/cpu*/energy_performance_preference",
    ("cpu", "boost"): f"{_CPU}/cpufreq/boost",
    ("cpu", "min_perf_pct"): f"{_PSTATE}/min_perf_pct",
    ("cpu", "max_perf_pct"): f"{_PSTATE}/max_perf_pct",
    ("cpu", "no_turbo"): f"{_PSTATE}/no_turbo",
    ("vm", "transparent_hugepages"): f"{_THP}/enabled",
    ("vm", "transparent_hugepage"): f"{_THP}/enabled",
    ("vm", "transparent_hugepage.defrag"): f"{_THP}/defrag",
    ("vm", "dirty_bytes"): "/proc/sys/vm/dirty_bytes",
    ("vm", "dirty_ratio"): "/proc/sys/vm/dirty_ratio",
    ("vm", "dirty_background_bytes"): "/proc/sys/vm/dirty_background_bytes",
    ("vm", "dirty_background_ratio"): "/proc/sys/vm/dirty_background_ratio",
}
_DEPTH = 16


def reads(wanted: Wanted) -> dict[str, str]:
    """Return the texts that tell the active profile, and what profiles say of such files."""
    globs = [f"{folder}/*/tuned.conf" for folder in _FOLDERS]
    return conflict_started.reads() | {
        _ACTIVE: "cat /etc/tuned/active_profile 2>/dev/null || :",
        _lines(wanted): lines_with(
            [r"^ *\[", "^ *(include|type)", "reapply_sysctl", *_words(wanted)], *globs, _MAIN
        ),
    }


def conflict(wanted: Wanted, now: Mapping[str, str]) -> str:
    """Return which option of the active profile sets another value than ours, or nothing."""
    told = by_file(parsed(now[_lines(wanted)]))
    runs = "tuned.service" in conflict_started.started(now)
    names = now[_ACTIVE].split() if runs else []
    own = _own(told)
    found = list(_options(told, names))
    reapplies = wanted.form is Form.SYSCTL and not same(own.get("reapply_sysctl", "1"), "0")
    for path, value in wanted.values.items():
        for section, option, other, file in found:
            if reapplies and section == "sysctl":
                continue
            if sentence := _conflict(path, value, section, option, other):
                return f"tuned's active profile {' '.join(names)} {sentence} ({file})"
    if reapplies and any(section == "sysctl" for section, *_ in found):
        if sentence := conflict_sysctl.conf_after_all(wanted, now):
            return f"{sentence}, since tuned reads that last"
    return ""


def _conflict(path: str, value: str, section: str, option: str, other: str) -> str:
    target = _target(section, option)
    if path != target and not fnmatchcase(_of_cpu(path), target):
        if not target or target != partner(path) or other == "0":
            return ""
        return f"sets {option} = {other}, which zeroes {path.rpartition('/')[2]}"
    return "" if _leaves(other, value) else f"sets {option} = {other}"


def _leaves(other: str, value: str) -> bool:
    """Return whether an option leaves our value: the first choice, or a bound that holds."""
    bound = re.fullmatch(r"([<>])\s*(\d+)", other.strip("\"'"))
    if bound and value.isdecimal():
        ours, limit = int(value), int(bound[2])
        return ours >= limit if bound[1] == ">" else ours <= limit
    return same(other.partition("|")[0], value)


def _target(section: str, option: str) -> str:
    if section == "sysctl":
        return parameter(option)
    return option if section == "sysfs" else _OPTIONS.get((section, option), "")


def _of_cpu(path: str) -> str:
    """Return a CPU's file under the name by which tuned's options are listed here."""
    path = re.sub(r"/cpufreq/policy(\d+)/", r"/cpu\1/", path)
    return re.sub(r"/(cpu\d+)/cpufreq/", r"/\1/", path)


def _options(
    told: Mapping[str, list[Line]], names: Sequence[str]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield section, option, value and file of what is in force, the last of each."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for name in names:
        for section, option, value, file in _profile(told, name, _DEPTH):
            found[section, option] = (value, file)
    yield from ((*key, *value) for key, value in found.items())


def _profile(
    told: Mapping[str, list[Line]], name: str, depth: int
) -> Iterator[tuple[str, str, str, str]]:
    """Yield the options of one profile, after those of the profiles it includes."""
    places = (f"{folder}/{name}/tuned.conf" for folder in _FOLDERS)
    file = next((place for place in places if place in told), "")
    rows = [(section, key, value, file) for section, key, value in _rows(told.get(file, ()))]
    for section, option, value, _ in rows:
        if (section, option) == ("main", "include") and depth:
            for other in re.split(r"[\s,;]+", value):
                yield from _profile(told, other, depth - 1)
    kinds = {section: value for section, option, value, _ in rows if option == "type"}
    for section, option, value, where in rows:
        yield kinds.get(section, section), option, value, where


def _rows(lines: Sequence[Line]) -> Iterator[tuple[str, str, str]]:
    section = "main"
    for line in lines:
        if match := re.fullmatch(r"\[([^]]*)\].*", line.text):
            section = match[1]
            yield section, "", ""
            continue
        option, sets, value = line.text.partition("=")
        if sets:
            yield section, option.strip(), value.strip()


def _own(told: Mapping[str, list[Line]]) -> dict[str, str]:
    return {option: value for _, option, value in _rows(told.get(_MAIN, ()))}


def _words(wanted: Wanted) -> list[str]:
    """Return what a line about one of these files holds: its last part, or its option."""
    words = {path.rpartition("/")[2] for path in wanted.values}
    words |= {partner(path).rpartition("/")[2] for path in wanted.values} - {""}
    for (_, option), target in _OPTIONS.items():
        if any(path == target or fnmatchcase(_of_cpu(path), target) for path in wanted.values):
            words.add(option)
    return sorted(words | {"^ */sys/"})


def _lines(wanted: Wanted) -> str:
    return f"what tuned says of {_words(wanted)[-1]}"
