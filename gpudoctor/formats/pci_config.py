"""PCI config space as sysfs gives it (64 bytes without root, 256 or 4096 with), and back."""

import struct
from dataclasses import replace
from typing import Any

from gpudoctor.formats.pci import (
    NO_REGISTER,
    WIDTHS,
    Acs,
    DevCap,
    DevCap2,
    DevCtl,
    DevCtl2,
    Ecrc,
    Link,
    LnkCap,
    LnkCtl,
    LnkCtl2,
    PortType,
    Registers,
    ResizableBar,
)
from gpudoctor.model import Reason, Unknown

EXPRESS, AER, ACS, REBAR = 0x10, 0x0001, 0x000D, 0x0015
_NEEDS_ROOT = Unknown(
    Reason.NO_PERMISSION, "PCI registers beyond the first 64 bytes can be read by root only"
)
_SHORT = Unknown(
    Reason.NOT_PRESENT,
    "the extended config space (beyond 256 bytes) cannot be reached on this host",
)
_NO_EXPRESS = Unknown(Reason.NOT_PRESENT, "it has no PCI Express capability")
_CUT = Unknown(Reason.PARSE_FAILED, "config space ends in the middle of a register")
_GONE = Unknown(Reason.NOT_PRESENT, "the function does not answer: all registers read as ones")
_ASPM = {0: (), 1: ("L0s",), 2: ("L1",), 3: ("L0s", "L1")}
_GROUPS = (
    "port dev_cap dev_ctl dev_cap2 dev_ctl2 lnk_cap lnk_sta lnk_ctl lnk_ctl2 ecrc acs rebar".split()
)


def parse(data: bytes) -> Registers:
    """Return the registers of one function. Raises ValueError when the header is cut short."""
    if len(data) < 64:
        raise ValueError(f"{len(data)} bytes of config space")
    if data[:64].count(0xFF) == 64:
        return replace(unread(_GONE), gone=True)
    vendor, device = struct.unpack_from("<HH", data, 0)
    bridge = data[0x0E] & 0x7F == 1
    return replace(
        _groups(data),
        vendor=vendor,
        device=device,
        revision=data[8],
        class_code=data[11] << 16 | data[10] << 8 | data[9],
        bus=(data[0x19], data[0x1A]) if bridge else NO_REGISTER,
    )


def unread(why: Unknown) -> Registers:
    """Return registers of which no capability could be read, for one reason."""
    values: dict[str, Any] = dict.fromkeys(_GROUPS, why)
    return Registers(**values)


def _groups(data: bytes) -> Registers:
    """Return the capability registers only."""
    if not data[6] & 0x10:
        return unread(NO_REGISTER)
    if len(data) <= 128:
        return unread(_NEEDS_ROOT)
    express = _capability(data, EXPRESS)
    if not express:
        return unread(NO_REGISTER)
    groups = _express(data, express)
    extended = _extended(data)
    if extended is None:
        return replace(groups, ecrc=_SHORT, acs=_SHORT, rebar=_SHORT)
    return replace(
        groups,
        ecrc=_ecrc(data, extended.get(AER, 0)),
        acs=_acs(data, extended.get(ACS, 0)),
        rebar=_rebar(data, extended.get(REBAR, 0)),
    )


def _capability(data: bytes, wanted: int) -> int:
    """Return the offset of a capability, or 0; a list that loops or leaves the space ends."""
    at, seen = data[0x34] & 0xFC, set[int]()
    while 0x40 <= at < min(len(data), 256) - 1 and at not in seen:
        if data[at] == wanted:
            return at
        seen.add(at)
        at = data[at + 1] & 0xFC
    return 0


def express_word(data: bytes, offset: int) -> int | Unknown:
    """Return 16 bits of the PCI Express capability by their offset; ones where nothing answers."""
    if data[:64].count(0xFF) == 64:
        return 0xFFFF
    cap = _capability(data, EXPRESS) if len(data) > 64 else 0
    if not cap:
        return _NEEDS_ROOT if len(data) == 64 else _NO_EXPRESS
    word = _read(data, "<H", cap + offset)
    return _CUT if word is None else word


def _extended(data: bytes) -> dict[int, int] | None:
    """Return the first offset of each extended capability, by id; None where out of reach.

    Without memory-mapped config space (many virtual machines) there are 256 bytes, or all ones.
    """
    if len(data) < 0x104 or data[0x100:0x104] == b"\xff" * 4:
        return None
    found: dict[int, int] = {}
    at, seen = 0x100, set[int]()
    while 0x100 <= at <= len(data) - 4 and at not in seen:
        (header,) = struct.unpack_from("<I", data, at)
        if header in (0, 0xFFFFFFFF):
            break
        seen.add(at)
        found.setdefault(header & 0xFFFF, at)
        at = header >> 20 & 0xFFC
    return found


