"""Kernel knobs of memory: swap, reclaim, writeback, overcommit, mappings."""

from gpudoctor.model import (
    Class,
    Evidence,
    Files,
    Impact,
    Reader,
    Sysctl,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    unknown,
)
from gpudoctor.probes.kernel import HOST_MEMORY, INSIDE_CONTAINER, number_in, vouched

_VM = "/proc/sys/vm"
_GIB = 1 << 30

SWAPPINESS = number_in("swappiness", f"{_VM}/swappiness")
_NOT_ZERO = "Page cache goes before programs are swapped out; not 0, which acts near out-of-memory"


def _swaps(evidence: Evidence, inside: str | Unknown) -> int | Unknown:
    """Return the bytes of all swap areas; a container's /proc/swaps may be lxcfs's own."""
    if refusal := vouched(inside, "swap areas") or evidence.problem:
        return refusal
    text = evidence.get("/proc/swaps")
    if isinstance(text, Unknown):
        return text
    head, _, rest = text.partition("\n")
    if not head.startswith("Filename"):
        raise ValueError("/proc/swaps has not its heading")
    rows = [line.split() for line in rest.splitlines() if line.strip()]
    return sum(int(row[-3]) << 10 for row in rows)


SWAP: Reader[int] = Reader(
    "swap-bytes", (Files("swaps", ("/proc/swaps",)), INSIDE_CONTAINER), _swaps, tolerant=True
)


@check(
    "kern-swappiness",
    "Swappiness",
    reads=(SWAPPINESS,),
    optional=(SWAP,),
    why="While weights stream through the page cache, the kernel may push the server's heap to "
    "swap. Nothing changes in steady state where nothing swaps. 60 is the kernel's default.",
    source="kernel.org admin-guide/sysctl/vm.rst (swappiness); tuned latency-performance",
    changes=(Sysctl,),
)
def swappiness(value: int, swap: int | Unknown) -> Verdict:
    """Judge the eagerness to swap where there is something to swap to."""
    if value <= 10:
        return good("Swappiness is low", str(value), "at most 10")
    if isinstance(swap, Unknown):
        return unknown(
            swap.reason, f"swappiness is {value}, whether there is swap is unknown ({swap})"
        )
    if swap == 0:
        return good("There is no swap", f"{value}, no swap", "at most 10, or no swap")
    return issue(
        "Swappiness is high, and there is swap",
        Class.P0,
        Impact.LOW,
        f"{value}, {swap / _GIB:.1f} GiB of swap",
        "at most 10",
        changes=((Sysctl("vm.swappiness", "10", caution=_NOT_ZERO),),),
    )


ZONE_RECLAIM = number_in("zone-reclaim", f"{_VM}/zone_reclaim_mode")
_TUNED = "Who set it may set it again: the default is 0, a tuned profile (hpc-compute) sets 1"


@check(
    "kern-zone-reclaim",
    "Zone reclaim",
    reads=(ZONE_RECLAIM,),
    why="The kernel throws away local page cache instead of using the other node's free memory: "
    "bad while hundreds of GB of weights stream in. A tuned profile (hpc-compute) may set it.",
    source="kernel.org admin-guide/sysctl/vm.rst (zone_reclaim_mode); tuned hpc-compute",
    changes=(Sysctl,),
)
def zone_reclaim(mode: int) -> Verdict:
    """Judge the bit mask; 0 is the default."""
    if mode == 0:
        return good("Zone reclaim is off", "0", "0")
    return issue(
        "Zone reclaim is on",
        Class.P0,
        Impact.MEDIUM,
        str(mode),
        "0",
        changes=((Sysctl("vm.zone_reclaim_mode", "0", caution=_TUNED),),),
    )


_DIRTY = ("dirty_ratio", "dirty_bytes", "dirty_background_ratio", "dirty_background_bytes")


def _dirty(evidence: Evidence) -> dict[str, int]:
    texts = evidence.texts()
    return {name: int(texts[f"{_VM}/{name}"]) for name in _DIRTY}


DIRTY: Reader[dict[str, int]] = Reader(
    "dirty", (Files("dirty", tuple(f"{_VM}/{name}" for name in _DIRTY)),), _dirty
)
# Bytes: below the first a flush is short; the share of the second's size and up is a default's.
_LONG_FLUSH, _BIG_HOST = 16 * _GIB, 512 * 10**9
_THROTTLED = "Heavy writers are slowed down earlier"
_BOUNDS = (
    Sysctl("vm.dirty_background_bytes", str(_GIB), caution=_THROTTLED),
    Sysctl("vm.dirty_bytes", str(4 * _GIB), caution=_THROTTLED),
)


