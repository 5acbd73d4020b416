"""Panel 3, boards: which driver holds each GPU, and whether the GPUs are alike."""

from dataclasses import replace

from gpudoctor.checks.per_gpu import Gpus, unread
from gpudoctor.model import (
    Class,
    Impact,
    KernelArguments,
    Needs,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    per_target,
)
from gpudoctor.probes.gpu import GPU_DRIVERS, GPUS


@check(
    "drv-nouveau",
    "Driver bound to each GPU",
    reads=(GPU_DRIVERS,),
    why="A GPU held by another driver has no CUDA.",
    source="NVIDIA driver installation guide (disabling nouveau); kernel.org PCI sysfs",
    scope="gpu",
    changes=(KernelArguments,),
)
def nouveau(drivers: dict[str, str]) -> list[Verdict]:
    """Judge the driver that holds each GPU."""
    if not any(drivers.values()):
        return [replace(_bound(""), impact=Impact.HIGH, targets=tuple(drivers))]
    return per_target((bdf, _bound(name)) for bdf, name in drivers.items())


_FOR_GUESTS = {"vfio-pci", "pci-stub", "pciback", "xen-pciback", "nvgrace-gpu-vfio-pci"}


_OPEN_DRIVERS = {"nouveau", "nova_core", "nova-core", "NovaCore"}
# Acts in the initramfs too, so that it need not be made anew.
_BLACKLIST = KernelArguments(
    add=("modprobe.blacklist=nouveau,nova_core,nova_drm",),
    risk="medium",
    caution="The nvidia driver must be installed; a screen on the GPU stays plain until it loads.",
)


def _bound(name: str) -> Verdict:
    if name == "nvidia":
        return good("The nvidia driver holds the GPU", observed=name, expected="nvidia")
    if name in _FOR_GUESTS:
        return info("The GPU is set aside for a virtual machine", observed=name)
    if not name:
        return issue(
            "No driver holds the GPU",
            Class.P0,
            Impact.LOW,
            observed="none",
            expected="nvidia",
            remedy="Load the driver (`modprobe nvidia`) and read the kernel log for why it does "
            "not take the GPU.",
        )
    return issue(
        "Another driver holds the GPU",
        Class.P1,
        Impact.HIGH,
        observed=name,
        expected="nvidia",
        needs=Needs.REBOOT,
        remedy="Blacklist nouveau, nova_core and nova_drm in /etc/modprobe.d, rebuild the "
        "initramfs (`update-initramfs -u`) and reboot; undo: remove the file and rebuild.",
        changes=((_BLACKLIST,),) if name in _OPEN_DRIVERS else (),
    )


@check(
    "drv-uniformity",
    "Equal GPUs",
    reads=(GPUS,),
    why="Tensor parallel work runs at the pace of the slowest GPU; editions of one name differ in "
    "memory clock and power.",
    source="NVML (board part number, VBIOS version, maximum clocks)",
)
def uniformity(gpus: Gpus) -> Verdict:
    """Compare product, part number, highest clocks and VBIOS of all GPUs."""
    if len(gpus) < 2:
        return info("One GPU: nothing to compare", observed=gpus[0].label)
    products = {_known(g.name, g.part_number, g.max_clocks.sm, g.max_clocks.memory) for g in gpus}
    unnamed = [gpu.name for gpu in gpus if isinstance(gpu.name, Unknown)]
    if len(unnamed) == len(gpus):
        return unread("product names", unnamed[0])
    if _differ(products):
        return issue(
            "The GPUs are not of one kind",
            Class.P2,
            Impact.MEDIUM,
            observed=_listed(gpus),
            expected="one product and edition",
            remedy="Serve one model on GPUs of one kind (CUDA_VISIBLE_DEVICES), or replace the odd "
            "one.",
        )
    if _differ({_known(gpu.vbios) for gpu in gpus}):
        return issue(
            "The GPUs have different VBIOS versions",
            Class.FW,
            Impact.LOW,
            observed=", ".join(sorted({str(gpu.vbios) for gpu in gpus})),
            expected="one version",
            remedy="Ask the vendor for one VBIOS for all boards.",
        )
    return good("All GPUs are alike", observed=f"{len(gpus)} x {gpus[0].label}")


def _known(*values: object) -> tuple[object, ...]:
    return tuple(None if isinstance(value, Unknown) else value for value in values)


def _differ(rows: set[tuple[object, ...]]) -> bool:
    """Return whether a column has two values; unread ones count as none."""
    return any(len(set(column) - {None}) > 1 for column in zip(*rows, strict=True))


def _listed(gpus: Gpus) -> str:
    kinds: dict[str, int] = {}
    for gpu in gpus:
        part = "" if isinstance(gpu.part_number, Unknown) else f" ({gpu.part_number})"
        kinds[gpu.label + part] = kinds.get(gpu.label + part, 0) + 1
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
