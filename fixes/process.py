"""Resource limits of running processes, by util-linux's prlimit.

A process is known by pid and start time: both are in every value, so that a pid that now belongs
to another process reads differently, and is left alone.
"""

import re

from gpudoctor.fixes.mechanism import GONE, Mechanism, Seen, Values, unread
from gpudoctor.model import ProcessLimit, Reason, Unknown
from gpudoctor.shell import quote

# Field 22 of /proc/PID/stat, counted after the name's last parenthesis (proc(5)).
_START = quote(r"s/.*) \([^ ]* \)\{19\}\([^ ]*\).*/\2/")
_PRINTED = {"memlock": "Max locked memory", "nofile": "Max open files"}
_LIMIT = re.compile(r"\d+ (?:\d+|unlimited):(?:\d+|unlimited)")
_NUMBER = re.compile(r"\d{1,18}|unlimited")
_OPEN_MAX = "fs.nr_open"


def start_of(pid: int) -> str:
    """Return sh text that prints the start time of a process in clock ticks after boot."""
    return f"sed {_START} /proc/{pid}/stat"


def ended(now: Seen) -> str:
    """Return why nothing is changed where every value read says that its process has ended."""
    values = list(now.values())
    if values and all(value == GONE for value in values):
        return (
            "the process has ended: audit again"
            if len(values) == 1
            else ("the processes have ended: audit again")
        )
    return ""


def tool_missing(now: Seen, tool: str) -> str:
    """Return that a program of util-linux is not there, if so."""
    seen = now[tool]
    if isinstance(seen, Unknown) and seen.reason is Reason.TOOL_MISSING:
        return f"{tool} (util-linux) is not installed there"
    return unread({tool: seen})


class ProcessLimitMechanism(Mechanism[ProcessLimit]):
    """One process is one item, `START SOFT:HARD`. A limit is only ever raised, never lowered.

    What a process starts later inherits its limits, and keeps them when those are put back.
    """

    def reads(self, change: ProcessLimit) -> dict[str, str]:
        """Return the read text of every process, of prlimit, and of the most files allowed."""
        texts = {"prlimit": "prlimit --version"}
        if change.resource == "nofile":
            texts[_OPEN_MAX] = "cat /proc/sys/fs/nr_open"
        return texts | {_name(change, pid): _limits(change, pid) for pid in change.pids}

    def refuse(self, change: ProcessLimit, now: Seen) -> str:
        """Return why: a wrong value, no prlimit, nothing left, more than the kernel allows."""
        if change.resource not in _PRINTED or not _NUMBER.fullmatch(change.value):
            return f"{change.value!r} is no {change.resource} limit that gpudoctor sets"
        items = {_name(change, pid): now[_name(change, pid)] for pid in change.pids}
        if sentence := tool_missing(now, "prlimit") or unread(now) or ended(items):
            return sentence
        for name, value in items.items():
            if value != GONE and not _LIMIT.fullmatch(str(value)):
                return f"{name} cannot be read there ({value!r})"
        most = now.get(_OPEN_MAX)
        if most is not None and _above(change.value, str(most)):
            return f"the kernel there allows {most} open files a process at most ({_OPEN_MAX})"
        return ""

    def wanted(self, change: ProcessLimit, before: Values) -> dict[str, str]:
        """Return soft and hard limit of every process, each at least as wanted."""
        names = (_name(change, pid) for pid in change.pids)
        return {name: _raised(before[name], change.value) for name in names}

    def write(self, change: ProcessLimit, item: str, before: Values) -> str:
        """Return the command that raises the limits of one process."""
        return _set(change, item, _raised(before[item], change.value))

    def undo(self, change: ProcessLimit, item: str, before: Values) -> str:
        """Return the command that sets both captured limits of one process."""
        return _set(change, item, before[item])

    def guard(self, change: ProcessLimit, item: str, before: Values) -> str:
        """Hold the undo back while more files are open than the old soft limit allows."""
        soft = before[item].split(" ")[1].split(":")[0]
        if change.resource != "nofile" or soft == "unlimited":
            return ""
        count = f"echo /proc/{_pid(item)}/fd/* | tr ' ' '\\n' | grep -c ."
        return (
            f'[ "$({count})" -le {soft} ] || '
            f"echo process {_pid(item)} has more files open than the old limit of {soft} allows"
        )


def _name(change: ProcessLimit, pid: int) -> str:
    return f"{change.resource} of process {pid}"


def _pid(item: str) -> str:
    return item.rsplit(" ", 1)[1]


def _limits(change: ProcessLimit, pid: int) -> str:
    """Return the text that prints `START SOFT:HARD`, or gone."""
    label = _PRINTED.get(change.resource, "")
    row = rf"s/^{label}  *\([^ ]*\)  *\([^ ]*\) .*/\1:\2/p"
    found = f"$({start_of(pid)}) $(sed -n {quote(row)} /proc/{pid}/limits)"
    return f"[ -e /proc/{pid}/stat ] && echo {found} || echo {GONE}"


def _raised(before: str, value: str) -> str:
    if before == GONE:
        return GONE
    start, _, limits = before.partition(" ")
    soft, hard = (value if _above(value, old) else old for old in limits.split(":"))
    return f"{start} {soft}:{hard}"


def _above(value: str, other: str) -> bool:
    if value == "unlimited" or other == "unlimited":
        return value == "unlimited" != other
    return int(value) > int(other)


def _set(change: ProcessLimit, item: str, value: str) -> str:
    return f"prlimit --pid {_pid(item)} --{change.resource}={value.split(' ')[1]}"
