"""One quick look at a host, over one login: who it is, its transactions, the values that were set.

All of it is one command line, or where that is not enough two or three jobs of a session beside
each other: on a slow machine each costs several processes.

Nothing that can hang a sick GPU is run: what nvidia-smi would tell is left to the audit.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from gpudoctor.capture import read_script, read_texts, values_of
from gpudoctor.fixes import conflicts, reads_of
from gpudoctor.formats.bulk import parse_both
from gpudoctor.formats.system_uuid import system_uuid
from gpudoctor.hosts.at_once import at_once
from gpudoctor.hosts.root_shell import LiveShell
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import (
    CgroupLimit,
    Change,
    DeviceNodes,
    GpuSetting,
    Module,
    OwnFile,
    Reason,
    Service,
    Sysctl,
    Sysfs,
    Unknown,
)
from gpudoctor.model.error import HostUnreachable
from gpudoctor.model.story import KeptStep
from gpudoctor.shell import list_entries, quote, read_files
from gpudoctor.story.values import CAP, OWN_CAP, Answer, Plain, plain
from gpudoctor.transaction import (
    COMPLAINTS_CAP,
    JOURNALS_CAP,
    Journaled,
    journals,
    journals_in,
    journals_text,
)
from gpudoctor.transaction_script import Places

_WHO = ("/proc/sys/kernel/random/boot_id", "/etc/machine-id", "/proc/uptime")
_UUID = "/sys/class/dmi/id/product_uuid"  # only root reads it
_FORMS = (
    ("boot", re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")),
    ("machine", re.compile(r"[0-9a-f]{32}")),
    ("uptime", re.compile(r"\d+\.\d+")),
)
_LIMIT_SECONDS = 10.0
_GLANCE_SECONDS = 8.0
_BESIDE = 2
_CHUNK = 40_000
_UNITS = "/etc/systemd/system/"
# What a plain user reads as root does; other read texts would take "not allowed" for a value.
_FOR_ALL = (CgroupLimit, DeviceNodes, Module, OwnFile, Service, Sysctl, Sysfs)
_OF_DRIVER = (DeviceNodes, GpuSetting)
# Clock ticks a second in /proc, on x86-64 and arm64 alike (the kernel's USER_HZ).
_TICKS = 100
_START = r"sed 's/.*) \([^ ]* \)\{19\}\([^ ]*\).*/\2/' | sort -n | head -n 1"
# The driver's kernel threads (children of kthreadd, pid 2) start when its module is loaded.
_DRIVER_START = (
    "cat /proc/[0-9]*/stat 2>/dev/null | "
    rf"grep -aE '^[0-9]+ \((nv_queue|nv_open_q)\) . 2 ' | {_START}"
)


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen: `told` are the transactions there with their steps (check, title), for root.

    `values` are those of the changes' items; `starts` and `units` as in `telling.Seen`.
    """

    user: str
    boot_id: str
    machine_id: str
    uptime: float
    told: Mapping[str, Journaled] | None
    values: Mapping[Change, Mapping[str, Answer]]
    starts: Mapping[Change, tuple[str, float]] = field(default_factory=dict)
    units: Mapping[OwnFile, str] = field(default_factory=dict)
    system_uuid: str = ""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a look reads: the items' texts by change, those that need no process, and the others."""

    items: Mapping[Change, Mapping[str, str]]
    quick: Mapping[str, Plain]
    starts: Mapping[Change, str]
    units: Mapping[OwnFile, str]

    @property
    def paths(self) -> list[str]:
        """Return the files to read: who it is first, then those that are longest."""
        mine = (path for how in self.quick.values() for path in how.paths)
        return list(dict.fromkeys((*_WHO, _UUID, *self.entries, *mine)))

    @property
    def entries(self) -> list[str]:
        """Return the paths to list."""
        return list(dict.fromkeys(path for how in self.quick.values() for path in how.entries))

    @property
    def texts(self) -> list[str]:
        """Return the texts that must run themselves."""
        texts = (text for named in self.items.values() for text in named.values())
        slow = (text for text in texts if text not in self.quick)
        return list(dict.fromkeys((*slow, *self.starts.values(), *self.units.values())))


def _wanted(steps: Sequence[KeptStep], root: bool) -> _Wanted:
    items = _items(steps, root)
    texts = dict.fromkeys(text for named in items.values() for text in named.values())
    quick = {text: how for text in texts if (how := plain(text)) is not None}
    return _Wanted(items, quick, _start_texts(items, steps), _unit_texts(items))


