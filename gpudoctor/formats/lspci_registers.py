"""The register lines of one function in `lspci -vvv`, back into typed registers."""

import re
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
    ResizableBar,
    generation,
)
from gpudoctor.model import Reason, Unknown

GROUPS = (
    "port dev_cap dev_ctl dev_cap2 dev_ctl2 lnk_cap lnk_sta lnk_ctl lnk_ctl2 ecrc acs rebar".split()
)
_SILENT = Unknown(Reason.NOT_IN_RECORDING, "this lspci dump does not print it")
# Registers that every PCI Express function has, and one that older pciutils cannot print.
_UNPRINTED = {"port", "dev_cap", "dev_ctl", "lnk_sta", "dev_ctl2"}
# Those beyond 256 bytes, which lspci cannot reach on every host: it then prints none of them.
_EXTENDED = {"ecrc", "acs", "rebar"}
_PORTS = {
    "Endpoint": PortType.ENDPOINT,
    "Legacy Endpoint": PortType.LEGACY_ENDPOINT,
    "Root Port": PortType.ROOT_PORT,
    "Upstream Port": PortType.UPSTREAM,
    "Downstream Port": PortType.DOWNSTREAM,
    "PCI-Express to PCI/PCI-X Bridge": PortType.PCIE_TO_PCI,
    "PCI/PCI-X to PCI-Express Bridge": PortType.PCI_TO_PCIE,
    "Root Complex Integrated Endpoint": PortType.INTEGRATED,
    "Root Complex Event Collector": PortType.EVENT_COLLECTOR,
}
# Each bit of DevCtl by its name in this pciutils and in those before 3.0.
_DEVCTL = {
    0: ("CorrErr", "Correctable"),
    1: ("NonFatalErr", "Non-Fatal"),
    2: ("FatalErr", "Fatal"),
    3: ("UnsupReq", "Unsupported"),
    4: ("RlxdOrd",),
    8: ("ExtTag",),
    9: ("PhantFunc",),
    10: ("AuxPwr",),
    11: ("NoSnoop",),
}
_ACS = "SrcValid TransBlk ReqRedir CmpltRedir UpstreamFwd EgressCtrl DirectTrans".split()
_ECRC = (
    ("ECRCGenCap", "GenCap"),
    ("ECRCGenEn", "CGenEn"),
    ("ECRCChkCap", "ChkCap"),
    ("ECRCChkEn", "ChkEn"),
)
_LABEL = re.compile(r"^(?:[A-Z][A-Za-z]+\d?|[A-Z][A-Za-z ]+):(?:\s|$)")
_SIZES = re.compile(r"BAR (\d): current size: (\w+)(?:, supported: ([\w ]*))?")
_UNITS = {"MB": 20, "GB": 30, "TB": 40, "PB": 50, "EB": 60}


def all_of(why: Unknown) -> dict[str, Any]:
    """Return every register group as unknown for one reason."""
    return dict.fromkeys(GROUPS, why)


def mentioned(lines: str) -> bool:
    """Return whether the record holds register lines at all."""
    return re.search(r"^(?:LnkSta|LnkCap|DevCtl|ACSCtl|BAR \d: current)", lines, re.M) is not None


def groups(lines: str) -> dict[str, Any]:
    """Return the register groups that the lines of one function print."""
    at = _blocks(lines)
    found = {
        "port": _port(lines),
        "dev_cap": _dev_cap(at.get("DevCap", "")),
        "dev_ctl": _dev_ctl(at.get("DevCtl", "")),
        "dev_cap2": _tags(at.get("DevCap2", "")),
        "dev_ctl2": _tags_enabled(at.get("DevCtl2", "")),
        "lnk_cap": _lnk_cap(at.get("LnkCap", "")),
        "lnk_sta": _lnk_sta(at.get("LnkSta", "")),
        "lnk_ctl": _lnk_ctl(at.get("LnkCtl", "")),
        "lnk_ctl2": _lnk_ctl2(at.get("LnkCtl2", "")),
        "ecrc": _ecrc(at.get("AERCap", "")),
        "acs": _acs(at.get("ACSCap", ""), at.get("ACSCtl", "")),
        "rebar": _rebar(lines),
    }
    whole = re.search(r"^Capabilities: .*Express", lines, re.M) is not None
    extended = whole and re.search(r"^Capabilities: \[[1-9a-f][0-9a-f]{2}\b", lines, re.M)
    return {
        name: value
        if value is not None
        else _missing(name, bool(extended) if name in _EXTENDED else whole)
        for name, value in found.items()
    }


def _missing(name: str, whole: bool) -> Unknown:
    """Return why a group is not there: only a record with its block of registers proves absence."""
    return NO_REGISTER if whole and name not in _UNPRINTED else _SILENT


