"""Panel 1, address space: BAR1 size (Resizable BAR) and its place above 4 GiB."""

import re

from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.formats.pci import NO_REGISTER, Region, ResizableBar, bytes_text
from gpudoctor.model import (
    Class,
    Impact,
    Needs,
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
from gpudoctor.probes.gpu import GPUS
from gpudoctor.probes.gpu_paths import GPU_PATHS, GpuPath
from gpudoctor.probes.kernel import KERNEL_LOG_READ, KernelLog

_FOUR_GIB = 1 << 32
_MIB = 1 << 20


@check(
    "uefi-rebar-bar1",
    "BAR1 size (Resizable BAR)",
    reads=(),
    optional=(GPU_PATHS, GPUS),
    why="Peer traffic through BAR1, GPUDirect RDMA and large host mappings need a BAR1 as large as "
    "the memory; the driver's default peer path (mailbox) and decode do not. Many healthy cards "
    "show 256 MiB.",
    source="PCI Resizable BAR capability (pciutils ls-ecaps.c); nvidia-smi -q (BAR1 Memory Usage)",
    scope="gpu",
)
def rebar_bar1(
    paths: tuple[GpuPath, ...] | Unknown, gpus: tuple[Gpu, ...] | Unknown
) -> list[Verdict]:
    """Judge BAR1 against the memory, against what the card offers, and against its equals."""
    if isinstance(paths, Unknown):
        if isinstance(gpus, Unknown):
            return [not_read(paths)]
        return per_target((gpu.bdf, _reported(gpu)) for gpu in gpus)
    known = {} if isinstance(gpus, Unknown) else {gpu.bdf: gpu for gpu in gpus}
    why = gpus if isinstance(gpus, Unknown) else None
    return per_target((p.bdf, _bar1(p, known.get(p.bdf), paths, why)) for p in paths)


def _bar1(
    path: GpuPath, gpu: Gpu | None, paths: tuple[GpuPath, ...], why: Unknown | None
) -> Verdict:
    region = path.gpu.aperture
    if gpu and _sliced(gpu):
        return unknown(Reason.NOT_MEASURED, "MIG and vGPU show a part of BAR1 only")
    if region is None or not region.size:
        regions = path.gpu.regions
        if isinstance(regions, Unknown):
            return not_read(regions)
        return unknown(Reason.NOT_PRESENT, "the GPU's BAR1 has no size here")
    memory = gpu.memory.total if gpu else why or Unknown(Reason.NOT_PRESENT, "no memory size")
    largest = _largest(path, region)
    peers = [p for p in paths if p.gpu.function.ids == path.gpu.function.ids]
    top = max(p.gpu.aperture.size for p in peers if p.gpu.aperture)
    total = memory * _MIB if isinstance(memory, int) else 0
    seen = _sizes(region, total, largest)
    if region.size < top:
        return _odd(seen, top)
    if total and region.size >= total:
        return good("BAR1 covers the GPU's memory", seen, f">= {bytes_text(total)}")
    if largest and region.size >= largest:
        return _full(seen, total)
    if not total and not largest:
        return _cannot_tell(path, memory)
    if _fixed(path):
        return info(
            "BAR1 is smaller than the memory, and the card has no resizable BAR", observed=seen
        )
    if len(paths) < 2:
        return info("BAR1 is smaller than the memory; one GPU needs no more", observed=seen)
    return _small(seen, largest)


def _reported(gpu: Gpu) -> Verdict:
    """Judge what nvidia-smi alone tells: not what the card offers, so never an issue."""
    bar1, memory = gpu.bar1.total, gpu.memory.total
    if _sliced(gpu):
        return unknown(Reason.NOT_MEASURED, "MIG and vGPU show a part of BAR1 only")
    if isinstance(bar1, Unknown) or isinstance(memory, Unknown):
        why = bar1 if isinstance(bar1, Unknown) else memory
        assert isinstance(why, Unknown)
        return not_read(why)
    seen = f"BAR1 {bar1} MiB, memory {memory} MiB"
    if bar1 >= memory:
        return good("BAR1 covers the GPU's memory", seen, f">= {memory} MiB")
    return info("BAR1 is smaller than the memory; what the card offers does not show here", seen)


def _sliced(gpu: Gpu) -> bool:
    return gpu.mig.current == "Enabled" or gpu.virtualization in {"VGPU", "vGPU"}


def _fixed(path: GpuPath) -> bool:
    """Return whether the card's capabilities were read and hold no Resizable BAR."""
    return path.gpu.registers.rebar == NO_REGISTER


def _largest(path: GpuPath, region: Region) -> int:
    """Return the largest size the card offers for the aperture, 0 where not readable."""
    bars = path.gpu.registers.rebar
    if isinstance(bars, Unknown):
        return 0
    return max((max(bar.sizes, default=0) for bar in bars if _is_aperture(bar, region)), default=0)


def _is_aperture(bar: ResizableBar, region: Region) -> bool:
    return bar.bar == region.index if region.index is not None else bar.size == region.size


def _sizes(region: Region, total: int, largest: int) -> str:
    words = [f"BAR1 {bytes_text(region.size)}"]
    if total:
        words.append(f"memory {total // _MIB} MiB")
    if largest:
        words.append(f"card offers up to {bytes_text(largest)}")
    return ", ".join(words)


def _cannot_tell(path: GpuPath, memory: object) -> Verdict:
    rebar = path.gpu.registers.rebar
    why = rebar if isinstance(rebar, Unknown) else memory
    why = why if isinstance(why, Unknown) else Unknown(Reason.NOT_PRESENT, "")
    return unknown(
        why.reason,
        f"neither the GPU's memory nor the sizes that the card offers can be read ({why.detail})",
    )


def _full(seen: str, total: int) -> Verdict:
    if not total:
        return good("BAR1 has the largest size that the card offers", observed=seen)
    return info(
        "BAR1 is smaller than the memory, and the card offers no more",
        observed=seen,
        why="The sizes that the card offers end here: no firmware switch of the host can change "
        "it, at most a VBIOS of the card's maker. Decode does not need it.",
    )


def _odd(seen: str, top: int) -> Verdict:
    return issue(
        "BAR1 is smaller than on an equal GPU of this host",
        Class.FW,
        Impact.HIGH,
        observed=seen,
        expected=bytes_text(top),
        needs=Needs.REBOOT,
        remedy="Compare slots and cards: the firmware's window for large BARs may have run out "
        "(raise the MMIO size, Above 4G Decoding), or the card's VBIOS differs.",
    )


def _small(seen: str, largest: int) -> Verdict:
    return issue(
        "BAR1 is smaller than the GPU's memory",
        Class.FW,
        Impact.MEDIUM,
        observed=seen,
        expected=bytes_text(largest) if largest else "at least the memory",
        needs=Needs.REBOOT,
        remedy="Firmware: Above 4G Decoding and Re-Size BAR on, CSM off; then read the sizes again "
        "(`supported:` in `lspci -vvv` must list more than 256MB, else the card offers no more).",
    )


@check(
    "uefi-above-4g",
    "Large BARs above 4 GiB",
    reads=(GPU_PATHS,),
    optional=(KERNEL_LOG_READ,),
    why="Without 64-bit address space for devices the large BARs cannot be placed, and the driver "
    "cannot start the GPU.",
    source="kernel.org Documentation/ABI/testing/sysfs-bus-pci (resource); kernel log of PCI BARs",
    scope="gpu",
)
def above_4g(paths: tuple[GpuPath, ...], log: KernelLog | Unknown) -> list[Verdict]:
    """Judge where each GPU's aperture lies, and what the kernel could not place."""
    failed = log if isinstance(log, Unknown) else _failed(log)
    return per_target((path.bdf, _placed(path, failed)) for path in paths)


# Old kernels: `BAR 1: failed to assign [mem …]`; new ones: `BAR 1 [mem …]: failed to assign`.
_ASSIGN = re.compile(
    r"(?P<bdf>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?P<vf>VF )?BAR (?P<bar>\d+)\b"
    r"(?P<rest>.*)"
)


def _failed(log: KernelLog) -> dict[str, str]:
    """Return the last word on each function: a memory BAR that stayed without a place."""
    left: dict[tuple[str, str], str] = {}
    for line in log.lines:
        found = _ASSIGN.search(line)
        if found is None or found["vf"] or int(found["bar"]) > 5 or "[io" in found["rest"]:
            continue
        key, rest = (found["bdf"], found["bar"]), found["rest"]
        if re.search(r"failed to assign|no space|can.t assign", rest):
            left[key] = found[0]
        elif "assigned" in rest:
            left.pop(key, None)
    return {bdf: line for (bdf, _), line in left.items()}


def _placed(path: GpuPath, failed: dict[str, str] | Unknown) -> Verdict:
    region = path.gpu.aperture
    if isinstance(path.gpu.regions, Unknown):
        return unknown(path.gpu.regions.reason, path.gpu.regions.detail)
    if region is None:
        return unknown(Reason.NOT_PRESENT, "the GPU's BAR1 is not listed")
    start = region.start
    complaint = "" if isinstance(failed, Unknown) else failed.get(path.bdf, "")
    if complaint or not start:
        return issue(
            "The firmware's address space has no room for the GPU's BARs",
            Class.FW,
            Impact.HIGH,
            observed=complaint or "BAR1 has no address",
            expected="BAR1 placed above 4 GiB",
            needs=Needs.REBOOT,
            remedy="Firmware: Above 4G Decoding on, a larger MMIO window (MMIO High size); then "
            "reboot.",
        )
    if start >= _FOUR_GIB:
        return good("BAR1 lies above 4 GiB", observed=f"BAR1 at {start:#x}")
    if isinstance(failed, Unknown):
        return unknown(failed.reason, f"BAR1 lies below 4 GiB; kernel log: {failed.detail}")
    return info(
        "BAR1 lies below 4 GiB and was placed",
        observed=f"BAR1 at {start:#x}",
        why="Small BARs fit there; Above 4G Decoding appears off, which a larger BAR1 would need.",
    )
