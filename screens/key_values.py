"""The few values a panel's card shows beside its issues: by check, in our own short words."""

from collections import Counter
from collections.abc import Iterable

from gpudoctor.model.finding import Finding, Status

KEY_VALUES = {
    "uefi-gpu-count": "GPUs",
    "uefi-iommu-mode": "IOMMU",
    "uefi-nps": "NUMA",
    "uefi-smt": "SMT",
    "lxc-runtime-kind": "kind",
    "lxc-cpu-limit": "CPUs",
    "lxc-cpuset-numa": "allowed",
    "drv-version": "driver",
    "drv-kernel-module-flavor": "kernel module",
    "drv-ecc-mode": "ECC",
    "drv-persistence-mode": "persistence",
    "drv-compute-mode": "compute mode",
    "drv-mig-mode": "MIG",
    "drv-xid": "Xid this boot",
    "kern-governor": "governor",
    "kern-clocksource": "clock source",
    "kern-thp-enabled": "huge pages",
    "kern-zone-reclaim": "zone reclaim",
    "kver-running": "kernel",
    "mem-fb-total": "each GPU",
    "mem-fb-foreign": "held by",
    "mem-pinned-capacity": "host memory",
    "mem-row-remap": "row remaps",
    "pcie-link-gen": "generation",
    "pcie-link-width": "width",
    "pcie-max-payload": "payload",
    "pcie-aer-counters": "errors",
    "pwr-gpu-limit": "GPU limit",
    "pwr-gpu-temp": "GPUs",
    "pwr-cpu-temp": "CPU",
    "pwr-throttle-now": "clocks held by",
    "nccl-version": "NCCL",
    "nccl-p2p-capability": "peer-to-peer",
    "nccl-topo-matrix": "topology",
    "rt-engine-version": "engine",
    "rt-torch-version": "PyTorch",
    "rt-python": "Python",
    "rt-cuda-graph": "CUDA graphs",
}
_LONGEST = 40
_ABSENT = {"", "N/A", "[N/A]"}


def key_values(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    """Return pairs of name and value, where a check says one thing and that is no issue."""
    known = [finding for finding in findings if finding.id in KEY_VALUES]
    number = Counter(finding.id for finding in known)
    chosen = {f.id: f.verdict.observed for f in known if number[f.id] == 1 and _settled(f)}
    return [(name, chosen[id]) for id, name in KEY_VALUES.items() if id in chosen]


def _settled(finding: Finding) -> bool:
    value = finding.verdict.observed
    short = value not in _ABSENT and len(value) <= _LONGEST and "\n" not in value
    return short and finding.status not in {Status.ISSUE, Status.UNKNOWN}
