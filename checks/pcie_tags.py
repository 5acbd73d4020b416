"""Panel 7, registers: tags in flight and end-to-end CRC of each GPU."""

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
from gpudoctor.probes.gpu_paths import GPU_PATHS, GUEST, GpuPath


@check(
    "pcie-ext-tags",
    "Extended (8-bit) tags",
    reads=(GPU_PATHS,),
    why="Tags number the reads in flight: 256 with extended tags, 32 without, which bounds copies "
    "from host memory. The kernel turns them off where a bridge cannot take them.",
    source="pciutils lib/header.h (Device Capabilities, Device Control)",
    scope="gpu",
)
def ext_tags(paths: tuple[GpuPath, ...]) -> list[Verdict]:
    """Judge the enable bit against the capability."""
    return per_target((path.bdf, _ext(path)) for path in paths)


def _ext(path: GpuPath) -> Verdict:
    ctl, cap = path.gpu.registers.dev_ctl, path.gpu.registers.dev_cap
    if isinstance(ctl, Unknown):
        return not_read(ctl)
    if isinstance(cap, Unknown):
        return not_read(cap)
    if ctl.ext_tag:
        return good("Extended tags are on", "ExtTag+", "ExtTag+")
    if not cap.ext_tag:
        return info("The card has no extended tags", "DevCap ExtTag-")
    if path.is_cut:
        seen = "DevCap ExtTag+, DevCtl ExtTag-"
        return info("Extended tags are off, as far as a guest sees it", seen, why=GUEST)
    return issue(
        "Extended tags are off although the card has them",
        Class.P1,
        Impact.MEDIUM,
        observed="DevCap ExtTag+, DevCtl ExtTag-",
        expected="DevCtl ExtTag+",
        remedy="Enable extended tags for the slot in the firmware; look for `disabling Extended "
        "Tags` in the kernel log first, which names a bridge that cannot take them.",
    )


@check(
    "pcie-10bit-tags",
    "10-bit tags",
    reads=(GPU_PATHS,),
    why="10-bit tags allow 768 reads in flight, which small reads at Gen5 want. With reads of 512 "
    "bytes the 256 extended tags already cover about 128 KiB in flight, which is enough.",
    source="pciutils lib/header.h (Device Capabilities 2, Device Control 2)",
    scope="gpu",
)
def tags10(paths: tuple[GpuPath, ...]) -> list[Verdict]:
    """Judge the requester's enable bit against the capability."""
    return per_target((path.bdf, _ten(path)) for path in paths)


def _ten(path: GpuPath) -> Verdict:
    ctl, cap = path.gpu.registers.dev_ctl2, path.gpu.registers.dev_cap2
    if not isinstance(ctl, Unknown) and ctl.tags10:
        return good("10-bit tags are on", "10BitTagReq+", "10BitTagReq+")
    if isinstance(cap, Unknown):
        return not_read(cap)
    if not cap.tags10_requester:
        return info("The card has no 10-bit tags", "DevCap2 10BitTagReq-")
    if isinstance(ctl, Unknown):
        return not_read(ctl)
    return info("10-bit tags are off although the card has them", "DevCtl2 10BitTagReq-")


@check(
    "pcie-ecrc",
    "End-to-end CRC",
    reads=(GPU_PATHS,),
    why="End-to-end CRC adds 4 bytes to each packet (below 2 %) and acts only where both the GPU "
    "and the root port generate and check it. Either state is fine when both ends agree.",
    source="pciutils lib/header.h (Advanced Error Reporting); kernel-parameters.txt (pci=ecrc=)",
    scope="gpu",
)
def ecrc(paths: tuple[GpuPath, ...]) -> list[Verdict]:
    """Compare the GPU's end with the root port's."""
    return per_target((path.bdf, _ecrc(path)) for path in paths)


def _ecrc(path: GpuPath) -> Verdict:
    end = path.gpu.registers.ecrc
    if isinstance(end, Unknown):
        return not_read(end)
    far = path.root.registers.ecrc if path.root else None
    words = f"GPU generate {_on(end.generate)}, check {_on(end.check)}"
    if far is None or isinstance(far, Unknown):
        seen = f"{words}; root port not readable"
        return info("End-to-end CRC: only the GPU's end is known", observed=seen)
    seen = f"{words}; root port generate {_on(far.generate)}, check {_on(far.check)}"
    if end.on and far.on:
        return good("End-to-end CRC is on at both ends", observed=seen)
    if not any((end.generate, end.check, far.generate, far.check)):
        return info("End-to-end CRC is off at both ends", observed=seen)
    return info("End-to-end CRC is on at one end only, or half on: no effect", observed=seen)


def _on(bit: bool) -> str:
    return "on" if bit else "off"
