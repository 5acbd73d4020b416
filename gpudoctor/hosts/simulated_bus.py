"""The PCI bus of a simulated machine: config space and sysfs of GPUs, ports and the rest."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.formats import pci_config
from gpudoctor.formats.pci import (
    GIGATRANSFERS,
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

_DEVICES = "/sys/bus/pci/devices"
_GIB = 1 << 30
_NVIDIA = 0x10DE
# Sizes of the prefetchable regions beside the big one, as (region, bytes).
_SMALL_REGIONS = ((0, 64 << 20), (4, 32 << 20))
_AER = ("correctable", "nonfatal", "fatal")
_AER_NAMES = {
    "correctable": ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr"),
    "nonfatal": ("Undefined", "DLP", "TLP", "CmpltTO", "UnxCmplt", "MalfTLP", "ECRC"),
    "fatal": ("Undefined", "DLP", "SDES", "FCP", "RxOF", "MalfTLP", "ECRC"),
}
_AER_TOTALS = {
    "correctable": "TOTAL_ERR_COR",
    "nonfatal": "TOTAL_ERR_NONFATAL",
    "fatal": "TOTAL_ERR_FATAL",
}

Table = Mapping[str, Any]


@dataclass(slots=True)
class Entries:
    """Files as text, directory entries as `ls -ldn` lines, config spaces by path."""

    files: dict[str, str] = field(default_factory=dict)
    listings: dict[str, str] = field(default_factory=dict)
    config: dict[str, bytes] = field(default_factory=dict)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self.listings[path] = f"lrwxrwxrwx 1 0 0 0 Jan  5 08:00 {path} -> {target}"


def bus_entries(seed: Table, gpus: Sequence[Table]) -> Entries:
    """Return everything under /sys/bus/pci/devices."""
    entries = Entries()
    for number, gpu in enumerate(gpus):
        ids = {"vendor": _NVIDIA, "device": gpu["device"]}
        _function(entries, gpu["bdf"], gpu["registers"] | ids, (gpu["port"],), "nvidia")
        _linked(entries, gpu["bdf"], gpu)
        _driver_view(entries, gpu)
        _group(entries, gpu["bdf"], gpu["group"], (gpu["bdf"],))
        entries.files[f"{_DEVICES}/{gpu['bdf']}/resource"] = _resource(gpu, number)
        bus = int(gpu["bdf"][5:7], 16)
        port = seed["port"]["registers"] | {"bus": (bus, bus)}
        _function(entries, gpu["port"], port, (), "pcieport")
        _linked(entries, gpu["port"], gpu)
    for function in seed["pci"]:
        _plain(entries, function)
    return entries


def _plain(entries: Entries, function: Table) -> None:
    vendor, device = (int(part, 16) for part in function["ids"].split(":"))
    table = {
        "vendor": vendor,
        "device": device,
        "class_code": function["class"],
        "revision": function.get("revision", 0),
    }
    under = function.get("under", ())
    _function(entries, function["bdf"], table, under, function.get("driver", ""))


def _function(entries: Entries, bdf: str, table: Table, under: Iterable[str], driver: str) -> None:
    """Add one function: its place on the bus, its ids, its driver, its config space."""
    above = list(under)
    root = f"pci{(above or [bdf])[0][:7]}"
    home = f"{_DEVICES}/{bdf}"
    entries.link(home, "/".join(["../../../devices", root, *above, bdf]))
    if driver:
        up = "../" * (3 + len(above))
        entries.link(f"{home}/driver", f"{up}bus/pci/drivers/{driver}")
    ids = {"vendor": 4, "device": 4, "class_code": 6, "revision": 2}
    for name, digits in ids.items():
        file = name.removesuffix("_code")
        entries.files[f"{home}/{file}"] = f"0x{table[name]:0{digits}x}\n"
    entries.config[f"{home}/config"] = pci_config.build(_registers(table))


def _registers(table: Table) -> Registers:
    ids = {name: table[name] for name in ("vendor", "device", "class_code", "revision")}
    if "port" not in table:
        return Registers(**ids)
    link = table["link"]
    tags, ecrc = table["tags10"], table["ecrc"]
    more: dict[str, Any] = {}
    if "acs" in table:
        more["acs"] = Acs(table["acs"]["cap"], table["acs"]["ctl"])
    if "rebar" in table:
        size = table["rebar"]["size_gib"] * _GIB
        sizes = tuple(64 << 20 + n for n in range(12) if 64 << 20 + n <= size)
        more["rebar"] = (ResizableBar(table["rebar"]["bar"], size, sizes),)
    if "bus" in table:
        more["bus"] = table["bus"]
    return Registers(
        **ids,
        port=PortType[table["port"]],
        dev_cap=DevCap(table["max_payload"], ext_tag=True),
        dev_ctl=DevCtl(table["devctl"]),
        dev_cap2=DevCap2(tags, tags),
        dev_ctl2=DevCtl2(tags),
        lnk_cap=LnkCap(link["gen"], link["width"], ("L1",)),
        lnk_sta=Link(link["gen"], link["width"]),
        lnk_ctl=LnkCtl(()),
        lnk_ctl2=LnkCtl2(link["gen"]),
        ecrc=Ecrc(True, ecrc, True, ecrc),
        **more,
    )


def _linked(entries: Entries, bdf: str, gpu: Table) -> None:
    """Add the files of a function with a link: speed, width, node, error counters, power."""
    top = gpu["registers"]["link"]
    speeds = {"current": (gpu["gen"], gpu["lanes"]), "max": (top["gen"], top["width"])}
    texts = {
        "numa_node": str(gpu["node"]),
        "local_cpulist": gpu["cpus"],
        "power/control": "on",
        "power/runtime_status": "active",
        "link/l1_aspm": "0",
    }
    for which, (gen, width) in speeds.items():
        texts[f"{which}_link_speed"] = f"{GIGATRANSFERS[gen]:.1f} GT/s PCIe"
        texts[f"{which}_link_width"] = str(width)
    for kind in _AER:
        names = (*_AER_NAMES[kind], _AER_TOTALS[kind])
        texts[f"aer_dev_{kind}"] = "\n".join(f"{name} 0" for name in names)
    entries.files |= {f"{_DEVICES}/{bdf}/{name}": f"{text}\n" for name, text in texts.items()}


def _driver_view(entries: Entries, gpu: Table) -> None:
    """Add what the NVIDIA driver says of a GPU in /proc, and its unused virtual functions."""
    rows = {
        "Model": gpu["name"],
        "GPU UUID": gpu["uuid"],
        "Video BIOS": gpu["vbios"],
        "Bus Type": "PCIe",
        "Bus Location": gpu["bdf"],
        "Device Minor": gpu["minor"],
        "GPU Excluded": "No",
    }
    text = "".join(f"{name + ':':<17}{value}\n" for name, value in rows.items())
    entries.files[f"/proc/driver/nvidia/gpus/{gpu['bdf']}/information"] = text
    for name, count in (("sriov_totalvfs", gpu["vfs"]), ("sriov_numvfs", 0)):
        entries.files[f"{_DEVICES}/{gpu['bdf']}/{name}"] = f"{count}\n"


def _group(entries: Entries, bdf: str, number: int, members: Sequence[str]) -> None:
    home = f"{_DEVICES}/{bdf}/iommu_group"
    entries.link(home, f"../../../../kernel/iommu_groups/{number}")
    entries.files[f"{home}/type"] = "identity\n"
    for member in members:
        entries.link(f"{home}/devices/{member}", f"../../../../devices/{member}")


def _resource(gpu: Table, number: int) -> str:
    """Return the BARs, all above 4 GiB: 64-bit prefetchable regions, each with its empty half."""
    big = gpu["registers"]["rebar"]
    sizes = {**dict(_SMALL_REGIONS), big["bar"]: big["size_gib"] * _GIB}
    base = (0x700 + 0x40 * number) << 32
    rows = []
    for region in range(13):
        size = sizes.get(region, 0)
        start = base + region * 256 * _GIB if size else 0
        end, flags = (start + size - 1, 0x14220C) if size else (0, 0)
        rows.append(f"0x{start:016x} 0x{end:016x} 0x{flags:016x}")
    return "\n".join(rows) + "\n"
