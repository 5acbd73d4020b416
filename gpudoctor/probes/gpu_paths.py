"""Every GPU with the bridges above it, and its IOMMU group."""

from dataclasses import dataclass

from gpudoctor.formats.listing import link_target
from gpudoctor.formats.lspci import LspciFunction
from gpudoctor.model import Evidence, Files, Later, Listing, Reader, Reason, Unknown
from gpudoctor.probes.pci import (
    BDF,
    DEVICES,
    GPU_FUNCTIONS,
    LSPCI_DUMP,
    PCI_FUNCTIONS,
    PciFunction,
)
from gpudoctor.probes.pci_hop import CONFIG_BYTES, HOP_FILES, Hop, read_hop

GUEST = (
    "The real port above the GPU does not show here (a virtual machine, or a partial record): the "
    "hypervisor decides on this register."
)
_RECORDED = Unknown(Reason.NOT_IN_RECORDING, "an lspci dump does not tell it")


@dataclass(frozen=True, slots=True)
class GpuPath:
    """A GPU and the bridges above it, root port first."""

    gpu: Hop
    bridges: tuple[Hop, ...]

    @property
    def bdf(self) -> str:
        """Return the GPU's address."""
        return self.gpu.bdf

    @property
    def hops(self) -> tuple[Hop, ...]:
        """Return all functions, endpoint first."""
        return (self.gpu, *reversed(self.bridges))

    @property
    def port(self) -> Hop | None:
        """Return the port that the GPU's link ends in, or None where the bus shows none."""
        return self.bridges[-1] if self.bridges else None

    @property
    def is_cut(self) -> bool:
        """Return whether the real port above the GPU does not show."""
        return self.port is None or self.port.emulated

    @property
    def root(self) -> Hop | None:
        """Return the topmost bridge."""
        return self.bridges[0] if self.bridges else None


@dataclass(frozen=True, slots=True)
class IommuGroup:
    """A GPU's IOMMU group: its number, its domain type (identity, DMA, …), its members' BDFs."""

    number: int
    kind: str | Unknown
    members: tuple[str, ...]


def _on_path(gpus: tuple[PciFunction, ...]) -> list[str]:
    """Return the BDFs of GPUs and the bridges above them, in bus order, of a live bus."""
    return sorted({bdf for gpu in gpus if not gpu.recorded for bdf in (gpu.bdf, *gpu.path)})


def _path_files(gpus: tuple[PciFunction, ...]) -> Files | Unknown:
    names = tuple(f"{DEVICES}/{bdf}/{name}" for bdf in _on_path(gpus) for name in HOP_FILES)
    return Files("gpu-path-files", names, cap=CONFIG_BYTES) if names else _RECORDED


def _path_links(gpus: tuple[PciFunction, ...]) -> Listing | Unknown:
    names = tuple(f"{DEVICES}/{bdf}/driver" for bdf in _on_path(gpus))
    ends = [f"{DEVICES}/{gpu.bdf}/iommu_group" for gpu in gpus if not gpu.recorded]
    groups = tuple(name for end in ends for name in (end, f"{end}/devices/*"))
    return Listing("gpu-path-links", names + groups) if names else _RECORDED


PATH_FILES = Later("gpu-path-files", (GPU_FUNCTIONS,), _path_files)
PATH_LINKS = Later("gpu-path-links", (GPU_FUNCTIONS,), _path_links)


def _paths(
    gpus: tuple[PciFunction, ...] | Unknown,
    functions: dict[str, PciFunction] | Unknown,
    files: Evidence,
    links: Evidence,
    dump: dict[str, LspciFunction] | Unknown,
) -> tuple[GpuPath, ...] | Unknown:
    if isinstance(gpus, Unknown) or isinstance(functions, Unknown):
        return gpus if isinstance(gpus, Unknown) else Unknown(Reason.NOT_PRESENT, "no PCI bus")
    told = {} if isinstance(dump, Unknown) else dump
    hops = {
        bdf: read_hop(functions[bdf], files, links, told.get(bdf))
        for gpu in gpus
        for bdf in (gpu.bdf, *gpu.path)
        if bdf in functions
    }
    return tuple(
        GpuPath(hops[gpu.bdf], tuple(hops[bdf] for bdf in gpu.path if bdf in hops)) for gpu in gpus
    )


GPU_PATHS: Reader[tuple[GpuPath, ...]] = Reader(
    "gpu-paths",
    (GPU_FUNCTIONS, PCI_FUNCTIONS, PATH_FILES, PATH_LINKS, LSPCI_DUMP),
    _paths,
    tolerant=True,
)


def _groups(
    gpus: tuple[PciFunction, ...] | Unknown,
    files: Evidence,
    links: Evidence,
    dump: dict[str, LspciFunction] | Unknown,
) -> dict[str, IommuGroup | None] | Unknown:
    """Return each GPU's IOMMU group by BDF; None where the kernel made none (IOMMU off)."""
    if isinstance(gpus, Unknown):
        return gpus
    if gpus[0].recorded:
        return _dumped_groups(gpus, {} if isinstance(dump, Unknown) else dump)
    if links.unread:
        return links.unread
    return {gpu.bdf: _group(gpu.bdf, files, links) for gpu in gpus}


def _group(bdf: str, files: Evidence, links: Evidence) -> IommuGroup | None:
    line = links.files.get(f"{DEVICES}/{bdf}/iommu_group")
    if not isinstance(line, bytes):
        return None
    inside = f"{DEVICES}/{bdf}/iommu_group/devices/"
    names = [path.removeprefix(inside) for path in links.files if path.startswith(inside)]
    return IommuGroup(
        int(link_target(line).rsplit("/", 1)[-1]),
        files.get(f"{DEVICES}/{bdf}/iommu_group/type"),
        tuple(sorted(name for name in names if BDF.fullmatch(name))),
    )


def _dumped_groups(
    gpus: tuple[PciFunction, ...], dump: dict[str, LspciFunction]
) -> dict[str, IommuGroup | None] | Unknown:
    groups: dict[str, IommuGroup | None] = {}
    if not any(_is_host_bridge(other) for other in dump.values()):
        return Unknown(Reason.NOT_IN_RECORDING, "the lspci dump holds a part of the bus only")
    for gpu in gpus:
        number = dump[gpu.bdf].iommu_group
        if isinstance(number, Unknown):
            return number
        members = tuple(bdf for bdf, other in dump.items() if other.iommu_group == number)
        groups[gpu.bdf] = IommuGroup(number, _RECORDED, members)
    return groups


def _is_host_bridge(function: LspciFunction) -> bool:
    kind = function.registers.class_code
    return isinstance(kind, int) and kind >> 8 == 0x0600


GPU_GROUPS: Reader[dict[str, IommuGroup | None]] = Reader(
    "gpu-iommu-groups",
    (GPU_FUNCTIONS, PATH_FILES, PATH_LINKS, LSPCI_DUMP),
    _groups,
    tolerant=True,
)
