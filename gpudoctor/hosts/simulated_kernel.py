"""What the kernel does with a value written to one of its files: accept, refuse, ignore, couple.

A file here is a path and its text without the last newline. A refused write raises OSError with
the errno of the real kernel; an accepted one returns every file that it changes.
"""

import errno
import os
import re
from collections.abc import Callable
from fnmatch import fnmatchcase

from gpudoctor.hosts.simulated_cgroup import CGROUP_RULES

Read = Callable[[str], str | None]
Changes = dict[str, str]

_CPU = "/sys/devices/system/cpu/"
_PAGE = 4096


def error(number: int, path: str) -> OSError:
    """Return the kernel's refusal."""
    return OSError(number, os.strerror(number), path)


def accept(path: str, written: str, read: Read) -> Changes:
    """Return the files that a write to a kernel file changes. Raises OSError as the kernel does."""
    old = read(path)
    if old is None:
        raise error(errno.ENOENT if path.startswith("/sys/") else errno.EACCES, path)
    value = written.strip(" \t\n")
    for pattern, rule in _RULES:
        if fnmatchcase(path, pattern):
            return rule(path, value, read)
    raise error(errno.EACCES, path)


def _between(low: int, high: int) -> Callable[[str, str, Read], Changes]:
    """Return a rule for whole numbers in a range."""

    def rule(path: str, value: str, read: Read) -> Changes:
        return {path: str(_number(path, value, low, high))}

    return rule


def _number(path: str, value: str, low: int, high: int) -> int:
    if not re.fullmatch(r"[+-]?(?:\d+|0x[0-9a-fA-F]+)", value):
        raise error(errno.EINVAL, path)
    number = int(value, 0 if "x" in value else 10)
    if not low <= number <= high:
        raise error(errno.EINVAL, path)
    return number


def _choice(path: str, value: str, read: Read) -> Changes:
    """Move the brackets to the word that was written, which must be one of the file's."""
    words = [word.strip("[]") for word in (read(path) or "").split()]
    if value not in words:
        raise error(errno.EINVAL, path)
    return {path: " ".join(f"[{word}]" if word == value else word for word in words)}


def _dirty(path: str, value: str, read: Read) -> Changes:
    """Bytes and ratio of a pair: setting one zeroes the other, and bytes have a minimum."""
    if path.endswith("ratio"):
        number = _number(path, value, 0, 100)
        other = path.removesuffix("ratio") + "bytes"
    else:
        lowest = 1 if "background" in path else 2 * _PAGE
        number = _number(path, value, lowest, 1 << 62)
        other = path.removesuffix("bytes") + "ratio"
    return {path: str(number), other: "0"}


def _governor(path: str, value: str, read: Read) -> Changes:
    folder = path.rsplit("/", 1)[0]
    if value not in (read(f"{folder}/scaling_available_governors") or "").split():
        raise error(errno.EINVAL, path)
    changes = {path: value}
    preference = f"{folder}/energy_performance_preference"
    if value == "performance" and read(preference) is not None:
        changes[preference] = "performance"
    return changes


def _preference(path: str, value: str, read: Read) -> Changes:
    folder = path.rsplit("/", 1)[0]
    if value not in (read(f"{folder}/energy_performance_available_preferences") or "").split():
        raise error(errno.EINVAL, path)
    if read(f"{folder}/scaling_governor") == "performance" and value != "performance":
        raise error(errno.EBUSY, path)
    return {path: value}


def _ksm(path: str, value: str, read: Read) -> Changes:
    """2 takes merged pages apart again."""
    run = _number(path, value, 0, 2)
    changes = {path: str(run)}
    if run == 2:
        changes[path.removesuffix("run") + "pages_sharing"] = "0"
    return changes


def _resume_latency(path: str, value: str, read: Read) -> Changes:
    """`n/a` tolerates no latency at all; 0 is no limit."""
    if value == "n/a":
        return {path: value}
    return {path: str(_number(path, value, 0, (1 << 31) - 2))}


def _power_control(path: str, value: str, read: Read) -> Changes:
    if value not in {"auto", "on"}:
        raise error(errno.EINVAL, path)
    return {path: value}


def _clocksource(path: str, value: str, read: Read) -> Changes:
    """A name that is not available is taken without a complaint, and changes nothing."""
    available = (read(path.replace("current_", "available_")) or "").split()
    return {path: value} if value in available else {}


def _state_disable(path: str, value: str, read: Read) -> Changes:
    return {path: str(min(_number(path, value, 0, (1 << 32) - 1), 1))}


_FLAG, _WIDE = _between(0, 1), _between(0, (1 << 31) - 1)
_RULES: tuple[tuple[str, Callable[[str, str, Read], Changes]], ...] = (
    ("/proc/sys/vm/dirty*_ratio", _dirty),
    ("/proc/sys/vm/dirty*_bytes", _dirty),
    ("/proc/sys/kernel/numa_balancing", _between(0, 4)),
    ("/proc/sys/kernel/nmi_watchdog", _FLAG),
    ("/proc/sys/kernel/timer_migration", _FLAG),
    ("/proc/sys/kernel/sched_autogroup_enabled", _FLAG),
    ("/proc/sys/vm/swappiness", _between(0, 200)),
    ("/proc/sys/vm/overcommit_memory", _between(0, 2)),
    ("/proc/sys/vm/compaction_proactiveness", _between(0, 100)),
    ("/proc/sys/vm/zone_reclaim_mode", _WIDE),
    ("/proc/sys/vm/max_map_count", _WIDE),
    ("/proc/sys/vm/nr_hugepages", _WIDE),
    ("/sys/kernel/mm/transparent_hugepage/enabled", _choice),
    ("/sys/kernel/mm/transparent_hugepage/defrag", _choice),
    ("/sys/module/pcie_aspm/parameters/policy", _choice),
    ("/sys/kernel/mm/ksm/run", _ksm),
    ("/sys/kernel/debug/sched/migration_cost_ns", _WIDE),
    (f"{_CPU}cpufreq/policy*/scaling_governor", _governor),
    (f"{_CPU}cpufreq/policy*/energy_performance_preference", _preference),
    (f"{_CPU}cpufreq/boost", _FLAG),
    (f"{_CPU}intel_pstate/no_turbo", _FLAG),
    (f"{_CPU}cpufreq/policy*/boost", _FLAG),
    (f"{_CPU}cpu*/cpuidle/state*/disable", _state_disable),
    (f"{_CPU}cpu*/power/pm_qos_resume_latency_us", _resume_latency),
    ("/sys/bus/pci/devices/*/power/control", _power_control),
    ("/sys/bus/pci/devices/*/link/l*_aspm", _FLAG),
    ("/sys/devices/system/clocksource/clocksource0/current_clocksource", _clocksource),
    *CGROUP_RULES,
)
