"""What units that start at boot write otherwise: an operator's own, and daemons known for it."""

import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from gpudoctor.fixes import conflict_started
from gpudoctor.fixes.conflict_lines import Line, lines_with, parsed, same
from gpudoctor.fixes.conflict_started import RC_LOCAL, SYSTEM
from gpudoctor.fixes.conflict_sysctl import parameter
from gpudoctor.fixes.conflict_wanted import Form, Wanted

_SYSFS = ("/etc/sysfs.conf", "/etc/sysfs.d/*.conf")
# Daemons that go on writing kernel files by themselves: unit, files, a value they would keep.
_DAEMONS = (
    ("power-profiles-daemon.service", r"/(scaling_governor|energy_performance_preference)$", ""),
    ("auto-cpufreq.service", r"/(scaling_governor|energy_performance_preference|no_turbo)$", ""),
    ("ksmtuned.service", r"^/sys/kernel/mm/ksm/run$", "1"),
    ("ksm.service", r"^/sys/kernel/mm/ksm/run$", "1"),
)
_NOT_AT_START = ("ExecStop", "ExecReload", "Description", "Documentation")
_GOVERNOR = "scaling_governor"
_CPUPOWER = re.compile(r"(?:cpupower\s.*frequency-set|cpufreq-set)\s.*(?:-g|--governor)[\s=]*(\w+)")
_SAYS = re.compile(r"(?:echo|printf)\s+(?:-\w+\s+|[\"']?%s(?:\\n)?[\"']?\s+)?[\"']?([\w.,:+-]+)")


def reads(wanted: Wanted) -> dict[str, str]:
    """Return the texts that tell which units start at boot, and their lines about these files."""
    units = [f"{base}/*.service" for base in SYSTEM]
    drop_ins = "/etc/systemd/system/*.service.d/*.conf"
    lines = lines_with(_words(wanted), *units, drop_ins, *RC_LOCAL, *_SYSFS)
    return conflict_started.reads() | {_lines(wanted): lines}


def conflict(wanted: Wanted, now: Mapping[str, str]) -> str:
    """Return which unit writes another value at boot than ours, or nothing."""
    started = conflict_started.started(now)
    for line in parsed(now[_lines(wanted)]):
        runs = _unit(line) in started and not line.text.startswith(_NOT_AT_START)
        if runs and line.path != wanted.file:
            if sentence := _conflict(wanted, line):
                return sentence
    return _daemon(wanted, started)


def _conflict(wanted: Wanted, line: Line) -> str:
    """Return what a line of a unit that starts at boot writes otherwise, or nothing."""
    if line.path.startswith("/etc/sysfs.") and wanted.form is Form.UNIT:
        return ""  # sysfsutils has run by then
    for path, value in wanted.values.items():
        other = _writes(line, path)
        if other and not same(other, value):
            return f"{line.path} is run at boot and sets {_told(path)} to {other}"
    return ""


def _daemon(wanted: Wanted, started: Collection[str]) -> str:
    """Return which daemon goes on writing one of the files by itself, or nothing."""
    for unit, pattern, agreed in _DAEMONS:
        for path, value in wanted.values.items():
            if unit in started and re.search(pattern, path) and value != agreed:
                return f"{unit} is started at boot and sets {path} by itself"
    return ""


def _unit(line: Line) -> str:
    """Return the unit that a line belongs to."""
    if line.path in RC_LOCAL:
        return "rc-local.service"
    if line.path.startswith("/etc/sysfs."):
        return "sysfsutils.service"
    folder = line.path.split("/")[-2]
    return folder.removesuffix(".d") if folder.endswith(".service.d") else line.file


def _writes(line: Line, path: str) -> str:
    """Return the value that a line gives a kernel file, or nothing."""
    if line.path.startswith("/etc/sysfs."):
        name, _, value = line.text.partition("=")
        return value.strip() if f"/sys/{name.strip()}" in _paths(path) else ""
    if path.endswith(f"/{_GOVERNOR}") and (match := _CPUPOWER.search(line.text)):
        return match[1]
    each = [_command(part, path) for part in re.split(r";|&&|\|\|", line.text)]
    return next((value for value in each if value), "") or _loop(line.text, path)


def _command(text: str, path: str) -> str:
    """Return the value that one command gives a kernel file: by sysctl, a redirection or tee."""
    if path.startswith("/proc/sys/") and "sysctl" in text:
        for token in _tokens(text):
            key, sets, value = token.partition("=")
            if sets and parameter(key) == path:
                return value
    into = re.search(r"(?:>|\btee\s)(.*)", text)
    if into is None or not _names(into[1], path):
        return ""
    said = _SAYS.search(text)
    return said[1] if said else f"what `{text.strip()}` prints"


def _loop(text: str, path: str) -> str:
    """Return the value that a loop over such files writes, or nothing."""
    if not re.search(r"(?:>|\btee\s.*)\s*[\"']?\$", text) or not _names(text, path):
        return ""
    said = _SAYS.search(text)
    return said[1] if said else ""


def _names(text: str, path: str) -> bool:
    return any(fnmatchcase(p, token) for p in _paths(path) for token in _tokens(text))


def _paths(path: str) -> tuple[str, ...]:
    """Return a kernel file by its path and, of a CPU's frequency, by the CPU's own link to it."""
    return path, re.sub(r"/cpufreq/policy(\d+)/", r"/cpu\1/cpufreq/", path)


def _tokens(text: str) -> list[str]:
    return [token for token in re.split(r"[\s\"'`;|&<>(){}]+", text) if token]


def _told(path: str) -> str:
    return path.removeprefix("/proc/sys/").replace("/", ".") if "/proc/sys/" in path else path


def _words(wanted: Wanted) -> list[str]:
    words = {path.rpartition("/")[2] for path in wanted.values}
    return sorted(words | ({"cpupower", "cpufreq-set"} if _GOVERNOR in words else set()))


def _lines(wanted: Wanted) -> str:
    return f"what units say of {', '.join(_words(wanted))}"
