"""Panel 1: what the firmware set up, as far as the running system shows it.

The setup menu itself cannot be read. Address space and BARs are in firmware_bars.
"""

from gpudoctor.checks.firmware_bars import above_4g, rebar_bar1
from gpudoctor.checks.firmware_host import cppc, kernel_lockdown, nps, smt
from gpudoctor.formats.cmdline import Cmdline
from gpudoctor.formats.cpuinfo import Cpu
from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.formats.pci_sysfs import AerCounts
from gpudoctor.model import (
    Class,
    Evidence,
    Impact,
    KernelArguments,
    Listing,
    Needs,
    Reader,
    Reason,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    not_read,
    per_target,
    unknown,
)
from gpudoctor.probes.cpu import CPU
from gpudoctor.probes.gpu import GPUS
from gpudoctor.probes.gpu_paths import GPU_GROUPS, GPU_PATHS, GpuPath, IommuGroup
from gpudoctor.probes.kernel import KERNEL_LOG_READ, KERNEL_PARAMETERS, KernelLog
from gpudoctor.probes.pci import PCI_FUNCTIONS, PciFunction

__all__ = ["above_4g", "cppc", "kernel_lockdown", "nps", "rebar_bar1", "smt"]

Groups = dict[str, IommuGroup | None]
_PASS_THROUGH = (
    "Devices of the host's own drivers then reach all of its memory; those of virtual machines "
    "stay translated."
)
_OTHER_DRIVERS = {"vfio-pci", "nova_core", "nova-core", "NovaCore", "nouveau", "xen-pciback"}


# Whether the kernel runs any IOMMU.
IOMMUS: Reader[bool] = Reader(
    "iommus", (Listing("iommu-class", ("/sys/class/iommu/*",)),), Evidence.present, tolerant=True
)


@check(
    "uefi-iommu-mode",
    "IOMMU mode of each GPU",
    reads=(GPU_GROUPS,),
    optional=(IOMMUS, CPU),
    why="Translated DMA adds lookups, and on some platforms slows or breaks traffic between GPUs; "
    "host copies suffer little. The group's type tells the truth, the command line only asks. "
    "`amd_iommu=pt` is no option; `iommu=pt` is.",
    source="kernel.org Documentation/ABI/testing/sysfs-kernel-iommu_groups; kernel-parameters.txt",
    scope="gpu",
    changes=(KernelArguments,),
)
def iommu_mode(groups: Groups, iommus: bool | Unknown, cpu: Cpu | Unknown) -> list[Verdict]:
    """Judge each GPU's domain type."""
    if isinstance(cpu, Cpu) and cpu.is_virtual and not any(groups.values()):
        seen = "no IOMMU group in the guest"
        return per_target((bdf, info("The hypervisor's IOMMU rules here", seen)) for bdf in groups)
    kinds = {g.kind for g in groups.values() if g and isinstance(g.kind, str)}
    mixed = len(kinds - {"unmanaged", "blocked"}) > 1
    return per_target(
        (bdf, _mode(group, iommus, len(groups), mixed)) for bdf, group in groups.items()
    )


def _mode(group: IommuGroup | None, iommus: bool | Unknown, gpus: int, mixed: bool) -> Verdict:
    if group is None:
        return _no_group(iommus)
    if isinstance(group.kind, Unknown):
        return not_read(group.kind)
    kind = group.kind.strip()
    if kind in {"unmanaged", "blocked"}:
        return info("The GPU is handed to a guest or a user driver (VFIO)", observed=kind)
    if kind == "identity":
        return good("The IOMMU passes the GPU's DMA through", "identity", "identity")
    if kind not in {"DMA", "DMA-FQ"}:
        return unknown(Reason.PARSE_FAILED, "the IOMMU group's type is no word that is known")
    if gpus < 2:
        return info("One GPU: translated DMA matters little", observed=kind, expected="identity")
    return issue(
        "The IOMMU modes of the GPUs differ" if mixed else "The IOMMU translates the GPUs' DMA",
        Class.P1,
        Impact.MEDIUM,
        observed=kind,
        expected="identity",
        needs=Needs.REBOOT,
        changes=((KernelArguments(add=("iommu=pt",), caution=_PASS_THROUGH),),),
    )


