"""The PCI tree: which functions exist, which are NVIDIA GPUs, and the state of each GPU's path.

Live audits read sysfs only. A recording may instead hold the text of `lspci -vvv`, which stands in
wherever sysfs was not read.
"""

import re
from dataclasses import dataclass

from gpudoctor.formats import lspci
from gpudoctor.formats.listing import link_target
from gpudoctor.formats.lspci import LspciFunction
from gpudoctor.model import Evidence, Files, Listing, Reader, Reason, Unknown
from gpudoctor.text import one_line

BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
NVIDIA = 0x10DE
DEVICES = "/sys/bus/pci/devices"


@dataclass(frozen=True, slots=True)
class PciFunction:
    """One PCI function; `path` holds its upstream bridges, root port first.

    Ids are numbers, 0 where not told; `class_code` is 24 bits (base, sub, interface). `recorded`
    says that it is known from an lspci dump only.
    """

    bdf: str
    vendor: int
    device: int
    class_code: int
    path: tuple[str, ...]
    recorded: bool = False
    name: str = ""

    @property
    def is_gpu(self) -> bool:
        """Return whether this is an NVIDIA display or 3D controller (not audio, not NVSwitch)."""
        return self.vendor == NVIDIA and self.class_code >> 8 in {0x0300, 0x0302}

    @property
    def ids(self) -> str:
        """Return `vendor:device` as lspci -nn prints it, `????` for what was not told."""
        return ":".join(f"{n:04x}" if n else "????" for n in (self.vendor, self.device))

    @property
    def label(self) -> str:
        """Return the ids, or what a dump without them calls the function."""
        told = self.vendor and self.device
        return self.ids if told else self.name or "ids not shown"


PCI_LINKS = Listing("pci-links", (f"{DEVICES}/*",))
PCI_IDS = Files(
    "pci-ids",
    tuple(f"{DEVICES}/*/{name}" for name in ("vendor", "device", "class", "revision")),
)
# No such file exists on any machine: live audits find it absent, and `--from` puts a dump's text
# there, so that lspci (which touches VPD) is never run yet its text can be read. The usual cap
# keeps it in the job of the other small files; recorded answers have none.
LSPCI_PATH = "/gpudoctor/lspci"
LSPCI_TEXT = Files("lspci-text", (LSPCI_PATH,))


def _dump(evidence: Evidence) -> dict[str, LspciFunction] | Unknown:
    text = evidence.get(LSPCI_PATH)
    if isinstance(text, Unknown):
        return evidence.problem or text
    return lspci.parse(text) or Unknown(Reason.PARSE_FAILED, "the text is no lspci dump")


LSPCI_DUMP: Reader[dict[str, LspciFunction]] = Reader("lspci-dump", (LSPCI_TEXT,), _dump)


def _functions(
    links: Evidence, ids: Evidence, dump: dict[str, LspciFunction] | Unknown
) -> dict[str, PciFunction] | Unknown:
    """Return every PCI function by BDF: from sysfs, else from an lspci dump."""
    found = {} if links.problem or ids.problem else _listed(links, ids.texts())
    if found:
        return found
    if not isinstance(dump, Unknown):
        return {bdf: _recorded(dump, bdf) for bdf in dump}
    return links.problem or ids.problem or Unknown(Reason.NOT_PRESENT, "no PCI bus is visible here")


def _listed(links: Evidence, texts: dict[str, str]) -> dict[str, PciFunction]:
    functions = {}
    for path, line in links.files.items():
        bdf = path.rsplit("/", 1)[-1]
        if isinstance(line, Unknown) or not BDF.fullmatch(bdf):
            continue
        hops = [part for part in link_target(line).split("/") if BDF.fullmatch(part)]
        number = {
            name: int(texts.get(f"{path}/{name}", "0"), 16)
            for name in ("vendor", "device", "class")
        }
        functions[bdf] = PciFunction(
            bdf, number["vendor"], number["device"], number["class"], tuple(hops[:-1])
        )
    return functions


def _recorded(dump: dict[str, LspciFunction], bdf: str) -> PciFunction:
    known = dump[bdf].registers
    vendor, device, kind = (
        0 if isinstance(value, Unknown) else value
        for value in (known.vendor, known.device, known.class_code)
    )
    above, name = lspci.upstream(dump, bdf), re.split(r" \((?:rev|prog-if) ", dump[bdf].name)[0]
    return PciFunction(bdf, vendor, device, kind, above, recorded=True, name=one_line(name, 80))


PCI_FUNCTIONS: Reader[dict[str, PciFunction]] = Reader(
    "pci-functions", (PCI_LINKS, PCI_IDS, LSPCI_DUMP), _functions, tolerant=True
)


def _gpus(functions: dict[str, PciFunction]) -> tuple[PciFunction, ...] | Unknown:
    found = tuple(f for _, f in sorted(functions.items()) if f.is_gpu)
    return found or Unknown(Reason.NOT_PRESENT, "no NVIDIA GPU on the PCI bus of this host")


GPU_FUNCTIONS: Reader[tuple[PciFunction, ...]] = Reader("gpu-functions", (PCI_FUNCTIONS,), _gpus)
