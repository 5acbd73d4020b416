"""Panel 7, comparison: equal settings on equal GPUs; what displays and bridges really are."""

from collections import Counter
from collections.abc import Callable

from gpudoctor.formats.pci import DevCtl, Link
from gpudoctor.model import (
    Class,
    Impact,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    not_read,
    per_target,
)
from gpudoctor.probes.gpu_paths import GPU_PATHS, GpuPath
from gpudoctor.probes.pci import GPU_FUNCTIONS, PCI_FUNCTIONS, PciFunction
from gpudoctor.tables.pcie import pcie_table

_Aspect = Callable[[GpuPath], str | None]


def _control(path: GpuPath) -> str | None:
    ctl = path.gpu.registers.dev_ctl
    # Bit 15 is no state, and the error bits 0-3 follow the kernel's AER, not the card.
    return f"DevCtl & 7ff0 = {ctl.word & 0x7FF0:04x}" if isinstance(ctl, DevCtl) else None


def _lanes(path: GpuPath) -> str | None:
    return f"x{path.gpu.link.width}" if isinstance(path.gpu.link, Link) else None


def _crc(path: GpuPath) -> str | None:
    bits = path.gpu.registers.ecrc
    return None if isinstance(bits, Unknown) else f"ECRC {'on' if bits.on else 'off'}"


def _power_saving(path: GpuPath) -> str | None:
    states = path.gpu.aspm
    return None if isinstance(states, Unknown) else f"ASPM {' '.join(states) or 'off'}"


_ASPECTS: tuple[tuple[_Aspect, Class], ...] = (
    (_control, Class.P0),
    (_power_saving, Class.P0),
    (_crc, Class.P0),
    (_lanes, Class.FW),
)


@check(
    "pcie-consistency",
    "The same PCIe settings on equal GPUs",
    reads=(GPU_PATHS,),
    why="One GPU that differs from its equals was reset or hot-plugged (a reset restores "
    "defaults), or sits in another kind of slot; collectives run at the pace of the slowest.",
    source="pciutils lib/header.h; comparison of the GPUs of this host",
    scope="gpu",
)
def consistency(paths: tuple[GpuPath, ...]) -> list[Verdict]:
    """Compare each GPU with those of the same device id; speeds are left out, they idle."""
    known = [path for path in paths if any(aspect(path) for aspect, _ in _ASPECTS)]
    if not known:
        why = paths[0].gpu.registers.dev_ctl
        return [not_read(why) if isinstance(why, Unknown) else good("Nothing differs")]
    odd = [(path.bdf, verdict) for path in known for verdict in _odd(path, known)]
    if odd:
        return per_target(odd)
    if len(known) == 1:
        return [info("One GPU: nothing to compare", observed=_settings(known[0]))]
    return [good("Equal GPUs have equal settings", observed=_settings(known[0]))]


def _settings(path: GpuPath) -> str:
    return ", ".join(filter(None, (aspect(path) for aspect, _ in _ASPECTS)))


def _odd(path: GpuPath, known: list[GpuPath]) -> list[Verdict]:
    """Return one verdict for each class in which the GPU is not as most of its equals."""
    peers = [p for p in known if p.gpu.function.ids == path.gpu.function.ids]
    found: dict[Class, list[str]] = {}
    for aspect, cls in _ASPECTS:
        values = Counter(value for p in peers if (value := aspect(p)))
        mine = aspect(path)
        # On a tie the fewer lanes are the odd ones; of registers, both values are shown.
        usual = {v for v, n in values.items() if n == max(values.values())}
        if cls is Class.FW and usual:
            usual = {max(usual, key=lambda value: int(value[1:]))}
        if mine and (mine not in usual or len(usual) > 1):
            others = "/".join(sorted(usual - {mine}))
            found.setdefault(cls, []).append(f"{mine}, others {others}")
    return [
        issue(
            "A GPU's PCIe settings differ from its equals'",
            cls,
            Impact.LOW,
            observed="; ".join(words),
            expected="the same on GPUs of one model",
            remedy="Reboot to let the firmware set all alike; live, only the read request size is "
            "safe to set (pcie-max-read-req). Lanes: check seating and slot.",
        )
        for cls, words in found.items()
    ]


@check(
    "pcie-device-identity",
    "Displays and bridges by name",
    reads=(GPU_FUNCTIONS, PCI_FUNCTIONS),
    why="A display controller or bridge that is not a GPU is named by its ids, never guessed from "
    "its bus number: the graphics of a management controller have been taken for an NVSwitch.",
    source="PCI class codes and vendor ids (pciutils pci.ids)",
)
def device_identity(_gpus: tuple[PciFunction, ...], functions: dict[str, PciFunction]) -> Verdict:
    """Name every display controller that is no NVIDIA GPU, every NVSwitch and the GPU's bridges."""
    named = [f for f in functions.values() if _is_display(f) or _is_nvswitch(f)]
    words = [f"{f.bdf} {f.label}: {_name(f, functions)}" for f in named]
    return info(
        "Display controllers and NVSwitches besides the GPUs, by their ids",
        observed="; ".join(words) or "none",
        targets=tuple(f.bdf for f in named),
    )


def _is_display(function: PciFunction) -> bool:
    return function.class_code >> 16 == 0x03 and not function.is_gpu


def _is_nvswitch(function: PciFunction) -> bool:
    return function.ids.startswith("10de:") and function.class_code >> 8 == 0x0680


def _name(function: PciFunction, functions: dict[str, PciFunction]) -> str:
    if _is_nvswitch(function):
        return "NVIDIA NVSwitch"
    other = "display controller" + (" of another vendor" if function.vendor else "")
    name = pcie_table().displays.get(function.vendor, other)
    above = functions.get(function.path[-1]) if function.path else None
    if above is None:
        return name
    bridge = pcie_table().bridges.get(above.vendor, "bridge")
    return f"{name}, behind {above.bdf} {above.label} ({bridge})"