def _no_group(iommus: bool | Unknown) -> Verdict:
    if isinstance(iommus, Unknown):
        return not_read(iommus)
    if iommus:
        return info("No IOMMU covers the GPU, though the host has one", observed="no IOMMU group")
    return good(
        "The IOMMU is off: nothing translates the GPU's DMA",
        observed="no IOMMU group, no IOMMU",
        why="Fine for traffic between GPUs; passing a GPU to a virtual machine is impossible.",
    )


@check(
    "uefi-iommu-group-isolation",
    "IOMMU group of each GPU",
    reads=(GPU_GROUPS, PCI_FUNCTIONS),
    why="A group of its own is what virtual machines need; for containers and for traffic between "
    "GPUs it is irrelevant.",
    source="kernel.org Documentation/driver-api/vfio.rst; sysfs-kernel-iommu_groups",
    scope="gpu",
)
def group_isolation(groups: Groups, functions: dict[str, PciFunction]) -> list[Verdict]:
    """Judge who else is in each GPU's group."""
    return per_target((bdf, _isolation(bdf, group, functions)) for bdf, group in groups.items())


def _isolation(bdf: str, group: IommuGroup | None, functions: dict[str, PciFunction]) -> Verdict:
    if group is None:
        return info("No IOMMU group, so no isolation", observed="no group")
    if not group.members:
        return unknown(Reason.NOT_PRESENT, "the members of the IOMMU group are not listed")
    slot = bdf.rsplit(".", 1)[0]
    others = [
        member
        for member in group.members
        if not member.startswith(slot)
        and not (member in functions and functions[member].class_code >> 16 == 0x06)
    ]
    if not others:
        return good("The GPU is alone in its IOMMU group", observed=f"group {group.number}")
    return info(
        "The GPU shares its IOMMU group; that matters to virtual machines only",
        observed=f"group {group.number} with {', '.join(others)}",
    )


@check(
    "uefi-aer-enabled",
    "PCIe error reporting",
    reads=(),
    optional=(GPU_PATHS, KERNEL_PARAMETERS, KERNEL_LOG_READ),
    why="Without error counters a marginal link cannot be seen. No effect on speed.",
    source="kernel.org Documentation/PCI/pcieaer-howto.rst; ACPI _OSC",
    scope="gpu",
    changes=(KernelArguments,),
)
def aer_enabled(
    paths: tuple[GpuPath, ...] | Unknown, cmdline: Cmdline | Unknown, log: KernelLog | Unknown
) -> list[Verdict]:
    """Judge whether the kernel counts errors at both ends, and else why not."""
    if isinstance(paths, Unknown) and paths.reason is not Reason.NOT_IN_RECORDING:
        return [not_read(paths)]
    if isinstance(cmdline, Cmdline) and "noaer" in cmdline.options("pci"):
        return [
            issue(
                "PCIe error reporting is switched off at boot",
                Class.P1,
                Impact.LOW,
                observed="pci=noaer",
                expected="no pci=noaer",
                needs=Needs.REBOOT,
                remedy="Take `pci=noaer` out of the kernel command line and reboot.",
                changes=((_without_noaer(cmdline),),),
            )
        ]
    if isinstance(paths, Unknown):
        return [not_read(paths)]
    lines = () if isinstance(log, Unknown) else log.matching(r"_OSC: platform does not support")
    firmware_first = any("AER" in line for line in lines)
    return per_target((path.bdf, _reporting(path, firmware_first)) for path in paths)


def _without_noaer(cmdline: Cmdline) -> KernelArguments:
    """Return each pci= word that holds noaer to go, and what else it said to stay."""
    values = dict.fromkeys(v for v in cmdline.all("pci") if "noaer" in v.split(","))
    kept = (",".join(o for o in value.split(",") if o and o != "noaer") for value in values)
    return KernelArguments(
        add=tuple(f"pci={rest}" for rest in kept if rest),
        remove=tuple(f"pci={value}" for value in values),
    )


def _reporting(path: GpuPath, firmware_first: bool) -> Verdict:
    ends = [path.gpu] + ([path.root] if path.root else [])
    counted = [end.bdf for end in ends if isinstance(end.aer, AerCounts)]
    if len(counted) == len(ends):
        return good("The kernel counts PCIe errors at both ends", observed=", ".join(counted))
    if firmware_first:
        return info(
            "The firmware keeps PCIe errors to itself (firmware-first)",
            observed="_OSC: platform does not support AER",
            why="Errors then show in the management controller's log, not in the counters.",
        )
    if counted:
        return info("PCIe errors are counted at one end only", observed=", ".join(counted))
    why = path.gpu.aer
    reason = why.reason if isinstance(why, Unknown) else Reason.NOT_PRESENT
    return unknown(reason, "The kernel shows no PCIe error counters for the GPU")


