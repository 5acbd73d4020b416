"""Values of PCI functions: registers, BARs, error counters; from sysfs or an lspci dump."""

from collections.abc import Iterator

from gpudoctor.formats import lspci, pci_config
from gpudoctor.formats.pci import NO_REGISTER, Region, Registers, bytes_text
from gpudoctor.formats.pci_sysfs import parse_aer, parse_resource
from gpudoctor.model import Unknown
from gpudoctor.snapshots.compared_row import (
    COUNTER,
    INVENTORY,
    SETTING,
    Answer,
    Parser,
    Row,
    shown,
)


def config(answer: Answer) -> Iterator[Row]:
    """Yield the registers of config space."""
    yield from _registers(f"PCI {answer.parts[0]}", pci_config.parse(answer.raw))


def _registers(of: str, known: Registers) -> Iterator[Row]:
    """Yield settings and abilities; a register that the function does not have is no value."""
    groups = {
        ("max payload", "max read request", "relaxed ordering", "no snoop", "extended tags"): (
            known.dev_ctl
            if isinstance(known.dev_ctl, Unknown)
            else (
                f"{known.dev_ctl.max_payload} B",
                f"{known.dev_ctl.max_read_request} B",
                known.dev_ctl.relaxed_ordering,
                known.dev_ctl.no_snoop,
                known.dev_ctl.ext_tag,
            )
        ),
        ("10-bit tags",): _one(known.dev_ctl2, "tags10"),
        ("ASPM",): _one(known.lnk_ctl, "aspm"),
        ("target generation of the link",): _one(known.lnk_ctl2, "target_gen"),
        ("ECRC",): _one(known.ecrc, "on"),
        ("ACS control",): _one(known.acs, "ctl"),
    }
    for names, values in groups.items():
        yield from _rows(of, names, values)
    yield from _bars(of, known)


def _one(group: object, name: str) -> tuple[object, ...] | Unknown:
    if isinstance(group, Unknown):
        return group
    value = getattr(group, name)
    return ((" ".join(value) or "off") if isinstance(value, tuple) else value,)


def _rows(of: str, names: tuple[str, ...], values: tuple[object, ...] | Unknown) -> Iterator[Row]:
    if values is NO_REGISTER:
        return
    each = [values] * len(names) if isinstance(values, Unknown) else values
    yield from (Row(of, n, SETTING, shown(v)) for n, v in zip(names, each, strict=True))


def _bars(of: str, known: Registers) -> Iterator[Row]:
    """Yield the sizes of resizable BARs, and which were possible."""
    if known.rebar is NO_REGISTER:
        return
    if isinstance(known.rebar, Unknown):
        yield Row(of, "resizable BARs", INVENTORY, known.rebar, part="rebar")
        return
    for bar in known.rebar:
        text = f"{bytes_text(bar.size)} of {bytes_text(max(bar.sizes, default=bar.size))}"
        yield Row(of, f"resizable BAR {bar.bar}", INVENTORY, text, part="rebar")


def resource(answer: Answer) -> Iterator[Row]:
    """Yield the size of each memory BAR; where it lies may differ from boot to boot."""
    yield from _regions(f"PCI {answer.parts[0]}", parse_resource(answer.text))


def _regions(of: str, regions: tuple[Region, ...]) -> Iterator[Row]:
    for region in regions:
        placed = "" if region.start else ", without an address"
        yield Row(of, f"BAR {region.index}", INVENTORY, f"{bytes_text(region.size)}{placed}")


def aer(answer: Answer) -> Iterator[Row]:
    """Yield how many errors of one severity the kernel counted since boot."""
    bdf, kind = answer.parts
    yield Row(f"PCI {bdf}", f"AER {kind} errors", COUNTER, str(parse_aer(answer.text)))


def dump(answer: Answer) -> Iterator[Row]:
    """Yield each function of an lspci dump."""
    for bdf, function in lspci.parse(answer.text).items():
        of, known = f"PCI {bdf}", function.registers
        yield Row(of, "on the bus", INVENTORY, "yes")
        ids = (("vendor", known.vendor, 4), ("device", known.device, 4))
        for name, number, digits in (*ids, ("class", known.class_code, 6)):
            text = number if isinstance(number, Unknown) else f"0x{number:0{digits}x}"
            yield Row(of, name, INVENTORY, text)
        yield Row(of, "driver", SETTING, function.driver or "none")
        yield Row(of, "numa_node", INVENTORY, shown(function.numa_node))
        yield from _registers(of, known)
        yield from _regions(of, function.regions)


PARSERS: dict[str, Parser] = {"config": config, "resource": resource, "aer": aer, "lspci": dump}