@check(
    "kern-dirty",
    "Dirty page thresholds",
    reads=(DIRTY,),
    optional=(HOST_MEMORY,),
    why="A share of a large memory is hundreds of GB of unwritten pages before writers are slowed: "
    "long stalls of fsync for logs and checkpoints. Decode is unaffected.",
    source="kernel.org admin-guide/sysctl/vm.rst (dirty_*)",
    changes=(Sysctl,),
)
def dirty(values: dict[str, int], memory: dict[str, int] | Unknown) -> Verdict:
    """Judge where background writing starts; a ratio of 0 only means that bytes are in use."""
    if values["dirty_background_bytes"]:
        start = values["dirty_background_bytes"] / _GIB
        return good("Dirty pages are bounded in bytes", f"writing starts at {start:.1f} GiB")
    if isinstance(memory, Unknown):
        return unknown(memory.reason, f"the host's memory size is unknown ({memory})")
    ratio, total = values["dirty_background_ratio"], memory["MemTotal"]
    start = ratio * total / 100
    if values["dirty_bytes"] and start >= values["dirty_bytes"]:
        start = values["dirty_bytes"] / 2  # as mm/page-writeback.c: background stays below
    seen = f"{ratio} % of {total / _GIB:.0f} GiB: writing starts at about {start / _GIB:.0f} GiB"
    if start <= _LONG_FLUSH:
        return good("Dirty pages are written early enough", seen, "at most 16 GiB")
    if total < _BIG_HOST:
        return info("Many dirty pages may pile up", seen, "at most 16 GiB")
    return issue(
        "A very large amount of dirty pages may pile up",
        Class.P2,
        Impact.LOW,
        seen,
        "at most 16 GiB",
        changes=(_BOUNDS,),
    )


MAP_COUNT = number_in("max-map-count", f"{_VM}/max_map_count")
_DEFAULT_MAPS, _AMPLE_MAPS = 65530, 262144
_NO_WAY_BACK = "It is not taken back while a process has more mappings than the old limit"


@check(
    "kern-max-map-count",
    "Memory mappings a process may have",
    reads=(MAP_COUNT,),
    why="Loaders that map many files and expandable memory segments use many mappings; at the "
    "limit they fail with out-of-memory errors. How many the server uses is not read here.",
    source="kernel.org admin-guide/sysctl/vm.rst (max_map_count)",
    changes=(Sysctl,),
)
def max_map_count(limit: int) -> Verdict:
    """Judge the limit alone."""
    wanted = f"at least {_AMPLE_MAPS}"
    if limit >= _AMPLE_MAPS:
        return good("Plenty of memory mappings are allowed", str(limit), wanted)
    if limit >= _DEFAULT_MAPS:
        return info("The number of memory mappings is at or near its default", str(limit), wanted)
    return issue(
        "The number of memory mappings is below the kernel's default",
        Class.P0,
        Impact.LOW,
        str(limit),
        wanted,
        changes=((Sysctl("vm.max_map_count", "1048576", caution=_NO_WAY_BACK),),),
    )


OVERCOMMIT = number_in("overcommit", f"{_VM}/overcommit_memory")
_PROMISES = (
    "Memory may be promised that is not there: whoever wanted strict accounting gets the "
    "out-of-memory killer instead of refusals; it is not taken back while more is promised than "
    "strict accounting allows"
)


@check(
    "kern-overcommit",
    "Memory overcommit",
    reads=(OVERCOMMIT,),
    optional=(HOST_MEMORY,),
    why="CUDA reserves terabytes of address space; strict accounting (mode 2) refuses that when "
    "the commit limit is near, and initialisation fails.",
    source="kernel.org admin-guide/sysctl/vm.rst (overcommit_memory)",
    changes=(Sysctl,),
)
def overcommit(mode: int, memory: dict[str, int] | Unknown) -> Verdict:
    """Judge strict accounting by how full it is."""
    if mode != 2:
        return good("Memory may be overcommitted", str(mode), "0 or 1")
    if isinstance(memory, Unknown):
        return unknown(memory.reason, f"overcommit is strict; how full is unknown ({memory})")
    used = memory["Committed_AS"] / memory["CommitLimit"]
    seen = f"2, {used:.0%} of the commit limit in use"
    if used <= 0.8:
        return info("Overcommit is strict, with room left", seen, "0 or 1")
    return issue(
        "Overcommit is strict and nearly used up",
        Class.P0,
        Impact.HIGH,
        seen,
        "0 or 1",
        changes=((Sysctl("vm.overcommit_memory", "0", caution=_PROMISES),),),
    )