@check(
    "uefi-sriov",
    "Virtual functions of each GPU (SR-IOV)",
    reads=(GPU_PATHS,),
    why="Virtual functions split a GPU's memory among virtual machines. The capability alone means "
    "nothing.",
    source="kernel.org Documentation/ABI/testing/sysfs-bus-pci (sriov_numvfs)",
    scope="gpu",
)
def sriov(paths: tuple[GpuPath, ...]) -> list[Verdict]:
    """Show how many virtual functions are enabled."""
    return per_target((path.bdf, _vfs(path)) for path in paths)


def _was_read(path: GpuPath) -> bool:
    """Return whether sysfs told anything of the GPU, so that a missing file is no missing read."""
    return isinstance(path.gpu.regions, tuple)


def _vfs(path: GpuPath) -> Verdict:
    vfs = path.gpu.vfs
    if isinstance(vfs, Unknown) and vfs.reason is Reason.NOT_PRESENT and _was_read(path):
        return info("The GPU has no virtual functions", observed="no sriov_numvfs")
    if isinstance(vfs, Unknown):
        return not_read(vfs)
    seen = f"{vfs[0]} of {vfs[1]}"
    if vfs[0] == 0:
        return info("No virtual functions are enabled", observed=seen)
    return issue(
        "Virtual functions are enabled and hold part of the GPU",
        Class.P2,
        Impact.LOW,
        observed=seen,
        expected="0, where containers use the whole GPU",
        remedy="If no virtual machine uses them: `echo 0 > /sys/bus/pci/devices/BDF/sriov_numvfs` "
        "with the GPU idle; undo: write the old number.",
    )


@check(
    "uefi-gpu-count",
    "GPUs on the bus and GPUs in use",
    reads=(GPU_PATHS,),
    optional=(GPUS,),
    why="A GPU that is missing changes what the server can load, silently. GPUs bound to another "
    "driver (a virtual machine's, nova, nouveau) are not nvidia-smi's to list.",
    source="PCI class 0300/0302 of vendor 10de; nvidia-smi -q",
)
def gpu_count(paths: tuple[GpuPath, ...], gpus: tuple[Gpu, ...] | Unknown) -> Verdict:
    """Compare the PCI bus with what the driver serves."""
    gone = [path.bdf for path in paths if path.gpu.registers.gone]
    if gone:
        return _lost(gone, "The PCI bus reads all ones: off the bus, or powered down")
    away = {p.bdf: p.gpu.driver for p in paths if p.gpu.driver in _OTHER_DRIVERS}
    named = "".join(f"; {bdf} is bound to {driver}" for bdf, driver in away.items())
    bound = [p.bdf for p in paths if p.gpu.driver == "nvidia"]
    if isinstance(gpus, Unknown) and bound and "No devices were found" in gpus.detail:
        return _lost(bound, f"{len(paths)} on the bus{named}; nvidia-smi: No devices were found")
    if isinstance(gpus, Unknown):
        return unknown(gpus.reason, gpus.detail, observed=f"{len(paths)} on the bus{named}")
    served = {gpu.bdf for gpu in gpus}
    seen = f"{len(paths)} on the bus, {len(served)} in nvidia-smi{named}"
    if served.isdisjoint(path.bdf for path in paths):
        return unknown(
            Reason.PARSE_FAILED,
            "nvidia-smi and the PCI bus have no GPU in common: are these files of one host?",
            observed=seen,
        )
    missing = [p.bdf for p in paths if p.bdf not in served and p.bdf not in away]
    if missing:
        return _lost(missing, seen)
    return good("Every GPU on the bus answers", observed=seen)


def _lost(bdfs: list[str], seen: str) -> Verdict:
    return issue(
        "A GPU on the PCI bus does not answer",
        Class.P0,
        Impact.HIGH,
        observed=seen,
        expected="every GPU listed by nvidia-smi",
        targets=tuple(bdfs),
        remedy="Look in the kernel log: after Xid 79 a reset, a reboot or a power cycle brings a "
        "lost GPU back, seating and power keep it; `RmInitAdapter failed` asks for Above 4G "
        "Decoding and Re-Size BAR in the firmware, or (Blackwell) for the open kernel module.",
    )
