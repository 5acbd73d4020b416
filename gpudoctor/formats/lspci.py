"""Text of `lspci -vvv` (with or without -nn, -D, -k, root): what recordings have of the PCI bus.

Live audits read config space instead. Values that a form of lspci does not print are Unknown.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.formats import lspci_registers
from gpudoctor.formats.pci import Region, Registers
from gpudoctor.model import Reason, Unknown

_HEAD = re.compile(
    r"(?P<bdf>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) "
    r"(?P<kind>[^\[\]:]*?)(?: \[(?P<class>[0-9a-f]{4})\])?: (?P<name>.*)"
)
_IDS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]")
_DEVICE = re.compile(r"\bDevice ([0-9a-f]{4})\b")
_REVISION = re.compile(r"\(rev ([0-9a-f]{2})\)")
_REGION = re.compile(
    r"(?:Region (?P<index>\d): )?Memory at (?P<start>[0-9a-f]+|<[a-z]+>) "
    r"\((?P<kind>[^)]*)\)(?P<rest>.*)"
)
_SIZE = re.compile(r"\[size=(\d+)([KMGT]?)\]")
_SHIFT = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_BUS = re.compile(r"Bus: primary=[0-9a-f]+, secondary=([0-9a-f]+), subordinate=([0-9a-f]+)")
_VENDORS = {"NVIDIA": 0x10DE, "nVidia": 0x10DE, "ASPEED": 0x1A03, "Red Hat": 0x1B36}
_CLASSES = {
    "VGA compatible controller": 0x0300,
    "3D controller": 0x0302,
    "Display controller": 0x0380,
    "Audio device": 0x0403,
    "Host bridge": 0x0600,
    "PCI bridge": 0x0604,
    "Bridge": 0x0680,
}
_SILENT = Unknown(Reason.NOT_IN_RECORDING, "this lspci dump does not print it")
_DENIED = Unknown(Reason.NO_PERMISSION, "lspci was run without root: <access denied>")
_GONE = Unknown(Reason.NOT_PRESENT, "the function does not answer (rev ff)")


@dataclass(frozen=True, slots=True)
class LspciFunction:
    """One function of an lspci dump; `bdf` has its domain (0000 where the dump leaves it out)."""

    bdf: str
    name: str
    registers: Registers
    regions: tuple[Region, ...] = field(default=())
    numa_node: int | Unknown = _SILENT
    iommu_group: int | Unknown = _SILENT
    driver: str | Unknown = _SILENT


def parse(text: str) -> dict[str, LspciFunction]:
    """Return the functions of a dump by BDF, in its order; other text gives an empty dict."""
    functions = {}
    for head, body in _records(text):
        function = _function(head, body)
        functions[function.bdf] = function
    return functions


def upstream(functions: dict[str, LspciFunction], bdf: str) -> tuple[str, ...]:
    """Return the bridges above a function, root port first, from the bridges' bus numbers."""
    domain, bus, _ = bdf.rsplit(":", 2)
    number, above = int(bus, 16), list[tuple[int, str]]()
    for other, function in functions.items():
        span = function.registers.bus
        if isinstance(span, Unknown) or other.rsplit(":", 2)[0] != domain or other == bdf:
            continue
        if span[0] and span[0] <= number <= span[1]:
            above.append((span[0], other))
    return tuple(bridge for _, bridge in sorted(above))


def _records(text: str) -> Iterator[tuple["re.Match[str]", list[str]]]:
    """Yield each function's headline and the stripped lines below it, notes from stderr aside."""
    head, body = None, list[str]()
    for line in text.splitlines():
        found = None if line[:1].isspace() else _HEAD.match(line)
        if found:
            if head:
                yield head, body
            head, body = found, []
        elif head and line.strip():
            body.append(line.strip())
    if head:
        yield head, body


def _function(head: "re.Match[str]", body: list[str]) -> LspciFunction:
    bdf = head["bdf"] if head["bdf"].count(":") == 2 else f"0000:{head['bdf']}"
    lines = "\n".join(body)
    node = re.search(r"NUMA node:? (\d+)", lines)
    group = re.search(r"IOMMU group:? (\d+)", lines)
    driver = re.search(r"^Kernel driver in use: (\S+)", lines, re.M)
    return LspciFunction(
        bdf,
        head["name"],
        _registers(head, lines),
        tuple(_regions(body)),
        int(node[1]) if node else _SILENT,
        int(group[1]) if group else _SILENT,
        driver[1] if driver else _SILENT,
    )


def _registers(head: "re.Match[str]", lines: str) -> Registers:
    name = head["name"]
    revision = _REVISION.search(name)
    if (revision and revision[1] == "ff") or "Unknown header type 7f" in lines:
        return Registers(gone=True, **_identity(head), **lspci_registers.all_of(_GONE))
    bus = _BUS.search(lines)
    groups: dict[str, Any] = lspci_registers.all_of(_SILENT)
    if "<access denied>" in lines:
        groups = lspci_registers.all_of(_DENIED)
    elif "Capabilities:" in lines or lspci_registers.mentioned(lines):
        groups = lspci_registers.groups(lines)
    return Registers(
        revision=int(revision[1], 16) if revision else 0,
        bus=(int(bus[1], 16), int(bus[2], 16)) if bus else _SILENT,
        **_identity(head),
        **groups,
    )


def _identity(head: "re.Match[str]") -> dict[str, Any]:
    """Return vendor, device and class: the numbers of -nn, else what the names tell for certain."""
    name, kind = head["name"], head["class"]
    ids = _IDS.findall(name)
    device = _DEVICE.search(name)
    base = int(kind, 16) if kind else _CLASSES.get(head["kind"])
    vendor = next((n for word, n in _VENDORS.items() if name.startswith(word)), None)
    interface = re.search(r"\(prog-if ([0-9a-f]{2})", name)
    low = int(interface[1], 16) if interface and interface[1] != "ff" else 0
    return {
        "vendor": int(ids[-1][0], 16) if ids else _SILENT if vendor is None else vendor,
        "device": int(ids[-1][1], 16) if ids else int(device[1], 16) if device else _SILENT,
        "class_code": _SILENT if base is None else base << 8 | low,
    }


def _regions(body: list[str]) -> Iterator[Region]:
    """Yield the memory regions of the function itself, not those of its virtual functions."""
    for line in body:
        if line.startswith("Capabilities:"):
            return
        found = _REGION.match(line)
        if found:
            size = _SIZE.search(found["rest"])
            yield Region(
                int(found["index"]) if found["index"] else None,
                0 if found["start"].startswith("<") else int(found["start"], 16),
                int(size[1]) << _SHIFT[size[2]] if size else 0,
                "non-prefetchable" not in found["kind"],
            )
