"""Panel 7, state: power saving of the links, errors counted, NUMA node of each GPU."""

from gpudoctor.formats.pci_sysfs import AerCounts
from gpudoctor.model import (
    Change,
    Class,
    Evidence,
    Files,
    Impact,
    Reader,
    Sysfs,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    not_read,
    per_target,
)
from gpudoctor.probes.gpu_paths import GPU_PATHS, PATH_FILES, GpuPath
from gpudoctor.probes.kernel import NUMA_NODES
from gpudoctor.probes.pci import DEVICES
from gpudoctor.probes.pci_hop import Hop
from gpudoctor.probes.uptime import UPTIME
from gpudoctor.tables.pcie import pcie_table

_POLICY = "/sys/module/pcie_aspm/parameters/policy"
ASPM_POLICY: Reader[str] = Reader(
    "aspm-policy", (Files("aspm-policy", (_POLICY,)),), lambda evidence: evidence.get(_POLICY)
)
Links = dict[str, str]
Alternatives = tuple[tuple[Change, ...], ...]


def _links(evidence: Evidence) -> Links:
    """Return the files that switch a link's states, by path, and what they say (0 or 1)."""
    files = evidence.files.items()
    return {p: raw.decode().strip() for p, raw in files if "/link/" in p and isinstance(raw, bytes)}


# Which states the kernel lets a link use, by the files at its lower end.
LINK_STATES: Reader[Links] = Reader("link-states", (PATH_FILES,), _links)


@check(
    "pcie-aspm",
    "Link power saving (ASPM)",
    reads=(GPU_PATHS,),
    optional=(ASPM_POLICY, LINK_STATES),
    why="Leaving L1 adds microseconds to the first packet after a pause, and links have been lost "
    "on it. The state of each link counts, not the policy file: `default` leaves what the firmware "
    "set.",
    source="kernel.org Documentation/ABI/testing/sysfs-bus-pci (link/l1_aspm)",
    scope="gpu",
    changes=(Sysfs,),
)
def aspm(
    paths: tuple[GpuPath, ...], policy: str | Unknown, links: Links | Unknown
) -> list[Verdict]:
    """Judge the states enabled on every link of the path."""
    words = "" if isinstance(policy, Unknown) else f"; policy {policy.strip()}"
    changes = _off(paths, links, policy)
    return per_target((path.bdf, _aspm(path, words, changes)) for path in paths)


def _saving(path: GpuPath) -> list[Hop]:
    """Return the hops with a state on; L1 acts only where the lower end of the link asks for it."""
    lower = path.gpu.aspm
    port = path.port
    found = [path.gpu] if isinstance(lower, tuple) and lower else []
    if port and isinstance(port.aspm, tuple) and ("L0s" in port.aspm or found and port.aspm):
        found.append(port)
    rest = [hop for hop in path.bridges[:-1] if isinstance(hop.aspm, tuple) and hop.aspm]
    return [*found, *(rest if len(rest) > 1 else [])]


def _aspm(path: GpuPath, policy: str, changes: Alternatives) -> Verdict:
    if isinstance(path.gpu.aspm, Unknown):
        return not_read(path.gpu.aspm)
    saving = _saving(path)
    if not saving:
        return good("No link power saving on the GPU's path", observed=f"ASPM off{policy}")
    seen = ", ".join(
        f"{hop.bdf} {' '.join(hop.aspm)}" for hop in saving if isinstance(hop.aspm, tuple)
    )
    return issue(
        "Link power saving is on",
        Class.P0,
        Impact.LOW,
        observed=f"{seen}{policy}",
        expected="ASPM off",
        changes=changes,
        remedy=_LASTING if changes else f"The kernel does not control this link there. {_LASTING}",
    )


_LASTING = (
    "`pcie_aspm.policy=performance` on the kernel command line lasts over boots (`pcie_aspm=off` "
    "does not: it leaves what the firmware set); so does ASPM off in the firmware."
)
# The substates before L1, which switches them off with itself; an undo goes the other way.
_STATES = "l1_1_pcipm l1_2_pcipm l1_1_aspm l1_2_aspm l1_aspm l0s_aspm".split()
_CAUTION = "More power at idle."


