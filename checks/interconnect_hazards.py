"""Panel 9, what redirects peer-to-peer traffic: ACS and IOMMU, and when that can hang a server."""

from collections.abc import Sequence
from dataclasses import replace

from gpudoctor.checks.interconnect_peers import (
    hazard_of,
    is_prone,
    peers_of,
    redirects,
    unread,
)
from gpudoctor.checks.runtime_servers import per_server
from gpudoctor.formats.cmdline import Cmdline
from gpudoctor.formats.cpuinfo import Cpu
from gpudoctor.formats.pci import PortType
from gpudoctor.formats.topo import Topology
from gpudoctor.model import (
    Change,
    Class,
    Impact,
    Needs,
    PciBits,
    Status,
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
from gpudoctor.probes.kernel import KERNEL_PARAMETERS
from gpudoctor.probes.nccl import NCCL_JOBS, TOPOLOGY, NcclJob
from gpudoctor.probes.pci import GPU_FUNCTIONS, PciFunction
from gpudoctor.probes.pci_hop import HANDED_OUT

Groups = dict[str, IommuGroup | None]
Alternatives = tuple[tuple[Change, ...], ...]


@check(
    "nccl-p2p-hang-risk",
    "Peer-to-peer hang risk",
    reads=(GPU_FUNCTIONS, GPU_GROUPS, NCCL_JOBS, TOPOLOGY, CPU),
    optional=(GPU_PATHS,),
    why="Where P2P runs through a translating IOMMU or ACS redirect, all-reduce was reported to "
    "hang, most of all on PCIe GPUs of the Ada and Blackwell lines; iommu=pt or clearing the "
    "redirect cured it.",
    source="NVIDIA/nccl issues 257, 1999 and 2079; vllm-project/vllm issue 51513",
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
    if len(gpus) < 2:
        return [good("One GPU: no peer-to-peer traffic")]
    hazard, prone = hazard_of(groups, paths), is_prone(gpus)
    return per_server(
        jobs, lambda job: _hang(job, topology, cpu, hazard, prone), lambda job: job.server
    )


def _hang(
    job: NcclJob, topology: Topology, cpu: Cpu, hazard: str | Unknown, prone: bool
) -> Verdict:
    peers = peers_of(job, topology, cpu)
    if hazard == "":
        return good("Nothing redirects peer-to-peer traffic", "no translation, no ACS redirect")
    if isinstance(peers, Unknown):
        return unread(peers)
    if not peers.links:
        return good("The server runs on one GPU: no peer-to-peer traffic")
    if all(link.startswith("NV") for link in peers.links.values()):
        return good("The server's GPUs talk over NVLink", f"cutoff {peers.level}")
    known = not isinstance(hazard, Unknown)
    words = hazard if known else "what redirects P2P traffic could not be read"
    observed = f"cutoff {peers.level}; {words}"
    if not peers.across_bridges:
        return info(
            "NCCL uses no P2P across host bridges now, so nothing hangs on it; "
            + ("switched on, it may" if known else "whether it would is not known"),
            observed,
            "iommu=pt and no ACS redirect before NCCL_P2P_LEVEL is raised or P2P switched on",
        )
    if isinstance(hazard, Unknown):
        return unknown(hazard.reason, f"P2P is in use; what may redirect it: {hazard.detail}")
    return issue(
        "P2P across host bridges is in use while its traffic is redirected: all-reduce may hang",
        Class.P1,
        Impact.HIGH if prone else Impact.MEDIUM,
        observed,
        "iommu=pt, no ACS redirect, or no P2P across host bridges",
        needs=Needs.REBOOT,
        remedy="Boot with iommu=pt (and pci=disable_acs_redir= for the ports above the GPUs where "
        "no VM uses passthrough); until then run the server with NCCL_P2P_DISABLE=1 and, on two "
        "GPUs, --disable-custom-all-reduce: the engine's own kernel uses P2P too.",
    )


@check(
    "nccl-acs-redirect",
    "ACS redirect above GPUs",
    reads=(GPU_PATHS,),
    optional=(KERNEL_PARAMETERS, GPU_GROUPS),
    why="ReqRedir and CmpltRedir send peer traffic up to the root complex. On a switch port above "
    "one of several GPUs that halves bandwidth (50 against 103 GB/s measured); on a root port with "
    "one GPU the traffic crosses the root complex anyway. SrcValid+ alone is harmless.",
    source="NVIDIA NCCL user guide, GPU troubleshooting; pciutils lib/header.h (PCI_ACS_CTRL); "
    "community measurements (voipmonitor/rtx6kpro)",
    scope="gpu",
    changes=(PciBits,),
)
def acs_redirect(
    paths: tuple[GpuPath, ...], parameters: Cmdline | Unknown, groups: Groups | Unknown
) -> list[Verdict]:
    """Judge the control bits of every bridge above a GPU."""
    shared = {path.bdf: _shared(path, paths) for path in paths}
    ports = sorted({port for found in shared.values() for port in found})
    unfit = _unfit(groups, paths)
    changes, remedy = _clear(ports, unfit), _lasting(ports, unfit)
    futile = isinstance(parameters, Cmdline) and "noacs" in parameters.options("pci")
    note = "; pci=noacs on the command line does nothing: Linux does not know it" if futile else ""
    verdicts = {path.bdf: _acs(path, shared[path.bdf], note) for path in paths}
    return per_target(
        (bdf, replace(v, changes=changes, remedy=remedy) if v.status is Status.ISSUE else v)
        for bdf, v in verdicts.items()
    )


# ReqRedir and CmpltRedir of the ACS control word.
_REDIRECT = 0x000C


def _clear(ports: Sequence[str], unfit: str) -> Alternatives:
    """Return the change that clears the two bits of the ports, where isolation need not stay."""
    if not ports or unfit:
        return ()
    caution = (
        "IOMMU groups are fixed at boot and would go on promising an isolation that is gone: only "
        "where no virtual machine is ever given a PCI device. Live, with the server idle; lost at "
        "reboot."
    )
    where = ports[0] if len(ports) == 1 else f"{len(ports)} ports"
    told = f"ACS ReqRedir- CmpltRedir- on {where}"
    live = PciBits(
        tuple(ports), "ECAP_ACS+6.w", 0, _REDIRECT, risk="high", caution=caution, told=told
    )
    return ((live,),)


def _unfit(groups: Groups | Unknown, paths: tuple[GpuPath, ...]) -> str:
    """Return why isolation must stay: a GPU is a guest's, or the IOMMU translates for one."""
    if isinstance(groups, Unknown):
        return f"the IOMMU groups could not be read: {groups}"
    handed = [path.bdf for path in paths if path.gpu.driver in HANDED_OUT]
    if handed:
        return f"{', '.join(handed)} in the hands of a virtual machine's driver"
    kinds = {bdf: group.kind for bdf, group in groups.items() if group is not None}
    bound = [bdf for bdf, kind in kinds.items() if not _is_identity(kind)]
    return f"the IOMMU group of {', '.join(bound)} is not identity" if bound else ""


def _is_identity(kind: str | Unknown) -> bool:
    return isinstance(kind, str) and kind.strip() == "identity"


def _lasting(ports: Sequence[str], unfit: str) -> str:
    if unfit:
        return (
            f"Not live here: {unfit}; the groups' isolation would end with it. Where no virtual "
            "machine, running or stopped, has a PCI device passed through: boot with iommu=pt "
            f'and "pci=disable_acs_redir={";".join(ports)}".'
        )
    return (
        "Better, and lasting, where no virtual machine has a PCI device passed through: boot with "
        f'"pci=disable_acs_redir={";".join(ports)}".'
    )


def _acs(path: GpuPath, shared: list[str], note: str) -> Verdict:
    ports = redirects(path)
    if isinstance(ports, Unknown):
        return unknown(ports.reason, ports.detail or "the bridges above the GPU could not be read")
    if not ports:
        return good("No bridge above the GPU redirects peer traffic", "ReqRedir- CmpltRedir-")
    if not shared:
        return info(
            "Root ports redirect peer traffic, which crosses the root complex anyway",
            f"ReqRedir+ or CmpltRedir+ on {', '.join(ports)}{note}",
        )
    return issue(
        "A PCIe switch sends the GPU's peer traffic up to the root complex and back",
        Class.P0,
        Impact.HIGH,
        f"ReqRedir+ or CmpltRedir+ on {', '.join(shared)}{note}",
        "ReqRedir- CmpltRedir-",
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
