"""Panel 7, registers: read and payload sizes, ordering, tags and end-to-end CRC of each GPU."""

from collections.abc import Sequence
from dataclasses import replace

from gpudoctor.formats.pci import DevCtl
from gpudoctor.model import (
    Change,
    Class,
    Impact,
    PciBits,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    non_issue,
    not_read,
    per_target,
)
from gpudoctor.probes.gpu_paths import GPU_PATHS, GUEST, GpuPath
from gpudoctor.probes.kernel import KERNEL_LOG_READ, KernelLog
from gpudoctor.probes.lockdown import LOCKDOWN
from gpudoctor.probes.pci_hop import HANDED_OUT, Hop
from gpudoctor.tables.pcie import pcie_table

_HEADER = "pciutils lib/header.h (Device Control)"
_LOCKED = {"integrity", "confidentiality"}
Alternatives = tuple[tuple[Change, ...], ...]


@check(
    "pcie-max-read-req",
    "Maximum read request size",
    reads=(GPU_PATHS,),
    optional=(LOCKDOWN,),
    why="The size of one read that the GPU sends to host memory. Every PCIe function accepts 4096, "
    "there is no capability bit for it, and no public measurement shows a gain for GPUs above 512: "
    "a host of eight such GPUs copies at 85 % of Gen5 x16 with 512. It touches host-to-device "
    "copies only, not peer writes.",
    source=f"{_HEADER}; pciutils setpci.man (value:mask); fwts maxreadreq; community "
    "measurements (voipmonitor/rtx6kpro)",
    scope="gpu",
    changes=(PciBits,),
)
def max_read_req(paths: tuple[GpuPath, ...], lockdown: str | Unknown) -> list[Verdict]:
    """Judge each GPU's read size, and whether it trails its peers."""
    known = {
        path.bdf: path.gpu.registers.dev_ctl
        for path in paths
        if isinstance(path.gpu.registers.dev_ctl, DevCtl)
    }
    top = max((ctl.max_read_request for ctl in known.values()), default=0)
    usual = pcie_table().usual_read
    behind = {b: c for b, c in known.items() if c.max_read_request < max(usual, min(top, 4096))}
    plain = {b: c for b, c in known.items() if c.max_read_request == usual and b not in behind}
    ours = {path.bdf for path in paths if path.gpu.driver not in HANDED_OUT}
    verdicts: list[tuple[str, Verdict]] = []
    for path in paths:
        ctl = path.gpu.registers.dev_ctl
        if isinstance(ctl, Unknown):
            verdicts.append((path.bdf, not_read(ctl)))
        elif path.bdf in behind | plain:
            alike = behind if path.bdf in behind else plain
            judge = _small_reads if path.bdf in behind else _usual_reads
            verdict = judge(ctl, _larger([bdf for bdf in alike if bdf in ours], lockdown))
            verdicts.append((path.bdf, replace(verdict, remedy=_hindrance(path, lockdown))))
        else:
            verdicts.append((path.bdf, good("Reads are large", _reads(ctl), f">= {usual} bytes")))
    return per_target(verdicts)


def _reads(ctl: DevCtl) -> str:
    return f"{ctl.max_read_request} bytes (DevCtl {ctl.word:04x})"


def _usual_reads(ctl: DevCtl, changes: Alternatives) -> Verdict:
    return issue(
        "Reads are at the usual size; larger ones are an experiment without a proven gain",
        Class.P0,
        Impact.UNPROVEN,
        observed=_reads(ctl),
        expected="4096 bytes, if measured to help",
        changes=changes,
    )


def _small_reads(ctl: DevCtl, changes: Alternatives) -> Verdict:
    return issue(
        "Reads are smaller than usual, or smaller than on the other GPUs",
        Class.P0,
        Impact.LOW,
        observed=_reads(ctl),
        expected=f"{pcie_table().usual_read} bytes or more, the same on all GPUs",
        changes=changes,
    )


def _larger(bdfs: Sequence[str], lockdown: str | Unknown) -> Alternatives:
    """Return the change for all GPUs of a kind, and for the first alone, to be measured first."""
    if lockdown in _LOCKED or not bdfs:
        return ()
    options = [tuple(bdfs), tuple(bdfs[:1])] if len(bdfs) > 1 else [tuple(bdfs)]
    return tuple((_read_size(devices),) for devices in options)


def _read_size(devices: tuple[str, ...]) -> PciBits:
    where = devices[0] if len(devices) == 1 else f"{len(devices)} GPUs"
    return PciBits(
        devices,
        "CAP_EXP+8.w",
        0x5000,
        0x7000,
        risk="medium",
        caution="A live write to PCI registers: with the server idle, one GPU first, measured "
        "before and after (nvbandwidth). A GPU reset, a function-level reset or a reboot undoes "
        "it.",
        told=f"MaxReadReq 4096 bytes on {where}",
    )


def _hindrance(path: GpuPath, lockdown: str | Unknown) -> str:
    """Return why the read size of a GPU is not for gpudoctor to change, or nothing."""
    if lockdown in _LOCKED:
        return f"Not possible here: kernel lockdown ({lockdown}) forbids config-space writes."
    if path.gpu.driver in HANDED_OUT:
        return "A GPU in a virtual machine's hands is left alone: its guest decides."
    return ""


@check(
    "pcie-max-payload",
    "Maximum payload size",
    reads=(GPU_PATHS,),
    why="The largest data packet. Both ends of every link must accept it, so the smallest "
    "capability on the path is the ceiling; it is set at boot and never changed at run time.",
    source=f"{_HEADER}; kernel.org admin-guide/kernel-parameters.txt (pci=pcie_bus_*)",
    scope="gpu",
)
def max_payload(paths: tuple[GpuPath, ...]) -> list[Verdict]:
    """Judge the payload against the smallest capability on the path, and against the port's."""
    return per_target((path.bdf, _payload(path)) for path in paths)


