"""The running kernel: version, command line, log, NUMA nodes, memory; and is this a container."""

import re
from typing import NamedTuple

from gpudoctor.formats.cmdline import Cmdline, parse_cmdline
from gpudoctor.formats.cpulist import parse_cpulist
from gpudoctor.formats.meminfo import parse_meminfo
from gpudoctor.model import Evidence, Files, Reader, Reason, Tool, Unknown

UNAME = Files("kernel-release", ("/proc/sys/kernel/osrelease",))


def _release(evidence: Evidence) -> str | Unknown:
    text = evidence.get("/proc/sys/kernel/osrelease")
    if isinstance(text, str) and not re.match(r"\d+\.\d+", text):
        raise ValueError("no kernel release begins so")
    return text


KERNEL_RELEASE: Reader[str] = Reader("kernel-release", (UNAME,), _release)

CMDLINE = Files("kernel-cmdline", ("/proc/cmdline",))
KERNEL_CMDLINE: Reader[str] = Reader("kernel-cmdline", (CMDLINE,), lambda e: e.get("/proc/cmdline"))
KERNEL_PARAMETERS: Reader[Cmdline] = Reader(
    "kernel-parameters", (KERNEL_CMDLINE,), lambda text: parse_cmdline(text)
)

NODES = Files(
    "numa-nodes",
    (
        "/sys/devices/system/node/online",
        "/sys/devices/system/node/node*/cpulist",
        "/sys/devices/system/node/node*/meminfo",
    ),
)


def _numa_nodes(evidence: Evidence) -> int | Unknown:
    """Count nodes that have both CPUs and memory (GB200 and CXL expose memory-only nodes)."""
    texts = evidence.texts()
    nodes = [
        path
        for path, text in texts.items()
        if path.endswith("/cpulist") and parse_cpulist(text) and _has_memory(texts, path)
    ]
    return max(1, len(nodes))


def _has_memory(texts: dict[str, str], cpulist: str) -> bool:
    """Raise ValueError where it is not told: the node may well count."""
    path = cpulist.removesuffix("cpulist") + "meminfo"
    total = re.search(r"MemTotal:\s+(\d{1,15}) kB", texts.get(path, ""))
    if total is None:
        raise ValueError(f"{path} does not tell the node's memory")
    return int(total[1]) > 0


NUMA_NODES: Reader[int] = Reader("numa-nodes", (NODES,), _numa_nodes)


def _node_cpus(evidence: Evidence) -> dict[int, frozenset[int]]:
    """Return the CPUs of each NUMA node (none for a memory-only node)."""
    found = {}
    for path, text in evidence.texts().items():
        match = re.search(r"/node(\d+)/cpulist$", path)
        if match:
            found[int(match.group(1))] = parse_cpulist(text)
    return found


NODE_CPUS: Reader[dict[int, frozenset[int]]] = Reader("node-cpus", (NODES,), _node_cpus)

_MARKS = ("/run/systemd/container", "/run/.containerenv", "/.dockerenv")
_CGROUP = "/proc/1/cgroup"
# Only a cgroup below the root has cgroup.events: at the mount point it betrays a namespace.
_NOT_ROOT = "/sys/fs/cgroup/cgroup.events"
CONTAINER_MARKS = Files("container-marks", (*_MARKS, _CGROUP, _NOT_ROOT))
_ENGINES = re.compile(r"docker|libpod|kubepods|containerd|crio|lxc|machine\.slice")


def _inside_container(evidence: Evidence) -> str | Unknown:
    """Return which kind of container the host side itself is in; "" for none."""
    if evidence.unread:
        return evidence.unread
    texts = evidence.texts()
    if _MARKS[0] in texts:
        return texts[_MARKS[0]].strip() or "container"
    if _MARKS[1] in texts:
        return "podman"
    if _MARKS[2] in texts:
        return "docker"
    hint = _ENGINES.search(texts.get(_CGROUP, ""))
    if hint:
        return hint.group().replace("machine.slice", "container")
    return "container" if _NOT_ROOT in texts else ""


