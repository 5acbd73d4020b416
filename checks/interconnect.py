"""Panel 9: how GPUs reach each other, and whether NCCL uses it."""

from collections import Counter

from gpudoctor.checks.interconnect_hazards import acs_redirect, p2p_hang_risk
from gpudoctor.checks.interconnect_nccl import (
    custom_allreduce,
    nccl_env,
    nccl_version,
    p2p_level,
)
from gpudoctor.checks.interconnect_rdma import peermem, rdma_nics
from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.formats.topo import Topology
from gpudoctor.model import (
    Class,
    Impact,
    Needs,
    Reason,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    non_issue,
    unknown,
)
from gpudoctor.probes.gpu import GPUS
from gpudoctor.probes.kernel import NUMA_NODES
from gpudoctor.probes.nccl import (
    P2P_STATES,
    TOPOLOGY,
)
from gpudoctor.probes.pci import GPU_FUNCTIONS, NVIDIA, PCI_FUNCTIONS, PciFunction
from gpudoctor.tables.software import nvlink_class

__all__ = [
    "acs_redirect",
    "custom_allreduce",
    "nccl_env",
    "nccl_version",
    "p2p_hang_risk",
    "p2p_level",
    "peermem",
    "rdma_nics",
]


def _kinds(topology: Topology) -> str:
    counted = Counter(topology.pairs().values())
    pairs = ", ".join(f"{counted[kind]} {kind}" for kind in topology.kinds())
    return f"{len(topology.gpus)} GPU(s)" + (f", pairs: {pairs}" if pairs else "")


@check(
    "nccl-topo-matrix",
    "GPU topology matrix",
    reads=(TOPOLOGY,),
    optional=(NUMA_NODES,),
    why="How far apart the GPUs are decides which transport NCCL picks and what it costs.",
    source="nvidia-smi topo -m; NVIDIA NCCL user guide, GPU troubleshooting",
    scope="gpu",
)
def topo_matrix(topology: Topology, nodes: int | Unknown) -> Verdict:
    """Show the matrix; on several NUMA nodes every GPU should know its own."""
    lost = [gpu for gpu, cpus in topology.cpus.items() if cpus == "N/A"]
    if lost and isinstance(nodes, int) and nodes > 1:
        return issue(
            "GPUs have no CPU affinity although the host has several NUMA nodes",
            Class.FW,
            Impact.LOW,
            f"N/A for {', '.join(lost)}",
            "a CPU list for each GPU",
            needs=Needs.REBOOT,
            remedy="Update the BIOS: its ACPI tables do not say which node the slots belong to.",
            why="Firmware did not tell the kernel which NUMA node these slots belong to, so "
            "nothing can place threads and memory near the GPU.",
        )
    return info("Topology as nvidia-smi sees it", _kinds(topology))


@check(
    "nccl-nvlink",
    "NVLink",
    reads=(TOPOLOGY, GPU_FUNCTIONS),
    optional=(GPUS,),
    why="NVLink carries GPU-to-GPU traffic far faster than PCIe, where the product has it.",
    source="NVIDIA data sheets; nvidia-smi topo -m",
    scope="gpu",
)
def nvlink(
    topology: Topology, functions: tuple[PciFunction, ...], gpus: tuple[Gpu, ...] | Unknown
) -> Verdict:
    """Judge links against what the product line has."""
    classes = {nvlink_class(function.device) for function in functions}
    pairs = topology.pairs()
    linked = {gpu for pair, link in pairs.items() if link.startswith("NV") for gpu in pair}
    observed = _kinds(topology)
    if classes == {"none"} and not linked:
        return non_issue(
            "These cards have no NVLink: PCIe is their only link",
            observed,
            why="The product line has no NVLink connector, so no bridge can be fitted and none is "
            "missing.",
        )
    if classes == {"fabric"} and len(topology.gpus) > 1 and len(linked) < len(topology.gpus):
        if not isinstance(gpus, Unknown) and any(g.mig.current == "Enabled" for g in gpus):
            return info("MIG is enabled: no NVLink between slices", observed)
        if not isinstance(gpus, Unknown) and any(_in_guest(g) for g in gpus):
            return info("A virtual machine without the GPUs' NVLink", observed, why=_GUEST)
        return issue(
            "GPUs with NVLink on board have no NVLink to any peer",
            Class.FW,
            Impact.HIGH,
            f"without: {', '.join(g for g in topology.gpus if g not in linked)}",
            "NV# between GPUs",
            needs=Needs.POWER_CYCLE,
            remedy="Check the fabric manager and `nvidia-smi nvlink -s`; then power-cycle.",
        )
    if linked:
        return good("NVLink connects GPUs", observed)
    return info(
        "No NVLink between GPUs (it takes a bridge here, or the product is not known)", observed
    )


_GUEST = "The hypervisor decides which links a guest gets; GPUs may be passed through without them."


