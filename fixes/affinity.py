"""The CPUs that the threads of running processes may use, by util-linux's taskset."""

import re

from gpudoctor.fixes.mechanism import GONE, Mechanism, Seen, Values, unread
from gpudoctor.fixes.process import ended, start_of, tool_missing
from gpudoctor.formats.cpulist import format_cpulist, parse_cpulist
from gpudoctor.model import Affinity
from gpudoctor.shell import quote

_SAME = re.compile(r"\d+ \d[\d,-]*")
_EACH = re.compile(r"\d+(?: \d+ =\d[\d,-]*)+(?: \d+@\d+)+")


class AffinityMechanism(Mechanism[Affinity]):
    """One process is one item: `START CPUS` where all its threads may run on the same CPUs.

    Such a process is undone exactly, threads that came meanwhile included: they inherit. Where
    threads differ, the value lists each (`TID =CPUS …`) with its start time (`TID@START …`), each
    is put back by itself, and the undo is held back once threads came or went: nobody can tell what
    a new one would have had. A kernel from 6.2 on remembers that CPUs were asked for: a process put
    back to all CPUs of its cpuset no longer grows with it.
    """

    def reads(self, change: Affinity) -> dict[str, str]:
        """Return the read text of every process, and of taskset."""
        return {"taskset": "taskset --version"} | {
            _whose(pid): _allowed(pid) for pid in change.pids
        }

    def refuse(self, change: Affinity, now: Seen) -> str:
        """Return why: no list of CPUs, no taskset, nothing left."""
        try:
            listed = parse_cpulist(change.cpus)
        except ValueError:
            listed = frozenset()
        if not listed:
            return f"{change.cpus!r} is no list of CPUs"
        items = {_whose(pid): now[_whose(pid)] for pid in change.pids}
        if sentence := tool_missing(now, "taskset") or unread(now) or ended(items):
            return sentence
        for name, value in items.items():
            if value != GONE and not (_SAME.fullmatch(str(value)) or _threads(str(value))):
                return f"{name} cannot be read there ({str(value)[:80]!r})"
        return ""

    def wanted(self, change: Affinity, before: Values) -> dict[str, str]:
        """Return the CPUs of every process, as the kernel prints them."""
        cpus = format_cpulist(parse_cpulist(change.cpus))
        values = {_whose(pid): before[_whose(pid)] for pid in change.pids}
        return {
            name: GONE if value == GONE else f"{value.split(' ')[0]} {cpus}"
            for name, value in values.items()
        }

    def write(self, change: Affinity, item: str, before: Values) -> str:
        """Return the command that moves all threads of one process."""
        return f"taskset -apc {format_cpulist(parse_cpulist(change.cpus))} {_pid(item)}"

    def undo(self, change: Affinity, item: str, before: Values) -> str:
        """Return the commands that give every thread the CPUs captured from it."""
        value = before[item]
        if _SAME.fullmatch(value):
            return f"taskset -apc {value.split(' ')[1]} {_pid(item)}"
        return "; ".join(f"taskset -pc {cpus} {tid}" for tid, cpus in _threads(value).items())

    def guard(self, change: Affinity, item: str, before: Values) -> str:
        """Hold the undo back where threads had CPUs of their own, and came or went since."""
        if _SAME.fullmatch(before[item]):
            return ""
        known = " ".join(re.findall(r"\d+@\d+", before[item]))
        return (
            f'[ "$(echo $({_starts(_pid(item))}))" = {quote(known)} ] || '
            f"echo threads of process {_pid(item)} came or went, and each had its own CPUs"
        )


def _whose(pid: int) -> str:
    return f"CPUs of process {pid}"


def _pid(item: str) -> str:
    return item.rsplit(" ", 1)[1]


def _threads(value: str) -> dict[str, str]:
    """Return the CPUs by thread id of a value that lists each; else nothing."""
    if not _EACH.fullmatch(value):
        return {}
    cpus = dict(re.findall(r" (\d+) =(\S+)", value))
    known = dict(re.findall(r"(\d+)@(\d+)", value))
    return cpus if cpus.keys() == known.keys() else {}


def _starts(pid: str) -> str:
    row = r"s/^\([0-9]*\) .*) \([^ ]* \)\{19\}\([^ ]*\).*/\1@\3/"
    return f"sed {quote(row)} /proc/{pid}/task/*/stat"


def _allowed(pid: int) -> str:
    """Return the text that prints one of the two forms, or gone."""
    files = f"/proc/{pid}/task/*/status"
    lists = f"sed -n 's/^Cpus_allowed_list:[^0-9]*//p' {files} | sort -u"
    rows = quote(r"s/^\(Pid\|Cpus_allowed_list\):[^0-9]*/\1 /p")
    each = f"sed -n {rows} {files} | sed 's/^Pid //' | sed 's/^Cpus_allowed_list /=/'"
    there, start = f"[ -e /proc/{pid}/stat ]", f"$({start_of(pid)})"
    count = f'"$({lists} | grep -c .)"'
    return (
        f"{there} && [ {count} -eq 1 ] && echo {start} $({lists}); "
        f"{there} && [ {count} -gt 1 ] && echo {start} $({each}) $({_starts(str(pid))}); "
        f"{there} || echo {GONE}"
    )