async def glance(target: LiveTarget, steps: Sequence[KeptStep], places: Places) -> Look | None:
    """Return what `look_at` does, over one exec in place of a session; None where it needs one.

    Takes a target that is connected. Raises HostUnreachable.
    """
    wanted = _wanted(steps, root=True)
    paths, entries, texts = wanted.paths, wanted.entries, wanted.texts
    files_text, values_text = journals_text(places, paths, entries), read_script(texts)
    got = await at_once(target, files_text, values_text, JOURNALS_CAP, _GLANCE_SECONDS)
    if got is None:
        return None
    told, files = journals_in(got.first, places, paths, entries)
    if any(path not in files for path in _WHO):  # a tool is missing, say: a session tells which
        return None
    root = got.user == "root"
    mine = wanted if root else _wanted(steps, root)
    answers = values_of(texts, got.second)
    return _seen(got.user, steps, mine, told if root else None, files, answers)


async def look_at(shell: LiveShell, steps: Sequence[KeptStep], places: Places) -> Look:
    """Return what is there now of these steps. Raises HostUnreachable."""
    root = shell.user == "root"
    wanted = _wanted(steps, root)
    (told, files), answers = await asyncio.gather(
        _files(shell, wanted, places if root else None), _answers(shell, wanted.texts)
    )
    return _seen(shell.user, steps, wanted, told, files, answers)


def _seen(
    user: str,
    steps: Sequence[KeptStep],
    wanted: _Wanted,
    told: Mapping[str, Journaled] | None,
    files: Mapping[str, bytes | Unknown],
    answers: Mapping[str, Answer],
) -> Look:
    uuid = files.get(_UUID, b"")
    got = {text: how.value(files) for text, how in wanted.quick.items()} | dict(answers)
    values = {c: {n: got[text] for n, text in named.items()} for c, named in wanted.items.items()}
    return Look(
        user,
        *_who(files),
        told,
        values | _left(steps, wanted.items, user == "root"),
        {c: at for c, text in wanted.starts.items() if (at := _started(c, got[text]))},
        {c: state for c, text in wanted.units.items() if isinstance(state := got[text], str)},
        system_uuid(uuid.decode("ascii", "replace")) if _holds(uuid) else "",
    )


async def overriding(shell: LiveShell, changes: Iterable[OwnFile]) -> dict[OwnFile, str]:
    """Return in one sentence what wins over files of ours, by file, where that is found."""
    reads = {change: conflicts.conflict_reads(change) for change in changes}
    answers = await _answers(shell, [text for named in reads.values() for text in named.values()])
    found = {}
    for change, named in reads.items():
        now = {name: answers[text] for name, text in named.items()}
        found[change] = conflicts.conflict(change, now)
    return found


def _items(steps: Iterable[KeptStep], root: bool) -> dict[Change, dict[str, str]]:
    """Return the read texts of the steps' items, by change and name."""
    found: dict[Change, dict[str, str]] = {}
    for step in steps:
        change = step.change
        if change is None or isinstance(change, GpuSetting):
            continue
        if not root and not isinstance(change, _FOR_ALL):
            continue
        names = {item.name for item in step.items}
        texts = _texts(change)
        found.setdefault(change, {}).update({n: texts[n] for n in names if n in texts})
    return found


def _texts(change: Change) -> Mapping[str, str]:
    try:
        return reads_of(change)
    except (ValueError, KeyError):  # a register or setting that this version does not write
        return {}


def _left(
    steps: Iterable[KeptStep], items: Mapping[Change, object], root: bool
) -> dict[Change, dict[str, Answer]]:
    """Return why the values of the other changes are not read here."""
    smi = Unknown(Reason.NOT_MEASURED, "nvidia-smi is left to the audit")
    denied = Unknown(Reason.NO_PERMISSION, "only root can tell it")
    found: dict[Change, dict[str, Answer]] = {}
    for step in steps:
        if step.change is None or step.change in items:
            continue
        why = smi if isinstance(step.change, GpuSetting) or root else denied
        found.setdefault(step.change, {}).update({item.name: why for item in step.items})
    return found


def _start_texts(items: Iterable[Change], steps: Iterable[KeptStep]) -> dict[Change, str]:
    """Return the texts that tell when what a change lives in was started, in clock ticks."""
    changes = [*items, *(step.change for step in steps if isinstance(step.change, GpuSetting))]
    return {
        change: _container_start(change) if isinstance(change, CgroupLimit) else _DRIVER_START
        for change in changes
        if isinstance(change, (CgroupLimit, *_OF_DRIVER))
    }