def _in_guest(gpu: Gpu) -> bool:
    return gpu.virtualization in {"Pass-Through", "VGPU", "vGPU"}


@check(
    "nccl-nvswitch-misid",
    "NVSwitch, or not",
    reads=(PCI_FUNCTIONS,),
    why="A stray VGA device or bridge is not an NVSwitch: those are vendor 10de, class 0680.",
    source="pci.ids (1a03:1150, 1a03:2000)",
)
def nvswitch(functions: dict[str, PciFunction]) -> list[Verdict]:
    """Name NVSwitches, and the BMC's graphics that is taken for one."""
    switches = [f for f in functions.values() if f.vendor == NVIDIA and f.class_code >> 8 == 0x0680]
    bmc = [f for f in functions.values() if f.vendor == 0x1A03 and f.class_code >> 8 == 0x0300]
    found = []
    if bmc:
        found.append(
            non_issue(
                "An ASPEED BMC's graphics is on the bus: unrelated to NVIDIA interconnects",
                ", ".join(f"{f.bdf} {f.label}" for f in bmc),
                targets=tuple(f.bdf for f in bmc),
                why="It is the VGA of the server's remote management (AST2500 or AST2600), behind "
                "its own 1a03:1150 bridge; it is no NVSwitch.",
            )
        )
    if switches:
        observed = ", ".join(f"{f.bdf} {f.label}" for f in switches)
        found.append(info(f"{len(switches)} NVSwitch function(s) on the bus", observed))
    return found or [info("No NVSwitch on the PCI bus")]


_GF = (
    "NVIDIA's driver withholds PCIe peer-to-peer from most GeForce cards by policy, whatever the "
    "board and the firmware: engines then go through host memory."
)


@check(
    "nccl-p2p-capability",
    "Peer-to-peer permission",
    reads=(P2P_STATES,),
    optional=(GPUS,),
    why="This is the driver's own permission. OK does not mean that NCCL uses P2P, nor that it is "
    "fast.",
    source="nvidia-smi topo -p2p r; NVIDIA/open-gpu-kernel-modules p2p_caps.c",
    scope="gpu",
)
def p2p_capability(states: dict[tuple[str, str], str], gpus: tuple[Gpu, ...] | Unknown) -> Verdict:
    """Judge the worst state of all pairs."""
    counted = Counter(states.values())
    observed = ", ".join(f"{state} \u00d7{n}" for state, n in counted.most_common())
    if not states:
        return info("One GPU: there is no pair")
    known = () if isinstance(gpus, Unknown) else gpus
    geforce = bool(known) and all("GeForce" in str(gpu.name) for gpu in known)
    if geforce and counted.keys() & {"CNS", "TNS", "GNS", "NS"}:
        return non_issue("The driver gives these GeForce cards no peer-to-peer", observed, why=_GF)
    if counted.keys() & {"CNS", "TNS"}:
        return issue(
            "The platform refuses peer-to-peer between some GPUs",
            Class.P1,
            Impact.MEDIUM,
            observed,
            "OK",
            needs=Needs.REBOOT,
            remedy="Check the IOMMU mode (iommu=pt), ACS and the slots the GPUs are in.",
        )
    if "DR" in counted:
        return issue(
            "A registry key of the nvidia module disables peer-to-peer",
            Class.P1,
            Impact.LOW,
            observed,
            "OK",
            needs=Needs.MODULE_RELOAD,
            remedy="Remove the P2P override from NVreg_RegistryDwords and reload the module.",
        )
    if counted.keys() & {"GNS", "NS"}:
        return info("The driver says that these GPUs do not support peer-to-peer", observed)
    if counted.keys() == {"OK"}:
        return good("The driver permits peer-to-peer between all GPUs", observed, "OK")
    return unknown(Reason.NOT_PRESENT, f"the driver does not know for every pair ({observed})")


@check(
    "nccl-p2p-bandwidth",
    "Peer-to-peer bandwidth",
    reads=(GPU_FUNCTIONS,),
    why="Same NUMA node 53-56 GB/s and across sockets 36-51 GB/s are usual on PCIe Gen5 x16; far "
    "less points to ACS redirect, a narrow link or the IOMMU.",
    source="NVIDIA nvbandwidth; community measurements (voipmonitor/rtx6kpro)",
    scope="gpu",
)
def p2p_bandwidth(gpus: tuple[PciFunction, ...]) -> Verdict:
    """Say that it was not measured: that would disturb a server at work."""
    if len(gpus) < 2:
        return unknown(Reason.NOT_PRESENT, "one GPU: there is no pair to measure")
    return unknown(
        Reason.NOT_MEASURED,
        "not measured: the copy would disturb the GPUs; on an idle host run "
        "`nvbandwidth -t device_to_device_memcpy_read_ce`",
    )