def _read(data: bytes, shape: str, at: int) -> int | None:
    if at + struct.calcsize(shape) > len(data):
        return None
    return int(struct.unpack_from(shape, data, at)[0])


def _express(data: bytes, cap: int) -> Registers:
    """Return the Express capability's registers; version 1 has no second set."""
    flags, dev_cap = _read(data, "<H", cap + 2), _read(data, "<I", cap + 4)
    dev_ctl = _read(data, "<H", cap + 8)
    if flags is None or dev_cap is None or dev_ctl is None:
        return unread(_CUT)
    kind = flags >> 4 & 0xF
    port = PortType(kind) if kind in set(PortType) else NO_REGISTER
    groups = replace(
        unread(NO_REGISTER),
        port=port,
        dev_cap=DevCap(128 << (dev_cap & 7), bool(dev_cap & 0x20)),
        dev_ctl=DevCtl(dev_ctl),
    )
    if isinstance(port, Unknown) or port.has_link:
        groups = _link(data, cap, groups)
    return _second(data, cap, groups) if flags & 0xF >= 2 else groups


def _link(data: bytes, cap: int, groups: Registers) -> Registers:
    lnk_cap, lnk_ctl = _read(data, "<I", cap + 0x0C), _read(data, "<H", cap + 0x10)
    lnk_sta = _read(data, "<H", cap + 0x12)
    if lnk_cap is None or lnk_ctl is None or lnk_sta is None:
        return replace(groups, lnk_cap=_CUT, lnk_ctl=_CUT, lnk_sta=_CUT)
    top, now = _pair(lnk_cap), _pair(lnk_sta)
    return replace(
        groups,
        lnk_cap=top if isinstance(top, Unknown) else LnkCap(*top, _ASPM[lnk_cap >> 10 & 3]),
        lnk_ctl=LnkCtl(_ASPM[lnk_ctl & 3]),
        lnk_sta=now if isinstance(now, Unknown) else Link(*now),
    )


def _pair(word: int) -> tuple[int, int] | Unknown:
    """Return generation and width; zero, reserved or all-ones fields say that there is no link."""
    gen, width = word & 0xF, word >> 4 & 0x3F
    if not 1 <= gen <= 7 or width not in WIDTHS:
        return Unknown(Reason.NOT_PRESENT, "the link registers name no PCIe speed and width")
    return gen, width


def _second(data: bytes, cap: int, groups: Registers) -> Registers:
    cap2, ctl2 = _read(data, "<I", cap + 0x24), _read(data, "<H", cap + 0x28)
    link2 = _read(data, "<H", cap + 0x30)
    linked = not isinstance(groups.lnk_cap, Unknown)
    if cap2 is not None:
        groups = replace(groups, dev_cap2=DevCap2(bool(cap2 >> 16 & 1), bool(cap2 >> 17 & 1)))
    if ctl2 is not None:
        groups = replace(groups, dev_ctl2=DevCtl2(bool(ctl2 & 0x1000)))
    if link2 is not None and linked and 1 <= link2 & 0xF <= 7:
        groups = replace(groups, lnk_ctl2=LnkCtl2(link2 & 0xF))
    return groups


def _ecrc(data: bytes, cap: int) -> Ecrc | Unknown:
    word = _read(data, "<I", cap + 0x18)
    if not cap or word is None:
        return NO_REGISTER if not cap else _CUT
    return Ecrc(*(bool(word & bit) for bit in (0x20, 0x40, 0x80, 0x100)))


def _acs(data: bytes, cap: int) -> Acs | Unknown:
    can, does = _read(data, "<H", cap + 4), _read(data, "<H", cap + 6)
    if not cap or can is None or does is None:
        return NO_REGISTER if not cap else _CUT
    return Acs(can & 0x7F, does & 0x7F)


