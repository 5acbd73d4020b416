"""The running kernel: version, command line, log, CPUs and NUMA nodes."""

from gpudoctor.model import Evidence, Files, Reader, Tool, Unknown

UNAME = Files("kernel-release", ("/proc/sys/kernel/osrelease",))
KERNEL_RELEASE: Reader[str] = Reader(
    "kernel-release", (UNAME,), lambda e: e.get("/proc/sys/kernel/osrelease")
)

CMDLINE = Files("kernel-cmdline", ("/proc/cmdline",))
KERNEL_CMDLINE: Reader[str] = Reader("kernel-cmdline", (CMDLINE,), lambda e: e.get("/proc/cmdline"))

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
        if path.endswith("/cpulist") and text.strip() and _has_memory(texts, path)
    ]
    return max(1, len(nodes))


def _has_memory(texts: dict[str, str], cpulist: str) -> bool:
    meminfo = texts.get(cpulist.removesuffix("cpulist") + "meminfo", "")
    return "MemTotal:" in meminfo and "MemTotal:       0 kB" not in meminfo


NUMA_NODES: Reader[int] = Reader("numa-nodes", (NODES,), _numa_nodes)

# Only lines that a check reads leave the target; the count tells an empty log from an unread one.
KERNEL_LOG_LINES = (
    "NVRM|nvidia|Xid|AER|PCIe Bus Error|BAR [0-9]|can.t assign|_OSC|CPPC|amd_pstate|DMAR|AMD-Vi"
    "|IO_PAGE_FAULT|Out of memory|oom-kill|apparmor=.DENIED|Marking TSC|clocksource|microcode"
    "|Relaxed Ordering|Surprise|iommu"
)
KERNEL_LOG = Tool(
    "kernel-log",
    "journalctl",
    "{ journalctl -k -b -q -o short-unix --no-pager 2>/dev/null || dmesg; } "
    f"| awk '{{n++}} /{KERNEL_LOG_LINES}/{{print}} END{{print \"lines \" n+0}}' | tail -n 4000",
    cap=2 << 20,
)
