"""Changes that the container's checks offer: limits raised from the host, on what runs now."""

import re
from collections.abc import Iterator

from gpudoctor.formats.serving import Server
from gpudoctor.model import CgroupLimit, Change, ProcessLimit, Unknown
from gpudoctor.probes.container import Group
from gpudoctor.probes.served import Parents, tree_of

Options = tuple[tuple[Change, ...], ...]

_UNLIMITED = re.compile(r"(?m)^Max locked memory\s+unlimited\s")
_GIB = 1 << 30
_MOST_MEMORY = 0.9
_INHERITED = "Processes that start later inherit it, and keep it after an undo."
_UNTIL_RESTART = (
    "The container's configuration still says otherwise, and holds again when it starts."
)
_SHARED = f"What the container takes, other guests of the host cannot have. {_UNTIL_RESTART}"


def lock_all(servers: tuple[Server, ...] | Unknown) -> bool:
    """Return whether there are servers, and every process seen of them may lock all memory."""
    known = () if isinstance(servers, Unknown) else servers
    limits = [lines for s in known for lines in (s.limits, *(w.limits for w in s.workers))]
    return bool(limits) and all(_UNLIMITED.search("\n".join(lines)) for lines in limits)


def raised_memlock(servers: tuple[Server, ...] | Unknown, parents: Parents | Unknown) -> Options:
    """Return the live change for every process of the servers in the container."""
    known = () if isinstance(servers, Unknown) else servers
    pids = sorted({pid for server in known for pid in tree_of(server, parents)})
    return (
        ((ProcessLimit(tuple(pids), "memlock", "unlimited", caution=_INHERITED),),) if pids else ()
    )


def more_memory(groups: tuple[Group, ...], memory: dict[str, int] | Unknown) -> Options:
    """Return the change to most of the host's memory, where each lower limit can be reached."""
    if isinstance(memory, Unknown):
        return ()
    most = int(_MOST_MEMORY * memory["MemTotal"]) // _GIB * _GIB
    low = [g for g in groups if any(v is not None and v < most for v in _bounds(g))]
    if not low or not all(group.path for group in low):
        return ()
    changes = tuple(dict.fromkeys(change for group in low for change in _lifted(group, most)))
    return (changes,) if changes else ()


def _bounds(group: Group) -> tuple[int | None, int | None]:
    return group.memory_max, group.memory_high


def _lifted(group: Group, most: int) -> Iterator[Change]:
    """Yield the changes of one cgroup; memory.high stays as far below memory.max as it is."""
    top, high = _bounds(group)
    gap = top - high if top is not None and high is not None and top > high else 0
    for name, value, wanted in (("max", top, most), ("high", high, most - gap)):
        if value is not None and value < wanted:
            path = f"{group.path}/memory.{name}"
            yield CgroupLimit(path, str(wanted), "memory.current", caution=_SHARED)


def no_quota(groups: tuple[Group, ...]) -> Options:
    """Return the change that lifts every quota, where each can be reached."""
    paths = [group.path for group in groups if group.cpu_quota is not None]
    if not paths or not all(paths):
        return ()
    files = dict.fromkeys(f"{path}/cpu.max" for path in paths)
    return (tuple(CgroupLimit(path, "max", caution=_SHARED) for path in files),)
