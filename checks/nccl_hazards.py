"""Panel 9, what redirects peer-to-peer traffic: ACS and IOMMU, and when that can hang a server."""

from gpudoctor.checks.peers import is_prone, peers_of, redirects, translated, unread
from gpudoctor.checks.servers import per_server
from gpudoctor.formats.cpuinfo import Cpu
from gpudoctor.formats.pci import PortType
from gpudoctor.formats.topo import Topology
from gpudoctor.model import (
    Class,
    Impact,
    Needs,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    per_target,
    unknown,
)
from gpudoctor.probes.cpu import CPU
from gpudoctor.probes.gpu_paths import GPU_GROUPS, GPU_PATHS, GpuPath, IommuGroup
from gpudoctor.probes.nccl import NCCL_JOBS, TOPOLOGY, NcclJob
from gpudoctor.probes.pci import GPU_FUNCTIONS, PciFunction


@check(
    "nccl-p2p-hang-risk",
    "Peer-to-peer hang risk",
    reads=(GPU_FUNCTIONS, GPU_GROUPS, NCCL_JOBS, TOPOLOGY, CPU),
    optional=(GPU_PATHS,),
    why="On PCIe GPUs of the Ada and Blackwell lines, all-reduce was reported to hang where P2P "
    "runs through a translating IOMMU or ACS redirect; iommu=pt or clearing the redirect cured it.",
    source="NVIDIA/nccl issues 1999 and 2079; vllm-project/vllm issue 51513",
    scope="server",
)
def p2p_hang_risk(
    gpus: tuple[PciFunction, ...],
    groups: dict[str, IommuGroup | None],
    jobs: tuple[NcclJob, ...],
    topology: Topology,
    cpu: Cpu,
    paths: tuple[GpuPath, ...] | Unknown,
) -> list[Verdict]:
    """Judge the combination of P2P in use across host bridges and redirected traffic."""
    if not is_prone(gpus):
        return [good("No two GPUs of the lines that hangs were reported for")]
    hazard = _hazard(groups, paths)
    return per_server(jobs, lambda job: _hang(job, topology, cpu, hazard), lambda job: job.server)


def _hazard(
    groups: dict[str, IommuGroup | None], paths: tuple[GpuPath, ...] | Unknown
) -> str | Unknown:
    """Return what may redirect peer traffic, empty for nothing, or why that is not known."""
    mapped = translated(groups)
    if isinstance(mapped, Unknown):
        return mapped
    if mapped:
        return f"the IOMMU translates {len(mapped)} GPU(s)"
    if isinstance(paths, Unknown):
        return paths
    found = [redirects(path) for path in paths]
    if any(isinstance(ports, list) and ports for ports in found):
        count = sum(1 for ports in found if isinstance(ports, list) and ports)
        return f"ACS redirect above {count} GPU(s)"
    return next((ports for ports in found if isinstance(ports, Unknown)), "")


def _hang(job: NcclJob, topology: Topology, cpu: Cpu, hazard: str | Unknown) -> Verdict:
    peers = peers_of(job, topology, cpu)
    if hazard == "":
        return good("Nothing redirects peer-to-peer traffic", "no translation, no ACS redirect")
    if isinstance(peers, Unknown):
        return unread(peers)
    observed = f"cutoff {peers.level}; {hazard}"
    if not peers.across_bridges:
        return good(
            "NCCL uses no P2P across host bridges here, so nothing can hang on it",
            observed,
            remedy=""
            if isinstance(hazard, Unknown)
            else "Before NCCL_P2P_LEVEL is raised: "
            "iommu=pt and no ACS redirect (see uefi-iommu-mode and nccl-acs-redirect).",
        )
    if isinstance(hazard, Unknown):
        return unknown(hazard.reason, f"P2P is in use; what may redirect it: {hazard.detail}")
    return issue(
        "P2P across host bridges is in use while its traffic is redirected: all-reduce may hang",
        Class.P1,
        Impact.HIGH,
        observed,
        "iommu=pt, no ACS redirect, or no P2P across host bridges",
        needs=Needs.REBOOT,
        remedy="Boot with iommu=pt (and pci=disable_acs_redir= for the ports above the GPUs where "
        "no VM uses passthrough); until then run the server with NCCL_P2P_DISABLE=1.",
    )


@check(
    "nccl-acs-redirect",
    "ACS redirect above GPUs",
    reads=(GPU_PATHS,),
    why="ReqRedir and CmpltRedir send peer traffic up to the root complex. On a switch port above "
    "one of several GPUs that halves bandwidth (50 against 103 GB/s measured); on a root port with "
    "one GPU the traffic crosses the root complex anyway. SrcValid+ alone is harmless.",
    source="NVIDIA NCCL user guide, GPU troubleshooting; pciutils lib/header.h (PCI_ACS_CTRL)",
    scope="gpu",
)
def acs_redirect(paths: tuple[GpuPath, ...]) -> list[Verdict]:
    """Judge the control bits of every bridge above a GPU."""
    shared = {path.bdf: _shared(path, paths) for path in paths}
    ports = sorted({port for found in shared.values() for port in found})
    return per_target((path.bdf, _acs(path, shared[path.bdf], ports)) for path in paths)


def _acs(path: GpuPath, shared: list[str], all_shared: list[str]) -> Verdict:
    ports = redirects(path)
    if isinstance(ports, Unknown):
        return unknown(ports.reason, ports.detail or "the bridges above the GPU could not be read")
    if not ports:
        return good("No bridge above the GPU redirects peer traffic", "ReqRedir- CmpltRedir-")
    if not shared:
        return info(
            "Root ports redirect peer traffic, which crosses the root complex anyway",
            f"ReqRedir+ or CmpltRedir+ on {', '.join(ports)}",
        )
    return issue(
        "A PCIe switch sends the GPU's peer traffic up to the root complex and back",
        Class.P0,
        Impact.HIGH,
        f"ReqRedir+ or CmpltRedir+ on {', '.join(shared)}",
        "ReqRedir- CmpltRedir-",
        remedy=f"Where no VM uses passthrough: boot with pci=disable_acs_redir="
        f"{';'.join(all_shared)}, or live "
        + "; ".join(f"setpci -s {port} ECAP_ACS+6.w=0000:000c" for port in all_shared),
    )


def _shared(path: GpuPath, paths: tuple[GpuPath, ...]) -> list[str]:
    """Return the redirecting ports of switches with several GPUs below, above one GPU."""
    ports = redirects(path)
    if isinstance(ports, Unknown):
        return []
    return [p for p in ports if _switch_port(path, p) and _below_switch(path, p, paths) > 1]


def _switch_port(path: GpuPath, bdf: str) -> bool:
    hop = next(h for h in path.bridges if h.bdf == bdf)
    return hop.registers.port == PortType.DOWNSTREAM


def _below_switch(path: GpuPath, port: str, paths: tuple[GpuPath, ...]) -> int:
    """Return how many GPUs are below the switch that a downstream port belongs to."""
    bridges = [hop.bdf for hop in path.bridges]
    above = bridges[bridges.index(port) - 1] if bridges.index(port) else port
    return sum(above in {hop.bdf for hop in other.bridges} for other in paths)