def _blocks(lines: str) -> dict[str, str]:
    """Return the first text of each labelled register, its continuation lines joined."""
    blocks: dict[str, str] = {}
    label: str | None = None
    for line in lines.split("\n"):
        if _LABEL.match(line) or line.startswith("Capabilities"):
            label = line.partition(":")[0]
            label = None if label in blocks else label
            line = line.partition(":")[2]
        if label:
            blocks[label] = f"{blocks.get(label, '')} {line.strip()}"
    return blocks


def _flag(text: str, *names: str) -> bool | None:
    """Return the sign behind a flag's name, or None where it is not printed."""
    for name in names:
        found = re.search(rf"(?<![\w-]){name}([+-])", text)
        if found:
            return found[1] == "+"
    return None


def _payload(text: str, name: str) -> int | None:
    found = re.search(rf"{name} (\d+) bytes", text)
    size = int(found[1]) if found else 0
    return size if size in {128 << n for n in range(8)} else None


def _port(lines: str) -> PortType | None:
    found = re.search(r"^Capabilities: \[\w+\] Express (?:\(v\d\) )?([^,(\n]*)", lines, re.M)
    return _PORTS.get(found[1].strip()) if found else None


def _dev_cap(text: str) -> DevCap | None:
    payload, tag = _payload(text, "MaxPayload"), _flag(text, "ExtTag")
    return None if payload is None or tag is None else DevCap(payload, tag)


def _dev_ctl(text: str) -> DevCtl | None:
    payload, read = _payload(text, "MaxPayload"), _payload(text, "MaxReadReq")
    if payload is None or read is None:
        return None
    word = (payload // 128).bit_length() - 1 << 5 | (read // 128).bit_length() - 1 << 12
    for bit, names in _DEVCTL.items():
        word |= bool(_flag(text, *names)) << bit
    return DevCtl(word | bool(_flag(text, "BrConfRtry")) << 15)


def _tags(text: str) -> DevCap2 | None:
    completer, requester = _flag(text, "10BitTagComp"), _flag(text, "10BitTagReq")
    return None if completer is None or requester is None else DevCap2(completer, requester)


def _tags_enabled(text: str) -> DevCtl2 | None:
    enabled = _flag(text, "10BitTagReq")
    return None if enabled is None else DevCtl2(enabled)


def _speed_width(text: str) -> tuple[int, int] | None:
    found = re.search(r"Speed ([\d.]+)GT/s[^,]*, Width x(\d+)", text)
    gen = generation(float(found[1])) if found else None
    if found is None or not isinstance(gen, int) or int(found[2]) not in WIDTHS:
        return None
    return gen, int(found[2])


def _states(text: str) -> tuple[str, ...]:
    return tuple(state for state in ("L0s", "L1") if re.search(rf"\b{state}\b", text))


def _lnk_cap(text: str) -> LnkCap | None:
    link = _speed_width(text)
    aspm = re.search(r"ASPM ([^,]*)", text)
    return LnkCap(*link, _states(aspm[1])) if link and aspm else None


def _lnk_sta(text: str) -> Link | None:
    link = _speed_width(text)
    return Link(*link) if link else None


def _lnk_ctl(text: str) -> LnkCtl | None:
    found = re.search(r"ASPM ([^;]*);", text)
    return LnkCtl(_states(found[1])) if found else None


def _lnk_ctl2(text: str) -> LnkCtl2 | None:
    found = re.search(r"Target Link Speed: ([\d.]+)GT/s", text)
    gen = generation(float(found[1])) if found else None
    return LnkCtl2(gen) if isinstance(gen, int) else None


def _ecrc(text: str) -> Ecrc | None:
    bits = [_flag(text, *names) for names in _ECRC]
    known = [bit for bit in bits if bit is not None]
    return Ecrc(*known) if len(known) == 4 else None


def _acs(cap: str, ctl: str) -> Acs | None:
    words = [
        sum(bool(_flag(text, name)) << bit for bit, name in enumerate(_ACS)) for text in (cap, ctl)
    ]
    return Acs(*words) if "SrcValid" in cap and "SrcValid" in ctl else None


def _rebar(lines: str) -> tuple[ResizableBar, ...] | None:
    """Return the physical Resizable BAR entries; the virtual one (SR-IOV) is another capability."""
    block = re.search(
        r"^Capabilities: \[[^\]]*\] (?:Physical )?Resizable BAR.*\n((?:BAR \d: .*(?:\n|$))*)",
        lines,
        re.M,
    )
    if block is None:
        return None
    return tuple(
        ResizableBar(int(bar), _size(size), tuple(_size(each) for each in sizes.split()))
        for bar, size, sizes in _SIZES.findall(block[1])
    )


def _size(text: str) -> int:
    """Return bytes. Raises KeyError or ValueError on another form."""
    return int(text[:-2]) << _UNITS[text[-2:]]
