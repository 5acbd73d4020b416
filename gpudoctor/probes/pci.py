"""The PCI tree from sysfs: which functions exist, and which of them are NVIDIA GPUs."""

import re
from dataclasses import dataclass

from gpudoctor.formats.listing import link_target
from gpudoctor.model import Evidence, Files, Listing, Reader, Reason, Unknown

_BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
NVIDIA = 0x10DE


@dataclass(frozen=True, slots=True)
class PciFunction:
    """One PCI function of sysfs; `path` holds its upstream bridges, root port first.

    Ids are numbers; `class_code` is 24 bits (base, sub, interface).
    """

    bdf: str
    vendor: int
    device: int
    class_code: int
    path: tuple[str, ...]

    @property
    def is_gpu(self) -> bool:
        """Return whether this is an NVIDIA display or 3D controller (not audio, not NVSwitch)."""
        return self.vendor == NVIDIA and self.class_code >> 8 in {0x0300, 0x0302}


PCI_LINKS = Listing("pci-links", ("/sys/bus/pci/devices/*",))
PCI_IDS = Files(
    "pci-ids",
    tuple(f"/sys/bus/pci/devices/*/{name}" for name in ("vendor", "device", "class", "revision")),
)


def _functions(links: Evidence, ids: Evidence) -> dict[str, PciFunction] | Unknown:
    """Return every PCI function by BDF."""
    texts = ids.texts()
    functions = {}
    for path, line in links.files.items():
        bdf = path.rsplit("/", 1)[-1]
        if isinstance(line, Unknown) or not _BDF.fullmatch(bdf):
            continue
        hops = [part for part in link_target(line).split("/") if _BDF.fullmatch(part)]
        number = {
            name: int(texts.get(f"{path}/{name}", "0"), 16)
            for name in ("vendor", "device", "class")
        }
        functions[bdf] = PciFunction(
            bdf, number["vendor"], number["device"], number["class"], tuple(hops[:-1])
        )
    return functions or Unknown(Reason.NOT_PRESENT, "no PCI bus is visible here")


PCI_FUNCTIONS: Reader[dict[str, PciFunction]] = Reader(
    "pci-functions", (PCI_LINKS, PCI_IDS), _functions
)


def _gpus(functions: dict[str, PciFunction]) -> tuple[PciFunction, ...] | Unknown:
    found = tuple(f for _, f in sorted(functions.items()) if f.is_gpu)
    return found or Unknown(Reason.NOT_PRESENT, "no NVIDIA GPU on the PCI bus of this host")


GPU_FUNCTIONS: Reader[tuple[PciFunction, ...]] = Reader("gpu-functions", (PCI_FUNCTIONS,), _gpus)