def _payload(path: GpuPath) -> Verdict:
    ctl, cap = path.gpu.registers.dev_ctl, path.gpu.registers.dev_cap
    if isinstance(ctl, Unknown):
        return not_read(ctl)
    if isinstance(cap, Unknown):
        return not_read(cap)
    real = [hop for hop in path.bridges if not _made_up(hop, cap.max_payload)]
    port = real[-1].registers.dev_ctl if real and real[-1] is path.port else None
    caps = [hop.registers.dev_cap for hop in real]
    limit = min([cap.max_payload, *(c.max_payload for c in caps if not isinstance(c, Unknown))])
    path_limit = str(limit) if real else "not visible"
    seen = f"{ctl.max_payload} bytes of {cap.max_payload}; path {path_limit}"
    if isinstance(port, DevCtl) and port.max_payload < ctl.max_payload:
        return _mismatch(f"GPU {ctl.max_payload}, port {port.max_payload} bytes")
    if ctl.max_payload < limit and not real:
        return info(
            "The payload is below the card's limit; the path above it is not visible",
            observed=f"{ctl.max_payload} bytes of {cap.max_payload}",
        )
    if ctl.max_payload < limit:
        gap = next((c for c in caps if isinstance(c, Unknown)), None)
        return not_read(gap) if gap else _small_payload(seen, limit)
    if ctl.max_payload < cap.max_payload:
        return good("The payload is at the path's limit", seen, f"{limit} bytes")
    return non_issue(
        "The payload is the card's own limit; a larger one does not exist for it",
        observed=seen,
        expected=f"{cap.max_payload} bytes",
        why="Ports and switches offer 512 or more, and tools compare with that. Only the smallest "
        "capability on the path counts, and this card's is reached: nothing to gain.",
    )


def _made_up(hop: Hop, card: int) -> bool:
    """Return whether a virtual port shows its hypervisor's 128 bytes, not the slot's."""
    cap = hop.registers.dev_cap
    return hop.emulated and (isinstance(cap, Unknown) or cap.max_payload < card)


def _mismatch(seen: str) -> Verdict:
    return issue(
        "The GPU may send larger packets than its port accepts",
        Class.P1,
        Impact.HIGH,
        observed=seen,
        expected="the same on both ends",
        why="A packet above the receiver's size is malformed: an uncorrectable error. Usually the "
        "trace of a hot-plugged or reset card.",
        remedy="Boot with `pci=pcie_bus_safe`, which sets both ends to what they share. Do not "
        "change the payload at run time.",
    )


def _small_payload(seen: str, limit: int) -> Verdict:
    return issue(
        "The payload is below what every part of the path accepts",
        Class.P1,
        Impact.LOW,
        observed=seen,
        expected=f"{limit} bytes",
        remedy="Set the payload size to Auto in the firmware, or boot with `pci=pcie_bus_safe`.",
    )


@check(
    "pcie-relaxed-ordering",
    "Relaxed ordering",
    reads=(GPU_PATHS,),
    optional=(KERNEL_LOG_READ,),
    why="Relaxed ordering lets reads and writes pass each other on the way to memory, which "
    "matters most on AMD hosts. The bit permits it; whether the GPU uses it is up to the driver.",
    source=f"{_HEADER}; NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/nv-reg.h",
    scope="gpu",
)
def relaxed_ordering(paths: tuple[GpuPath, ...], log: KernelLog | Unknown) -> list[Verdict]:
    """Judge the permission bit; a kernel that took it away for a bad root port is right to."""
    lines = () if isinstance(log, Unknown) else log.matching("Relaxed Ordering")
    return per_target((path.bdf, _ordering(path, lines)) for path in paths)


def _ordering(path: GpuPath, lines: Sequence[str]) -> Verdict:
    ctl = path.gpu.registers.dev_ctl
    if isinstance(ctl, Unknown):
        return not_read(ctl)
    if ctl.relaxed_ordering:
        return good("Relaxed ordering is permitted", "RlxdOrd+", "RlxdOrd+")
    if path.is_cut:
        return info(
            "Relaxed ordering is forbidden, as far as a guest sees it", "RlxdOrd-", why=GUEST
        )
    if any(hop.bdf in line for line in lines for hop in path.hops):
        return info(
            "The kernel switched relaxed ordering off because of the root port",
            observed="RlxdOrd-",
            why="This root port mishandles relaxed ordering (a known erratum): leave it off.",
        )
    return issue(
        "Relaxed ordering is forbidden",
        Class.P1,
        Impact.MEDIUM,
        observed="RlxdOrd-",
        expected="RlxdOrd+",
        remedy="Enable relaxed ordering for the slot in the firmware; the module parameter "
        "NVreg_EnablePCIERelaxedOrderingMode=1 forces it and ignores topology safety.",
    )


@check(
    "pcie-no-snoop",
    "No-snoop",
    reads=(GPU_PATHS,),
    why="A permission bit that CUDA rarely uses; either state is fine.",
    source=_HEADER,
    scope="gpu",
)
def no_snoop(paths: tuple[GpuPath, ...]) -> list[Verdict]:
    """Show the permission bit."""
    return per_target((path.bdf, _snoop(path)) for path in paths)


def _snoop(path: GpuPath) -> Verdict:
    ctl = path.gpu.registers.dev_ctl
    if isinstance(ctl, Unknown):
        return not_read(ctl)
    if ctl.no_snoop:
        return good("No-snoop is permitted", "NoSnoop+", "NoSnoop+")
    return info("No-snoop is not permitted", "NoSnoop-")
