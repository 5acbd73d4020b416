"""One `<gpu>` node of nvidia-smi's XML to a typed GPU, through the tags' names over the years."""

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from gpudoctor.formats.nvidia_smi_gpu import (
    Clocks,
    EccCounts,
    Flag,
    Gpu,
    Link,
    Memory,
    Power,
    Process,
    Remapping,
    Repair,
    Retirement,
    Setting,
    Temperature,
    Whole,
)
from gpudoctor.formats.nvidia_smi_values import flag, is_sick, number, plain, whole, word
from gpudoctor.model import Reason, Unknown

_PID = re.compile(r"[0-9]{1,10}")
_REASONS = ("clocks_event_reasons", "clocks_throttle_reasons")
_POWER = ("gpu_power_readings", "power_readings")


def gpu_of(node: Element | None, bdf: str, index: int) -> Gpu:
    """Return the GPU of a node; with no node every value is unknown."""
    at = _Node(Element("gpu") if node is None else node)
    device = at.text("pci/pci_device_id")
    return Gpu(
        bdf=bdf,
        index=index,
        uuid=at.word("uuid"),
        name=at.word("product_name"),
        brand=at.word("product_brand"),
        architecture=at.word("product_architecture"),
        device=_device(device),
        part_number=at.word("gpu_part_number"),
        vbios=at.word("vbios_version"),
        gsp_firmware=at.word("gsp_firmware_version"),
        minor=at.whole("minor_number"),
        persistence=at.flag("persistence_mode"),
        addressing=at.word("addressing_mode"),
        compute_mode=at.word("compute_mode"),
        mig=at.setting("mig_mode", "mig"),
        mig_instances=len(at.node.findall("mig_devices/mig_device")),
        ecc=at.setting("ecc_mode", "ecc"),
        ecc_counts=_ecc(at),
        virtualization=at.word("gpu_virtualization_mode/virtualization_mode"),
        host_vgpu=at.word("gpu_virtualization_mode/host_vgpu_mode"),
        recovery_action=at.word("gpu_recovery_action"),
        reset_required=at.flag("gpu_reset_status/reset_required"),
        drain_and_reset=at.flag("gpu_reset_status/drain_and_reset_recommended"),
        pstate=at.word("performance_state"),
        memory=at.memory("fb_memory_usage"),
        bar1=at.memory("bar1_memory_usage"),
        temperature=_temperature(at),
        power=_power(at),
        clocks=at.clocks("clocks"),
        max_clocks=at.clocks("max_clocks"),
        boost_limit=at.number("max_customer_boost_clocks/graphics_clock"),
        utilization=at.whole("utilization/gpu_util"),
        reasons=_reasons(at.node),
        counters=_counters(at.node),
        link=_link(at),
        fabric_state=at.word("fabric/state"),
        fabric_status=at.word("fabric/status"),
        c2c=at.word("c2c_mode"),
        fan=at.word("fan_speed"),
        remapping=_remapping(at),
        retirement=_retirement(at),
        repair=_repair(at),
        processes=_processes(at.node),
        sick=tuple(dict.fromkeys(plain(n.text) for n in at.node.iter() if is_sick(n.text))),
    )


class _Node:
    """Typed reading of paths below one node; the first path that is there counts."""

    def __init__(self, node: Element) -> None:
        self.node = node

    def text(self, *paths: str) -> str | None:
        for path in paths:
            found = self.node.find(path)
            if found is not None:
                return found.text or ""
        return None

    def word(self, *paths: str) -> str | Unknown:
        return word(self.text(*paths))

    def number(self, *paths: str) -> float | Unknown:
        return number(self.text(*paths))

    def whole(self, *paths: str) -> int | Unknown:
        return whole(self.text(*paths))

    def flag(self, *paths: str) -> bool | Unknown:
        return flag(self.text(*paths))

    def first(self, *paths: str) -> float | Unknown:
        """Return the first path's number that has a value."""
        values = [self.number(path) for path in paths]
        return next((v for v in values if not isinstance(v, Unknown)), values[0])

    def setting(self, path: str, what: str) -> Setting:
        return Setting(self.word(f"{path}/current_{what}"), self.word(f"{path}/pending_{what}"))

    def memory(self, path: str) -> Memory:
        return Memory(*(self.whole(f"{path}/{n}") for n in ("total", "reserved", "used", "free")))

    def clocks(self, path: str) -> Clocks:
        return Clocks(
            self.number(f"{path}/sm_clock", f"{path}/graphics_clock"),
            self.number(f"{path}/mem_clock"),
        )


def _device(text: str | None) -> Whole:
    """Return the PCI device id: `2BB510DE` holds the device, then the vendor."""
    value = word(text)
    if isinstance(value, Unknown):
        return value
    digits = value.removeprefix("0x")
    if len(digits) != 8 or digits[4:].lower() != "10de":
        return Unknown(Reason.PARSE_FAILED, f"{value[:20]!r} is no NVIDIA device id")
    return int(digits[:4], 16)


def _temperature(at: _Node) -> Temperature:
    return Temperature(
        gpu=at.number("temperature/gpu_temp"),
        margin=at.number("temperature/gpu_temp_tlimit"),
        slow_at=at.number("temperature/gpu_temp_slow_threshold"),
        memory=at.number("temperature/memory_temp"),
    )