def _off(paths: tuple[GpuPath, ...], links: Links | Unknown, policy: str | Unknown) -> Alternatives:
    """Return how the kernel switches the states off: link by link, or for all links at once.

    A link's files are at its lower end. Where they are there and all 0, the kernel already thinks
    it is off, and writing would do nothing.
    """
    known = {} if isinstance(links, Unknown) else links
    ends = dict.fromkeys(hop.bdf for path in paths if _saving(path) for hop in path.hops)
    files = [f"{DEVICES}/{bdf}/link/{name}" for bdf in ends for name in _STATES]
    there = [path for path in files if path in known]
    on = tuple(path for path in there if known[path] == "1")
    options: list[tuple[Change, ...]] = []
    if on:
        options.append((Sysfs(on, "0", caution=_CAUTION),))
    set_otherwise = isinstance(policy, str) and "[performance]" not in policy
    if set_otherwise and (on or not there):
        everywhere = f"{_CAUTION} It acts on every PCIe link of the host."
        options.append((Sysfs((_POLICY,), "performance", choice=True, caution=everywhere),))
    return tuple(options)


@check(
    "pcie-aer-counters",
    "PCIe errors on the GPU's path",
    reads=(GPU_PATHS,),
    optional=(UPTIME,),
    why="Errors are retried by hardware and cost latency; a rising count is a marginal link. "
    "Errors of a bad GPU link are often counted at the port above it.",
    source="kernel.org Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats",
    scope="gpu",
)
def aer_counters(paths: tuple[GpuPath, ...], uptime: float | Unknown) -> list[Verdict]:
    """Judge the counts since boot of the GPU and of every bridge above it."""
    return per_target((path.bdf, _errors(path, uptime)) for path in paths)


def _errors(path: GpuPath, uptime: float | Unknown) -> Verdict:
    counts = {hop.bdf: hop.aer for hop in path.hops if isinstance(hop.aer, AerCounts)}
    if not counts:
        why = path.gpu.aer
        return not_read(why) if isinstance(why, Unknown) else good("No PCIe errors")
    seen = ", ".join(
        f"{bdf}: {c.correctable} correctable, {c.nonfatal} nonfatal, {c.fatal} fatal"
        for bdf, c in counts.items()
        if c.correctable or c.nonfatal or c.fatal
    )
    if any(c.nonfatal or c.fatal for c in counts.values()):
        return _bad_link("Uncorrectable PCIe errors since boot", Impact.HIGH, seen)
    worst = max(c.correctable for c in counts.values())
    if worst == 0:
        return good("No PCIe errors since boot", f"0 on {len(counts)} function(s)", "0")
    if isinstance(uptime, Unknown):
        return info("Correctable PCIe errors since boot, rate unknown", observed=seen)
    # A boot's own retraining may count a few: never less than an hour's worth of time.
    rate = worst / max(uptime / 3600, 1.0)
    table = pcie_table()
    if rate < table.noise:
        return info("A few correctable PCIe errors since boot", observed=seen)
    impact = Impact.HIGH if rate > table.bad else Impact.LOW
    return _bad_link("Correctable PCIe errors keep coming", impact, f"{seen} ({rate:.0f} an hour)")


def _bad_link(summary: str, impact: Impact, seen: str) -> Verdict:
    return issue(
        summary,
        Class.FW,
        impact,
        observed=seen,
        expected="0",
        remedy="Reseat the card, replace riser, cable or retimer, or set the slot one generation "
        "lower in the firmware; then watch the counters.",
    )


@check(
    "pcie-numa-node",
    "NUMA node of each GPU",
    reads=(GPU_PATHS, NUMA_NODES),
    why="Engines and NCCL place threads and buffers by it. -1 is no node: firmware did not say.",
    source="kernel.org Documentation/ABI/testing/sysfs-bus-pci (numa_node)",
    scope="gpu",
)
def numa_node(paths: tuple[GpuPath, ...], nodes: int) -> list[Verdict]:
    """Judge whether the firmware tells where each GPU is."""
    return per_target((path.bdf, _node(path, nodes)) for path in paths)


def _node(path: GpuPath, nodes: int) -> Verdict:
    gpu = path.gpu
    if isinstance(gpu.numa_node, Unknown):
        return not_read(gpu.numa_node)
    cpus = "" if isinstance(gpu.cpulist, Unknown) else f", CPUs {gpu.cpulist}"
    if gpu.numa_node >= 0:
        return good("The firmware tells the GPU's NUMA node", f"node {gpu.numa_node}{cpus}")
    if nodes < 2:
        return good("One NUMA node: nothing to tell", observed=f"-1, {nodes} node")
    if path.is_cut:
        seen = f"-1 on {nodes} nodes"
        return info("The hypervisor does not tell the GPU's NUMA node", observed=seen)
    return issue(
        "The firmware does not tell the GPU's NUMA node",
        Class.FW,
        Impact.MEDIUM,
        observed=f"-1 on {nodes} nodes",
        expected="a node",
        remedy="Update the firmware, or set its NUMA options (per-socket PCIe proximity).",
    )
