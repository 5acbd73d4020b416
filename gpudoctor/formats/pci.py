"""PCI registers as typed values: one shape for config space from sysfs and for lspci text.

Register layouts follow the PCI Express Base Specification as named in pciutils `lib/header.h`.
A group that could not be read is Unknown; a group that was read holds plain values only.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from gpudoctor.model import Reason, Unknown

NOT_READ = Unknown(Reason.NOT_PRESENT, "not read")
# The function was read and does not have the register: absence is known, unlike all other reasons.
NO_REGISTER = Unknown(Reason.NOT_PRESENT, "the function has no such PCI register")
GIGATRANSFERS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0, 7: 128.0}
WIDTHS = (1, 2, 4, 8, 12, 16, 32)


class PortType(IntEnum):
    """What a PCIe function is (Device/Port Type of the Express capability)."""

    ENDPOINT = 0
    LEGACY_ENDPOINT = 1
    ROOT_PORT = 4
    UPSTREAM = 5
    DOWNSTREAM = 6
    PCIE_TO_PCI = 7
    PCI_TO_PCIE = 8
    INTEGRATED = 9
    EVENT_COLLECTOR = 10

    @property
    def has_link(self) -> bool:
        """Return whether link registers exist (not inside the root complex)."""
        return self not in {PortType.INTEGRATED, PortType.EVENT_COLLECTOR}


@dataclass(frozen=True, slots=True)
class DevCap:
    """Device Capabilities: `max_payload` in bytes."""

    max_payload: int
    ext_tag: bool


@dataclass(frozen=True, slots=True)
class DevCtl:
    """Device Control, the whole 16-bit word; bit 15 starts a reset on endpoints and reads 0."""

    word: int

    @property
    def relaxed_ordering(self) -> bool:
        """Return whether relaxed ordering is permitted."""
        return bool(self.word & 0x0010)

    @property
    def max_payload(self) -> int:
        """Return bytes."""
        return 128 << (self.word >> 5 & 7)

    @property
    def ext_tag(self) -> bool:
        """Return whether 8-bit tags are enabled."""
        return bool(self.word & 0x0100)

    @property
    def no_snoop(self) -> bool:
        """Return whether no-snoop is permitted."""
        return bool(self.word & 0x0800)

    @property
    def max_read_request(self) -> int:
        """Return bytes."""
        return 128 << (self.word >> 12 & 7)


@dataclass(frozen=True, slots=True)
class DevCap2:
    """Device Capabilities 2: 10-bit tags as completer and as requester; atomic operations."""

    tags10_completer: bool
    tags10_requester: bool


@dataclass(frozen=True, slots=True)
class DevCtl2:
    """Device Control 2: whether 10-bit tag requests are enabled."""

    tags10: bool


@dataclass(frozen=True, slots=True)
class LnkCap:
    """Link Capabilities: generation (1 to 7), lanes, and the ASPM states (L0s, L1) supported."""

    gen: int
    width: int
    aspm: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A link's generation (1 to 7) and lanes, as negotiated (Link Status) or as possible."""

    gen: int
    width: int

    def __str__(self) -> str:
        """Return a link as people write it: `Gen5 x16`."""
        return f"Gen{self.gen} x{self.width}"

    @property
    def rate(self) -> float:
        """Return raw GT/s over all lanes."""
        return GIGATRANSFERS[self.gen] * self.width


@dataclass(frozen=True, slots=True)
class LnkCtl:
    """Link Control: the ASPM states (L0s, L1) enabled."""

    aspm: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LnkCtl2:
    """Link Control 2: the target link generation."""

    target_gen: int


@dataclass(frozen=True, slots=True)
class Ecrc:
    """End-to-end CRC bits of the AER capability."""

    generate_cap: bool
    generate: bool
    check_cap: bool
    check: bool

    @property
    def on(self) -> bool:
        """Return whether both generation and checking are enabled."""
        return self.generate and self.check


@dataclass(frozen=True, slots=True)
class Acs:
    """Access Control Services: the seven capability and control bits."""

    cap: int
    ctl: int

    @property
    def request_redirect(self) -> bool:
        """Return whether peer requests are sent up to the root complex."""
        return bool(self.ctl & 0x04)

    @property
    def completion_redirect(self) -> bool:
        """Return whether peer completions are sent up to the root complex."""
        return bool(self.ctl & 0x08)


@dataclass(frozen=True, slots=True)
class ResizableBar:
    """One entry of the (physical) Resizable BAR capability; sizes in bytes."""

    bar: int
    size: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """One memory region: `start` 0 where unassigned; `size` in bytes, 0 where not told."""

    index: int | None
    start: int
    size: int
    prefetchable: bool


@dataclass(frozen=True, slots=True)
class Registers:
    """One function's identity and PCIe state. `bus` is (secondary, subordinate) of a bridge.

    `gone`: the function answers with all ones (off the bus, or powered down).
    """

    vendor: int | Unknown = NOT_READ
    device: int | Unknown = NOT_READ
    class_code: int | Unknown = NOT_READ
    revision: int | Unknown = NOT_READ
    gone: bool = False
    bus: tuple[int, int] | Unknown = NOT_READ
    port: PortType | Unknown = NOT_READ
    dev_cap: DevCap | Unknown = NOT_READ
    dev_ctl: DevCtl | Unknown = NOT_READ
    dev_cap2: DevCap2 | Unknown = NOT_READ
    dev_ctl2: DevCtl2 | Unknown = NOT_READ
    lnk_cap: LnkCap | Unknown = NOT_READ
    lnk_sta: Link | Unknown = NOT_READ
    lnk_ctl: LnkCtl | Unknown = NOT_READ
    lnk_ctl2: LnkCtl2 | Unknown = NOT_READ
    ecrc: Ecrc | Unknown = NOT_READ
    acs: Acs | Unknown = NOT_READ
    rebar: tuple[ResizableBar, ...] | Unknown = field(default=NOT_READ)


def generation(gigatransfers: float) -> int | Unknown:
    """Return the PCIe generation of a link speed in GT/s."""
    for gen, speed in GIGATRANSFERS.items():
        if speed == gigatransfers:
            return gen
    return Unknown(Reason.NOT_PRESENT, f"link speed {gigatransfers:g} GT/s is no PCIe speed")


def bytes_text(size: int) -> str:
    """Return a power-of-two size in words: `256 MiB`."""
    for unit, shift in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):g} {unit}"
    return f"{size} B"
