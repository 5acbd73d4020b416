"""What NCCL does between a server's GPUs: pairs, cutoff, and where P2P may hang."""

from dataclasses import dataclass

from gpudoctor.checks.runtime_servers import flags_of
from gpudoctor.formats.cpuinfo import Cpu
from gpudoctor.formats.nccl_level import allows, default_level, user_level
from gpudoctor.formats.pci import NO_REGISTER, Acs
from gpudoctor.formats.topo import Topology
from gpudoctor.model import Reason, Unknown, Verdict, unknown
from gpudoctor.probes.gpu_paths import GpuPath, IommuGroup
from gpudoctor.probes.nccl import NcclJob
from gpudoctor.probes.pci import PciFunction
from gpudoctor.tables.drivers import arch_of


@dataclass(frozen=True, slots=True)
class Peers:
    """One server's GPUs: link kind by pair, NCCL's cutoff, and whether somebody set it."""

    links: dict[tuple[str, str], str]
    level: str
    pinned: bool
    settings: dict[str, str]

    @property
    def beyond(self) -> dict[tuple[str, str], str]:
        """Return the pairs that are farther apart than the cutoff: no P2P."""
        return {pair: link for pair, link in self.links.items() if not allows(self.level, link)}

    @property
    def across_bridges(self) -> bool:
        """Return whether P2P is used between GPUs under different host bridges or root ports."""
        near = self.links.keys() - self.beyond.keys()
        return any(self.links[pair] in {"PHB", "NODE", "SYS"} for pair in near)


def peers_of(job: NcclJob, topology: Topology, cpu: Cpu) -> Peers | Unknown:
    """Return what one server's settings make of the matrix, or why its settings are unknown."""
    if isinstance(job.settings, Unknown):
        return job.settings
    used = gpus_of(job, topology)
    pairs = topology.pairs()
    links = {pair: link for pair, link in pairs.items() if set(pair) <= used}
    pinned = user_level(job.settings)
    return Peers(
        links, pinned or default_level(cpu.is_amd, len(used)), pinned is not None, job.settings
    )


def unread(why: Unknown) -> Verdict:
    """Return that a server's NCCL settings could not be read."""
    return unknown(why.reason, f"NCCL's settings are not known: {why.detail}")


def gpus_of(job: NcclJob, topology: Topology) -> set[str]:
    """Return the GPUs that a server's ranks take: as listed, else the first ones by index."""
    env = {} if isinstance(job.server.env, Unknown) else job.server.env
    listed = [word.strip() for word in env.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if all(word.isdigit() for word in listed):
        order = [f"GPU{int(word)}" for word in listed]
    else:
        order = list(topology.gpus)
    base = flags_of(job.server).number("base-gpu-id") or 0
    return set(order[base : base + job.ranks]) & set(topology.gpus)


def redirects(path: GpuPath) -> list[str] | Unknown:
    """Return the bridges above a GPU that send peer traffic up (ACS ReqRedir or CmpltRedir)."""
    if not path.bridges:
        return Unknown(
            Reason.NOT_PRESENT,
            "no bridge is visible above the GPU (a virtual machine, or a partial record)",
        )
    found = []
    for hop in path.bridges:
        if hop.emulated:
            return Unknown(Reason.NOT_PRESENT, f"{hop.bdf} is a bridge that a hypervisor made up")
        acs = hop.registers.acs
        if isinstance(acs, Acs) and (acs.request_redirect or acs.completion_redirect):
            found.append(hop.bdf)
        elif isinstance(acs, Unknown) and acs != NO_REGISTER:
            return acs
    return found


def translated(groups: dict[str, IommuGroup | None]) -> list[str] | Unknown:
    """Return the GPUs whose IOMMU group translates addresses (type DMA or DMA-FQ)."""
    kinds = {bdf: group.kind if group else "" for bdf, group in groups.items()}
    unread = next((kind for kind in kinds.values() if isinstance(kind, Unknown)), None)
    return unread or [bdf for bdf, kind in kinds.items() if str(kind).startswith("DMA")]


def is_prone(gpus: tuple[PciFunction, ...]) -> bool:
    """Return whether two or more GPUs are of the kinds that hangs were reported for."""
    archs = [arch_of(gpu.device) for gpu in gpus]
    return sum(a is not None and a.sm in {89, 120} for a in archs) >= 2


def hazard_of(
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