def _container_start(change: CgroupLimit) -> str:
    """Return the text that prints the start of a cgroup's oldest process."""
    folder = quote(change.path.rpartition("/")[0])
    lists = " ".join(f"{folder}{deep}/cgroup.procs" for deep in ("", "/*", "/*/*", "/*/*/*"))
    return (
        f"cat {lists} 2>/dev/null | while read -r p; do cat /proc/$p/stat 2>/dev/null; done | "
        f"{_START}"
    )


def _started(change: Change, ticks: Answer) -> tuple[str, float] | None:
    what = "the container" if isinstance(change, CgroupLimit) else "the driver"
    return (what, int(ticks) / _TICKS) if isinstance(ticks, str) and ticks.isdecimal() else None


def _unit_texts(items: Iterable[Change]) -> dict[OwnFile, str]:
    return {
        change: f"systemctl is-active {quote(change.path.removeprefix(_UNITS))} || :"
        for change in items
        if isinstance(change, OwnFile) and change.path.startswith(_UNITS)
    }


def _who(files: Mapping[str, bytes | Unknown]) -> tuple[str, str, float]:
    """Return boot id, machine id and uptime in seconds. Raises HostUnreachable."""
    untold = Unknown(Reason.PARSE_FAILED, "it was not told")
    told = [files.get(path, untold) for path in _WHO]
    if all(isinstance(raw, Unknown) for raw in told):
        raise HostUnreachable(f"the host could not be read: {str(told[0])}")
    words = [raw.split()[0].decode("ascii", "replace") for raw in told if _holds(raw)]
    found = {kind: word for word in words for kind, form in _FORMS if form.fullmatch(word)}
    return found.get("boot", ""), found.get("machine", ""), float(found.get("uptime", "0"))


def _holds(raw: bytes | Unknown) -> TypeGuard[bytes]:
    return isinstance(raw, bytes) and bool(raw.split())


async def _files(
    shell: LiveShell, wanted: _Wanted, places: Places | None
) -> tuple[dict[str, Journaled] | None, dict[str, bytes | Unknown]]:
    """Return the bytes of the files, hundreds of them by one process, and root's journals.

    Without places only the files are read: nobody but root may read a journal.
    """
    first, *others = _chunks(wanted.paths)
    (told, found), more = await asyncio.gather(
        _first(shell, first, wanted.entries, places),
        asyncio.gather(*(_read(shell, some, ()) for some in others)),
    )
    for answers in more:
        found |= answers
    return told, found


async def _first(
    shell: LiveShell, paths: Sequence[str], entries: Sequence[str], places: Places | None
) -> tuple[dict[str, Journaled] | None, dict[str, bytes | Unknown]]:
    if places is None:
        return None, await _read(shell, paths, entries)
    told, files = await journals(shell, places, paths, entries)
    return told, dict(files)


async def _read(
    shell: LiveShell, paths: Sequence[str], entries: Sequence[str]
) -> dict[str, bytes | Unknown]:
    cap = OWN_CAP if entries else CAP + 1
    most = (len(paths) + len(entries)) * (cap + 200)
    listed = f"{list_entries(entries)}; " if entries else ""
    text = f"{listed}{read_files(paths, cap)}"
    answer = await shell.run(text, min(most, 8 << 20), _LIMIT_SECONDS, COMPLAINTS_CAP)
    if answer.lost is not None:
        return dict.fromkeys(paths, answer.lost)
    return parse_both(answer.stdout, answer.stderr)


def _chunks(paths: Sequence[str]) -> Iterator[list[str]]:
    """Split the paths so that each job is a command line that any kernel takes."""
    chunk: list[str] = []
    size = 0
    for path in paths:
        if chunk and size + len(path) > _CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(path)
        size += len(path) + 1
    if chunk:
        yield chunk


async def _answers(shell: LiveShell, texts: Sequence[str]) -> dict[str, Answer]:
    """Ask in a few jobs beside each other: within one, texts wait for each other."""
    each = list(dict.fromkeys(texts))
    shares = [share for at in range(_BESIDE) if (share := each[at::_BESIDE])]
    told = await asyncio.gather(*(read_texts(shell, share) for share in shares))
    return {text: answer for some in told for text, answer in some.items()}
