"""Bandwidth of copies and collectives: what nvbandwidth and nccl-tests tell, where they are there.

The witness of PCIe registers and of the ways between GPUs. Only ever run when asked for: they take
some hundred megabytes on each GPU and load the bus beside the engine. They are ended by SIGTERM
alone, since they drive GPUs.
"""

from collections.abc import Callable

from gpudoctor.bench.answering import answer
from gpudoctor.formats.nccl_tests import Collective, parse_collectives
from gpudoctor.formats.nvbandwidth import parse_bandwidths, parse_version
from gpudoctor.hosts.target import Target
from gpudoctor.model import Evidence, Reason, Tool, Unknown
from gpudoctor.model.bench import Witness
from gpudoctor.model.error import Refusal
from gpudoctor.model.place import ContainerRef
from gpudoctor.text import one_line

_TESTS = (
    "host_to_device_memcpy_ce",
    "device_to_host_memcpy_ce",
    "device_to_device_memcpy_read_ce",
)
# MiB; the tool's own default is up to 512, which a GPU full of a model's cache does not have.
_BUFFER = 64
_SECONDS = 180.0
_NVBANDWIDTH, _ALL_REDUCE = "nvbandwidth", "all_reduce_perf"
_SCRIPT = f"{_NVBANDWIDTH} --bufferSize {_BUFFER} --testcase {' '.join(_TESTS)}"
# From what a decode step sends, to what shows the bus.
_SIZES = "-b 16K -e 64M -f 64"
_TIME, _BUS = "all_reduce time", "all_reduce bus bandwidth"


async def copies(
    make_target: Callable[[], Target], ref: ContainerRef | None, gpus: int
) -> tuple[Witness, ...]:
    """Return what the tools tell, in the engine's container or on the host; takes minutes at most.

    `gpus` is how many take part in collectives.
    """
    found = bandwidths(*await _told(make_target, ref, _tool(_NVBANDWIDTH, _SCRIPT)))
    if gpus < 2:
        few = Witness(_BUS, "GB/s", unknown="fewer than two GPUs were read")
        return (*found, few)
    script = f"{_ALL_REDUCE} {_SIZES} -g {gpus} -c 0"
    return (*found, *collectives(*await _told(make_target, ref, _tool(_ALL_REDUCE, script))))


def _tool(name: str, script: str) -> Tool:
    return Tool(f"bench-{name}", name, f"exec {script}", limit=_SECONDS, gentle=True)


async def _told(
    make_target: Callable[[], Target], ref: ContainerRef | None, tool: Tool
) -> tuple[Evidence, str]:
    """Return a tool's answer and where it ran: in the container, else on the host."""
    where = "on the host" if ref is None else "in the engine's container"
    target = make_target()
    if target.simulated:
        missing = Unknown(Reason.NOT_MEASURED, "the host is simulated: nothing is copied there")
        return Evidence(tool.key, problem=missing), where
    try:
        evidence = await answer(target, tool, ref)
    except Refusal as refusal:
        evidence = Evidence(tool.key, problem=Unknown(Reason.NOT_MEASURED, refusal.sentence))
    if evidence.problem is not None and ref is not None:
        return await _told(make_target, None, tool)
    return evidence, where


def bandwidths(evidence: Evidence, where: str) -> tuple[Witness, ...]:
    """Return a witness for each kind of copy that nvbandwidth was asked for."""
    tables, why, how = {}, _failed(evidence), ""
    if not why:
        try:
            version, tables = parse_version(evidence.text), parse_bandwidths(evidence.text)
            how = f"{_NVBANDWIDTH} {one_line(version, 20)} {where}, copies of {_BUFFER} MiB"
        except ValueError as error:
            why = f"its output cannot be read: {one_line(str(error), 80)}"
    return tuple(
        Witness(name, "GB/s", tuple(values.values()), how, labels=tuple(values))
        if (values := tables.get(name))
        else Witness(name, "GB/s", unknown=why or f"{_NVBANDWIDTH} waived it, or it failed there")
        for name in _TESTS
    )


def collectives(evidence: Evidence, where: str) -> tuple[Witness, ...]:
    """Return the times and bus bandwidths that all_reduce_perf tells."""
    rows: tuple[Collective, ...] = ()
    why = _failed(evidence)
    if not why:
        try:
            rows = parse_collectives(evidence.text)
            why = "" if rows else f"{_ALL_REDUCE} printed no results{_last(evidence)}"
        except ValueError as error:
            why = f"its output cannot be read: {one_line(str(error), 80)}"
    if why:
        return (Witness(_BUS, "GB/s", unknown=why),)
    how, labels = f"{_ALL_REDUCE} {where}, out of place", tuple(_size(row.size) for row in rows)
    return (
        Witness(_TIME, "µs", tuple(row.time for row in rows), how, labels=labels),
        Witness(_BUS, "GB/s", tuple(row.bus for row in rows), how, labels=labels),
    )


def _failed(evidence: Evidence) -> str:
    """Return why a tool's answer says nothing, or nothing."""
    if evidence.problem is not None:
        return str(evidence.problem)
    return f"it failed{_last(evidence)}" if evidence.exit else ""


def _last(evidence: Evidence) -> str:
    said = [line for line in f"{evidence.text}\n{evidence.stderr}".splitlines() if line.strip()]
    return f": {one_line(said[-1], 120)}" if said else ""


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