def _power(at: _Node) -> Power:
    """Read the GPU's power, never the module's (its tags bear the same names)."""

    def watts(*names: str) -> float | Unknown:
        return at.first(*(f"{group}/{name}" for group in _POWER for name in names))

    return Power(
        draw=watts("instant_power_draw", "power_draw", "average_power_draw"),
        enforced=watts("current_power_limit", "enforced_power_limit"),
        requested=watts("requested_power_limit", "power_limit"),
        default=watts("default_power_limit"),
        lowest=watts("min_power_limit"),
        highest=watts("max_power_limit"),
    )


def _reasons(node: Element) -> dict[str, Flag]:
    for group in _REASONS:
        found = node.find(group)
        if found is not None:
            prefix = group.removesuffix("s") + "_"
            return {child.tag.removeprefix(prefix): flag(child.text) for child in found}
    return {}


def _counters(node: Element) -> dict[str, Whole]:
    group = "clocks_event_reasons_counters"
    found = node.find(group)
    if found is None:
        return {}
    return {child.tag.removeprefix(group + "_"): whole(child.text) for child in found}


def _link(at: _Node) -> Link:
    gen, widths = "pci/pci_gpu_link_info/pcie_gen/", "pci/pci_gpu_link_info/link_widths/"
    return Link(
        gen=at.whole(gen + "current_link_gen"),
        max_gen=at.whole(gen + "max_link_gen"),
        device_max_gen=at.whole(gen + "max_device_link_gen"),
        host_max_gen=at.whole(gen + "max_host_link_gen"),
        width=at.whole(widths + "current_link_width"),
        max_width=at.whole(widths + "max_link_width"),
        replays=at.whole("pci/replay_counter"),
    )


def _ecc(at: _Node) -> EccCounts:
    """Add up the counters, whose tags differ by generation."""
    volatile = at.node.find("ecc_errors/volatile")
    aggregate = at.node.find("ecc_errors/aggregate")
    return EccCounts(
        volatile_corrected=_ecc_sum(volatile, corrected=True),
        volatile_uncorrected=_ecc_sum(volatile, corrected=False),
        aggregate_corrected=_ecc_sum(aggregate, corrected=True),
        aggregate_uncorrected=_ecc_sum(aggregate, corrected=False),
        volatile_sram_uncorrected=_sram(volatile),
        sram_threshold_exceeded=at.flag("ecc_errors/aggregate/sram_threshold_exceeded"),
    )


def _ecc_sum(group: Element | None, corrected: bool) -> Whole:
    values = [] if group is None else [whole(text) for text in _ecc_texts(group, corrected)]
    counts = [value for value in values if not isinstance(value, Unknown)]
    if counts:
        return sum(counts)
    return next(iter(values), Unknown(Reason.NOT_PRESENT, "nvidia-smi does not report it"))


def _sram(group: Element | None) -> Whole:
    """Add up the uncorrectable errors of SRAM, which no row remapping repairs."""
    tags = () if group is None else (c for c in group if c.tag.startswith("sram_uncorrectable"))
    counts = [value for c in tags if not isinstance(value := whole(c.text), Unknown)]
    return sum(counts) if counts else Unknown(Reason.NOT_PRESENT, "nvidia-smi does not report it")


def _ecc_texts(group: Element, corrected: bool) -> Iterator[str | None]:
    """Yield the counters of one kind: old drivers nest them and give a total, new ones do not."""
    nested = group.find("single_bit" if corrected else "double_bit")
    if nested is not None:
        total = nested.find("total")
        has_total = total is not None and not isinstance(whole(total.text), Unknown)
        yield from ([total.text] if has_total and total is not None else (n.text for n in nested))
        return
    for counter in group:
        if counter.tag.endswith("_correctable") and corrected:
            yield counter.text
        elif "_uncorrectable" in counter.tag and not corrected:
            yield counter.text


def _remapping(at: _Node) -> Remapping | Unknown:
    node = at.node.find("remapped_rows")
    if node is None or len(node) == 0:
        value = word(None if node is None else node.text)
        return value if isinstance(value, Unknown) else Unknown(Reason.PARSE_FAILED, value[:60])
    rows = _Node(node)
    return Remapping(
        corrected=rows.whole("remapped_row_corr"),
        uncorrected=rows.whole("remapped_row_unc"),
        pending=rows.flag("remapped_row_pending"),
        failed=rows.flag("remapped_row_failure"),
        banks_left_none=rows.whole("row_remapper_histogram/row_remapper_histogram_none"),
    )


def _retirement(at: _Node) -> Retirement:
    pages = "retired_pages/"
    return Retirement(
        single_bit=at.whole(pages + "multiple_single_bit_retirement/retired_count"),
        double_bit=at.whole(pages + "double_bit_retirement/retired_count"),
        pending=at.flag(pages + "pending_retirement", pages + "pending_blacklist"),
    )


def _repair(at: _Node) -> Repair:
    names = ("channel_repair_pending", "tpc_repair_pending", "unrepairable_memory")
    return Repair(*(at.flag(f"ecc_errors/{name}") for name in names))


def _processes(node: Element) -> tuple[Process, ...] | Unknown:
    """Return the processes; none is an empty list, an absent list is unknown."""
    found = node.find("processes")
    if found is None or plain(found.text).casefold() == "n/a":
        return Unknown(Reason.NOT_PRESENT, "nvidia-smi lists no processes here")
    return tuple(_process(info) for info in found if _PID.fullmatch(plain(info.findtext("pid"))))


def _process(info: Element) -> Process:
    return Process(
        int(plain(info.findtext("pid"))),
        plain(info.findtext("type")) or "C",
        plain(info.findtext("process_name")),
        whole(info.findtext("used_memory")),
    )
