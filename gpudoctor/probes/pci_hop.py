"""One function on a GPU's path: its sysfs files and links, or its part of an lspci dump."""

from dataclasses import dataclass

from gpudoctor.formats import pci_config
from gpudoctor.formats.listing import link_target
from gpudoctor.formats.lspci import LspciFunction
from gpudoctor.formats.pci import Link, Region, Registers
from gpudoctor.formats.pci_sysfs import AerCounts, parse_aer, parse_link, parse_resource
from gpudoctor.model import Evidence, Reason, Unknown
from gpudoctor.probes.pci import DEVICES, PciFunction

# The state of sleep comes first: reading `config` wakes the function.
HOP_FILES = (
    "power/runtime_status config current_link_speed current_link_width max_link_speed "
    "max_link_width numa_node local_cpulist resource aer_dev_correctable aer_dev_nonfatal "
    "aer_dev_fatal power/control link/l0s_aspm link/l1_aspm link/l1_1_aspm link/l1_2_aspm "
    "link/l1_1_pcipm link/l1_2_pcipm sriov_totalvfs sriov_numvfs iommu_group/type"
).split()
CONFIG_BYTES = 4096
# Drivers that hold a function for a virtual machine.
HANDED_OUT = {"vfio-pci", "pci-stub", "pciback", "xen-pciback", "nvgrace-gpu-vfio-pci"}
_OTHERS = 64 << 20
# Ports that a hypervisor makes up: their registers say nothing of the slot underneath.
_EMULATED = {0x1B36, 0x1AF4, 0x15AD, 0x1414, 0x80EE}


@dataclass(frozen=True, slots=True)
class Hop:
    """One function on a GPU's path. `numa_node` -1: firmware did not say.

    `link` is what was negotiated, `link_max` what the function can do; `aspm` the states enabled.
    `vfs` is (enabled, possible) SR-IOV functions. Values not read are Unknown.
    """

    function: PciFunction
    registers: Registers
    link: Link | Unknown
    link_max: Link | Unknown
    aspm: tuple[str, ...] | Unknown
    numa_node: int | Unknown
    cpulist: str | Unknown
    regions: tuple[Region, ...] | Unknown
    aer: AerCounts | Unknown
    power_control: str | Unknown
    runtime_status: str | Unknown
    driver: str | Unknown
    vfs: tuple[int, int] | Unknown

    @property
    def bdf(self) -> str:
        """Return the function's address."""
        return self.function.bdf

    @property
    def emulated(self) -> bool:
        """Return whether a hypervisor made this function up."""
        return self.function.vendor in _EMULATED

    @property
    def aperture(self) -> Region | None:
        """Return the largest prefetchable region: what NVIDIA calls BAR1, whatever its number.

        None where it is not listed: regions of up to 64 MiB are registers and the driver's own.
        A region without a place has no size in an lspci dump, and still counts.
        """
        if isinstance(self.regions, Unknown):
            return None
        wide = [r for r in self.regions if r.prefetchable and (r.size > _OTHERS or not r.start)]
        return max(wide, key=lambda region: region.size, default=None)


@dataclass(frozen=True, slots=True)
class _Source:
    """One function's sysfs files and links, and what an lspci dump says of it."""

    bdf: str
    files: Evidence
    links: Evidence
    dumped: LspciFunction | None

    def text(self, name: str) -> str | Unknown:
        answer = self.files.get(f"{DEVICES}/{self.bdf}/{name}")
        return (self.files.problem or answer) if isinstance(answer, Unknown) else answer.strip()

    def number(self, name: str) -> int | Unknown:
        text = self.text(name)
        return text if isinstance(text, Unknown) else int(text)

    def registers(self) -> Registers:
        """Return config space, or the dump's registers where that tells more."""
        path = f"{DEVICES}/{self.bdf}/config"
        raw = self.files.files.get(path, self.files.problem or _absent(path))
        if self.dumped and (isinstance(raw, Unknown) or len(raw) <= 128):
            return self.dumped.registers
        return pci_config.unread(raw) if isinstance(raw, Unknown) else pci_config.parse(raw)

    def link(self, which: str, told: Link | Unknown) -> Link | Unknown:
        """Return the current or the max link by sysfs, else by registers."""
        speed, width = self.text(f"{which}_link_speed"), self.text(f"{which}_link_width")
        if isinstance(speed, Unknown) or isinstance(width, Unknown):
            return told
        return parse_link(speed, width)

    def aspm(self, registers: Registers) -> tuple[str, ...] | Unknown:
        if not isinstance(registers.lnk_ctl, Unknown):
            return registers.lnk_ctl.aspm
        states = {"L0s": self.text("link/l0s_aspm"), "L1": self.text("link/l1_aspm")}
        if all(isinstance(text, Unknown) for text in states.values()):
            return registers.lnk_ctl
        return tuple(state for state, text in states.items() if text == "1")

    def aer(self) -> AerCounts | Unknown:
        texts = [self.text(f"aer_dev_{kind}") for kind in ("correctable", "nonfatal", "fatal")]
        unread = next((text for text in texts if isinstance(text, Unknown)), None)
        return unread or AerCounts(*(parse_aer(text) for text in texts if isinstance(text, str)))

    def driver(self) -> str | Unknown:
        """Return the bound driver's name, an empty string where none is bound."""
        line = self.links.files.get(f"{DEVICES}/{self.bdf}/driver")
        if isinstance(line, bytes):
            name = link_target(line).rsplit("/", 1)[-1]
            return name or Unknown(Reason.PARSE_FAILED, f"{self.bdf}: where driver leads is untold")
        if self.dumped:
            return self.dumped.driver
        return self.links.unread or ""

    def vfs(self) -> tuple[int, int] | Unknown:
        on, total = self.number("sriov_numvfs"), self.number("sriov_totalvfs")
        if isinstance(on, Unknown):
            return on
        return total if isinstance(total, Unknown) else (on, total)

    def regions(self) -> tuple[Region, ...] | Unknown:
        text = self.text("resource")
        if not isinstance(text, Unknown):
            return parse_resource(text)
        return self.dumped.regions if self.dumped and self.dumped.regions else text


def _absent(path: str) -> Unknown:
    return Unknown(Reason.NOT_PRESENT, f"{path}: not there")


def read_hop(
    function: PciFunction, files: Evidence, links: Evidence, dumped: LspciFunction | None
) -> Hop:
    """Return one function's state: from sysfs where it was read, else from an lspci dump."""
    source = _Source(function.bdf, files, links, dumped)
    registers = source.registers()
    cap = registers.lnk_cap
    able = cap if isinstance(cap, Unknown) else Link(cap.gen, cap.width)
    node = source.number("numa_node")
    if isinstance(node, Unknown) and source.dumped:
        node = source.dumped.numa_node
    return Hop(
        function,
        registers,
        source.link("current", registers.lnk_sta),
        source.link("max", able),
        source.aspm(registers),
        node,
        source.text("local_cpulist"),
        source.regions(),
        source.aer(),
        source.text("power/control"),
        source.text("power/runtime_status"),
        source.driver(),
        source.vfs(),
    )
