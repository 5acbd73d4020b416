"""Registers of simulated PCI functions: found by name as setpci does, written under a mask."""

import re
import struct
from dataclasses import dataclass

_CAPABILITIES = {"CAP_PM": 0x01, "CAP_MSI": 0x05, "CAP_EXP": 0x10, "CAP_MSIX": 0x11}
_EXTENDED = {"ECAP_AER": 0x0001, "ECAP_ACS": 0x000D, "ECAP_REBAR": 0x0015}
_SHAPES = {"b": "<B", "w": "<H", "l": "<I"}
_SPEC = re.compile(r"(?P<base>[A-Z_0-9a-f]+?)(?:\+(?P<offset>(?:0x)?[0-9a-f]+))?\.(?P<size>[bwl])")
# Bits that software can change: Device Control without its reset bit, ASPM of Link Control, ACS.
_WRITABLE = {("CAP_EXP", 0x8): 0x7FFF, ("CAP_EXP", 0x10): 0x0003, ("ECAP_ACS", 0x6): 0x007F}


class RegisterError(Exception):
    """A register that the function does not have, in setpci's words."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a register lies: offset and size in bytes, and the bits that can be written."""

    at: int
    size: int
    writable: int

    @property
    def shape(self) -> str:
        """Return the struct format."""
        return {1: "<B", 2: "<H", 4: "<I"}[self.size]

    def read(self, config: bytes) -> int:
        """Return the register's value."""
        return int(struct.unpack_from(self.shape, config, self.at)[0])


def register(config: bytes, name: str) -> Place:
    """Find `CAP_EXP+8.w`, `ECAP_ACS+6.w` or `04.l`. Raises RegisterError."""
    match = _SPEC.fullmatch(name)
    if match is None:
        raise RegisterError(f"Unknown register {name!r}")
    base, offset = match["base"], int(match["offset"] or "0", 16)
    size = struct.calcsize(_SHAPES[match["size"]])
    if base in _CAPABILITIES:
        start, kind = (
            _standard(config, _CAPABILITIES[base]),
            f"Capability {_CAPABILITIES[base]:04x}",
        )
    elif base in _EXTENDED:
        start = _extended(config, _EXTENDED[base])
        kind = f"Extended capability {_EXTENDED[base]:04x}"
    elif re.fullmatch(r"[0-9a-f]+", base):
        return Place(int(base, 16) + offset, size, 0)
    else:
        raise RegisterError(f"Unknown register {name!r}")
    if not start or start + offset + size > len(config):
        raise RegisterError(
            f"Instance #0 of {kind} not found - there are no capabilities with that id."
        )
    return Place(start + offset, size, _WRITABLE.get((base, offset), 0))


def masked(config: bytes, place: Place, value: int, mask: int) -> bytes:
    """Return config space after a write: bits outside the mask, and read-only bits, stay."""
    old = place.read(config)
    bits = mask & place.writable
    data = bytearray(config)
    struct.pack_into(place.shape, data, place.at, old & ~bits | value & bits)
    return bytes(data)


def _standard(config: bytes, wanted: int) -> int:
    at, steps = config[0x34] & 0xFC, 0
    while 0x40 <= at < len(config) - 1 and steps < 48:
        if config[at] == wanted:
            return at
        at, steps = config[at + 1] & 0xFC, steps + 1
    return 0


def _extended(config: bytes, wanted: int) -> int:
    at, steps = 0x100, 0
    while 0x100 <= at <= len(config) - 4 and steps < 100:
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == wanted:
            return at
        at, steps = header >> 20 & 0xFFC, steps + 1
    return 0