INSIDE_CONTAINER: Reader[str] = Reader(
    "inside-container", (CONTAINER_MARKS,), _inside_container, tolerant=True
)


def vouched(inside: str | Unknown, what: str) -> Unknown | None:
    """Return why a fact that only the host can tell is unknown here, or None."""
    if isinstance(inside, str) and inside:
        return Unknown(
            Reason.CONTAINER_VIEW,
            f"{what}: read inside a container ({inside}), which cannot vouch for the host",
        )
    return None


_MEMINFO = "/proc/meminfo"


def _host_memory(evidence: Evidence, inside: str | Unknown) -> dict[str, int] | Unknown:
    """Return the host's memory in bytes; lxcfs shows a container its own limits instead."""
    if refusal := vouched(inside, "memory") or evidence.problem:
        return refusal
    text = evidence.get(_MEMINFO)
    return text if isinstance(text, Unknown) else parse_meminfo(text)


HOST_MEMORY: Reader[dict[str, int]] = Reader(
    "host-memory",
    (Files("host-meminfo", (_MEMINFO,)), INSIDE_CONTAINER),
    _host_memory,
    tolerant=True,
)


def number_in(key: str, path: str) -> Reader[int]:
    """Return a reader of one whole number in one file."""

    def parse(evidence: Evidence) -> int | Unknown:
        text = evidence.get(path)
        return text if isinstance(text, Unknown) else int(text)

    return Reader(key, (Files(key, (path,)),), parse)


# Only lines that a check reads leave the target. The count tells an empty log from an unread one,
# and the time of the first line a whole log from what is left in dmesg's ring.
KERNEL_LOG_LINES = (
    "NVRM|nvidia|Xid|AER|PCIe Bus Error|BAR [0-9]|can.t assign|_OSC|CPPC|amd_pstate|DMAR|AMD-Vi"
    "|IO_PAGE_FAULT|Out of memory|oom-kill|apparmor=.DENIED|Marking TSC|clocksource|microcode"
    "|Relaxed Ordering|Surprise|iommu"
)
_FIRST, _LAST = 1500, 2500
KERNEL_LOG = Tool(
    "kernel-log",
    "journalctl",
    "{ journalctl -k -b -q -o short-unix --no-pager 2>/dev/null || dmesg; } "
    f"| awk '{{n++; if(n==1)f=substr($0,1,20)}} /{KERNEL_LOG_LINES}/{{m++; l=substr($0,1,400); "
    f"if(m<={_FIRST})print l; else r[m%{_LAST}]=l}} "
    f"END{{i=m-{_LAST - 1}; if(i<={_FIRST})i={_FIRST + 1}; for(;i<=m;i++)print r[i%{_LAST}]; "
    'print "first " f; print "lines " (n+0)}\'',
    cap=2 << 20,
)


class KernelLog(NamedTuple):
    """The lines of this boot's kernel log that checks read: the first 1500 and the last 2500."""

    lines: tuple[str, ...]
    total: int

    def matching(self, pattern: str) -> tuple[str, ...]:
        """Return the lines in which a regular expression is found."""
        regex = re.compile(pattern)
        return tuple(line for line in self.lines if regex.search(line))


_TOTAL = re.compile(r"lines (\d+)")


def _kernel_log(evidence: Evidence, inside: str | Unknown) -> KernelLog | Unknown:
    if refusal := vouched(inside, "kernel log"):
        return refusal
    if evidence.problem:
        return evidence.problem
    lines = evidence.text.splitlines()
    last = _TOTAL.fullmatch(lines[-1].strip()) if lines else None
    if last is None:
        return Unknown(Reason.PARSE_FAILED, "kernel log: its end is missing")
    if int(last.group(1)) == 0:
        return Unknown(
            Reason.NO_PERMISSION, "the kernel log could not be read: it takes root or group adm"
        )
    kept = (line for line in lines[:-1] if not line.startswith("first "))
    return KernelLog(tuple(kept), int(last.group(1)))


KERNEL_LOG_READ: Reader[KernelLog] = Reader(
    "kernel-log-read", (KERNEL_LOG, INSIDE_CONTAINER), _kernel_log, tolerant=True
)