def _rebar(data: bytes, cap: int) -> tuple[ResizableBar, ...] | Unknown:
    first = _read(data, "<I", cap + 8)
    if not cap or first is None:
        return NO_REGISTER if not cap else _CUT
    bars = []
    for entry in range(min(first >> 5 & 7, 6)):
        can, ctl = _read(data, "<I", cap + 4 + 8 * entry), _read(data, "<I", cap + 8 + 8 * entry)
        if can is None or ctl is None:
            return _CUT
        steps = can >> 4 | (ctl >> 16) << 28
        sizes = tuple(1 << 20 + n for n in range(44) if steps >> n & 1)
        bars.append(ResizableBar(ctl & 7, 1 << 20 + (ctl >> 8 & 0x3F), sizes))
    return tuple(bars)


def build(registers: Registers) -> bytes:
    """Return 4096 bytes of config space that `parse` reads as these registers.

    For simulated machines: what is Unknown is left out, DevCap's latencies and the like are zero.
    """
    data = bytearray(4096)
    if registers.gone:
        return b"\xff" * 4096
    _build_header(data, registers)
    if not isinstance(registers.port, Unknown):
        _build_express(data, registers, registers.port)
    _build_extended(data, registers)
    return bytes(data)


def _build_header(data: bytearray, registers: Registers) -> None:
    ids = (registers.vendor, registers.device, registers.revision, registers.class_code)
    vendor, device, revision, kind = (0 if isinstance(value, Unknown) else value for value in ids)
    struct.pack_into("<HHHHI", data, 0, vendor, device, 0x0006, 0x0010, kind << 8 | revision)
    if not isinstance(registers.bus, Unknown):
        data[0x0E] = 1
        data[0x19], data[0x1A] = registers.bus


def _build_express(data: bytearray, registers: Registers, port: PortType) -> None:
    cap = data[0x34] = 0x60
    words: dict[int, int] = {0x02: 2 | port << 4, 0x00: EXPRESS}
    r = registers
    if not isinstance(r.dev_cap, Unknown):
        words[0x04] = (r.dev_cap.max_payload // 128).bit_length() - 1 | r.dev_cap.ext_tag << 5
    if not isinstance(r.dev_ctl, Unknown):
        words[0x08] = r.dev_ctl.word
    if not isinstance(r.lnk_cap, Unknown):
        words[0x0C] = r.lnk_cap.gen | r.lnk_cap.width << 4 | _states(r.lnk_cap.aspm) << 10
    if not isinstance(r.lnk_ctl, Unknown):
        words[0x10] = _states(r.lnk_ctl.aspm)
    if not isinstance(r.lnk_sta, Unknown):
        words[0x12] = r.lnk_sta.gen | r.lnk_sta.width << 4
    if not isinstance(r.dev_cap2, Unknown):
        words[0x26] = r.dev_cap2.tags10_completer | r.dev_cap2.tags10_requester << 1
    if not isinstance(r.dev_ctl2, Unknown):
        words[0x28] = r.dev_ctl2.tags10 << 12
    if not isinstance(r.lnk_ctl2, Unknown):
        words[0x30] = r.lnk_ctl2.target_gen
    for offset, word in words.items():
        struct.pack_into("<H", data, cap + offset, word)


def _states(aspm: tuple[str, ...]) -> int:
    return ("L0s" in aspm) | ("L1" in aspm) << 1


def _build_extended(data: bytearray, registers: Registers) -> None:
    """Chain the extended capabilities that are known, AER at 0x100 as every machine has it."""
    found: list[tuple[int, bytes]] = []
    if not isinstance(registers.ecrc, Unknown):
        ecrc = registers.ecrc
        bits = ecrc.generate_cap | ecrc.generate << 1 | ecrc.check_cap << 2 | ecrc.check << 3
        found.append((AER, bytes(0x14) + struct.pack("<I", bits << 5) + bytes(0x2C)))
    if not isinstance(registers.acs, Unknown):
        found.append((ACS, struct.pack("<HH", registers.acs.cap, registers.acs.ctl)))
    if not isinstance(registers.rebar, Unknown):
        found.append((REBAR, _build_rebar(registers.rebar)))
    at = 0x100
    for number, (kind, body) in enumerate(found):
        end = at + 4 + len(body)
        following = end if number + 1 < len(found) else 0
        struct.pack_into("<I", data, at, kind | 1 << 16 | following << 20)
        data[at + 4 : end] = body
        at = end


def _build_rebar(bars: tuple[ResizableBar, ...]) -> bytes:
    body = b""
    for bar in bars:
        steps = sum(1 << size.bit_length() - 21 for size in bar.sizes)
        ctl = bar.bar | len(bars) << 5 | (bar.size.bit_length() - 21) << 8 | steps >> 28 << 16
        body += struct.pack("<II", (steps & 0xFFFFFFF) << 4, ctl)
    return body
