"""Panel 7, links: width and generation of each GPU's link, and of the links above it."""

from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.formats.pci import Link
from gpudoctor.model import (
    Class,
    Impact,
    Reason,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    non_issue,
    not_read,
    per_target,
    unknown,
)
from gpudoctor.probes.gpu import GPUS
from gpudoctor.probes.gpu_paths import GPU_PATHS, GpuPath
from gpudoctor.probes.pci_hop import Hop

_SYSFS = "kernel.org Documentation/ABI/testing/sysfs-bus-pci (current_link_*, max_link_*)"


def port_max(path: GpuPath) -> Link | None:
    """Return what the GPU's port can do; None where unknown, or a virtual port makes it up."""
    now, top, port = path.gpu.link, path.gpu.link_max, path.port
    if port is None or not isinstance(port.link_max, Link):
        return None
    if not isinstance(now, Link) or not isinstance(top, Link):
        return None
    able = port.link_max
    if able.width < now.width or able.gen < now.gen:
        return None
    # QEMU's own defaults are x32 and Gen4, whatever slot the card is really in.
    made_up = port.emulated and (able.width > top.width or able.gen < top.gen)
    return None if made_up else able


@check(
    "pcie-link-width",
    "PCIe link width of each GPU",
    reads=(GPU_PATHS,),
    why="A link narrower than card and slot allow halves host copies and peer traffic; it points "
    "at seating, a riser, contacts or bifurcation. Width does not drop at idle.",
    source=_SYSFS,
    scope="gpu",
)
def link_width(paths: tuple[GpuPath, ...]) -> list[Verdict]:
    """Judge the lanes against what card and port both can do."""
    return per_target((path.bdf, _width(path)) for path in paths)


def _width(path: GpuPath) -> Verdict:
    now, top, port = path.gpu.link, path.gpu.link_max, port_max(path)
    if isinstance(now, Unknown):
        return not_read(now)
    if isinstance(top, Unknown):
        return not_read(top)
    ceiling = min(top.width, port.width) if port else top.width
    seen = f"x{now.width} of x{top.width}, port x{port.width if port else '?'}"
    if now.width < ceiling and port is None:
        return _narrow_somewhere(seen, ceiling)
    if now.width < ceiling:
        return issue(
            "The link runs on fewer lanes than card and slot have",
            Class.FW,
            Impact.HIGH,
            observed=seen,
            expected=f"x{ceiling}",
            remedy="Reseat the card; check riser, cable and contacts, and the slot's bifurcation "
            "setting in the firmware; then read the width again.",
        )
    if ceiling < top.width:
        return info(
            "The slot has fewer lanes than the card: a board limit, not a fault of the card",
            observed=seen,
            expected=f"x{ceiling}",
        )
    return good("The link runs at full width", observed=seen, expected=f"x{ceiling}")


def _narrow_somewhere(seen: str, ceiling: int) -> Verdict:
    return issue(
        "The link runs on fewer lanes than the card has; the slot's own lanes are not visible",
        Class.FW,
        Impact.LOW,
        observed=seen,
        expected=f"x{ceiling}, if the slot has them",
        why="The real port above the card is not shown here (a virtual machine, or a partial "
        "record): "
        "the slot may simply have no more lanes.",
        remedy="On the host itself, compare with max_link_width of the port above the card.",
    )


def awake(gpu: Gpu | None) -> bool | None:
    """Return whether nvidia-smi saw the GPU at work (P0-P2 or busy); None when it did not say."""
    if gpu is None or isinstance(gpu.pstate, Unknown):
        return None
    busy = isinstance(gpu.utilization, int) and gpu.utilization > 0
    return busy or gpu.pstate in {"P0", "P1", "P2"}


@check(
    "pcie-link-gen",
    "PCIe link generation of each GPU",
    reads=(GPU_PATHS,),
    optional=(GPUS,),
    why="The generation sets the link's speed. A healthy GPU drops its link to Gen1 when idle and "
    "retrains within microseconds to milliseconds, so a low speed counts only under load; the "
    "maximum in sysfs is what the card could do, not what was negotiated.",
    source=f"{_SYSFS}; nvidia-smi(1) PCIe generation",
    scope="gpu",
)
def link_gen(paths: tuple[GpuPath, ...], gpus: tuple[Gpu, ...] | Unknown) -> list[Verdict]:
    """Judge the generation against card and port, with what the GPU was doing."""
    known = {} if isinstance(gpus, Unknown) else {gpu.bdf: gpu for gpu in gpus}
    return per_target((path.bdf, _gen(path, known.get(path.bdf))) for path in paths)


def _gen(path: GpuPath, gpu: Gpu | None) -> Verdict:
    now, top, port = path.gpu.link, path.gpu.link_max, port_max(path)
    if isinstance(now, Unknown):
        return not_read(now)
    if isinstance(top, Unknown):
        return not_read(top)
    reported = gpu.link.gen if gpu and isinstance(gpu.link.gen, int) else 0
    current = max(now.gen, reported)
    ceiling = min(top.gen, port.gen) if port else top.gen
    seen = f"Gen{current} of Gen{top.gen}, port Gen{port.gen if port else '?'}"
    wanted = f"Gen{ceiling}"
    if current < ceiling and reported and awake(gpu):
        return _slow_at_work(seen, wanted)
    if current < ceiling and _target(path, ceiling):
        return _held_low(seen, wanted)
    if ceiling < top.gen:
        return _slow_slot(seen, wanted)
    if current >= ceiling:
        return good("The link runs at its full generation", observed=seen, expected=wanted)
    if awake(gpu) is False:
        return _idle(seen, wanted)
    return unknown(
        Reason.NEEDS_LOAD,
        "The link is at a lower generation and nobody saw the GPU at work: normal at idle; read "
        "it again under load",
        observed=seen,
        expected=wanted,
    )


def _target(path: GpuPath, ceiling: int) -> bool:
    """Return whether either end is told to stay below what both can do."""
    ends = [path.gpu] + ([path.port] if path.port and not path.port.emulated else [])
    targets = [end.registers.lnk_ctl2 for end in ends]
    return any(not isinstance(t, Unknown) and t.target_gen < ceiling for t in targets)


def _slow_at_work(seen: str, wanted: str) -> Verdict:
    return issue(
        "The link runs below its generation while the GPU is at work",
        Class.FW,
        Impact.HIGH,
        observed=seen,
        expected=wanted,
        remedy="Reseat the card, check riser or retimer, and the slot's link-speed setting in the "
        "firmware; look at the error counters of the port.",
    )


def _held_low(seen: str, wanted: str) -> Verdict:
    return issue(
        "The target link speed is set below what card and slot can do",
        Class.FW,
        Impact.LOW,
        observed=seen,
        expected=wanted,
        remedy="Set the slot's link speed to Auto (or the card's generation) in the firmware.",
    )


def _slow_slot(seen: str, wanted: str) -> Verdict:
    return issue(
        "The slot's generation is below the card's",
        Class.FW,
        Impact.LOW,
        observed=seen,
        expected=wanted,
        why="The port above the card offers a lower generation than the card: a limit of board or "
        "CPU, or a link-speed setting in the firmware. Host copies and peer traffic are bound by "
        "it; decode on one GPU hardly is.",
        remedy="Check the slot's link-speed setting in the firmware; where it is Auto, this is the "
        "board's limit and nothing is to be done.",
    )


def _idle(seen: str, wanted: str) -> Verdict:
    return non_issue(
        "The link is at a low generation because the GPU is idle",
        observed=seen,
        expected=f"{wanted} under load",
        why="GPUs drop the link at idle to save power, even with ASPM off and persistence on, and "
        "retrain in microseconds to milliseconds. `downgraded` in lspci at idle is no fault.",
    )


@check(
    "pcie-path-bottleneck",
    "Links between GPUs and their root ports",
    reads=(GPU_PATHS,),
    why="A switch or riser above the GPU may have a narrower or slower link than the GPU itself; "
    "the GPU's own registers do not show it.",
    source=f"{_SYSFS}; every bridge of the device path",
    scope="gpu",
)
def path_bottleneck(paths: tuple[GpuPath, ...]) -> list[Verdict]:
    """Judge every link above the GPU's own."""
    return per_target((path.bdf, _narrowest(path, paths)) for path in paths)


def _narrowest(path: GpuPath, paths: tuple[GpuPath, ...]) -> Verdict:
    now, top, port = path.gpu.link, path.gpu.link_max, port_max(path)
    if isinstance(now, Unknown):
        return not_read(now)
    if isinstance(top, Unknown):
        return not_read(top)
    want = Link(min(top.gen, port.gen) if port else top.gen, now.width)
    if not path.bridges:
        return unknown(
            Reason.NOT_PRESENT,
            "no bridge is visible above the GPU (a virtual machine, or a partial record)",
        )
    uplinks = {hop.bdf: hop.link for hop in path.bridges[:-1] if not hop.emulated}
    links = {bdf: link for bdf, link in uplinks.items() if isinstance(link, Link)}
    if uplinks and not links:
        return unknown(Reason.NOT_PRESENT, "the links above the GPU's port show no speed")
    if not links:
        return good("Nothing between the GPU and its root port", observed=str(want))
    seen = ", ".join(f"{bdf} {link}" for bdf, link in links.items())
    slow = {hop.bdf: hop for hop in path.bridges[:-1] if _below(hop, want) and hop.bdf in links}
    if slow and now.gen < want.gen and not any(_narrow(hop, want) for hop in slow.values()):
        return unknown(
            Reason.NEEDS_LOAD,
            "a link above the GPU is at a lower generation while the GPU's own idles: read it "
            "again under load",
            observed=seen,
        )
    if slow:
        return issue(
            "A link above the GPU is slower than the GPU's own",
            Class.FW,
            Impact.LOW,
            observed=seen,
            expected=f"at least {want}",
            remedy="Check cable, riser and the settings of the slot that the switch is in; the "
            "narrowest link bounds host copies.",
        )
    shared = {bdf for bdf in links if sum(_under(bdf, other) for other in paths) > 1}
    if shared:
        return info(
            "Several GPUs share one uplink, as switches are built",
            observed=f"{seen}; shared: {', '.join(sorted(shared))}",
            why="Host bandwidth is shared by the GPUs below the switch; traffic between GPUs on "
            "the same switch does not use the uplink.",
        )
    return good("Every link up to the root port carries the GPU's own", observed=seen)


def _below(hop: Hop, want: Link) -> bool:
    return isinstance(hop.link, Link) and hop.link.rate < want.rate


def _narrow(hop: Hop, want: Link) -> bool:
    """Return whether a link could not carry it at its highest generation either."""
    if not isinstance(hop.link, Link) or not isinstance(hop.link_max, Link):
        return True
    return Link(hop.link_max.gen, hop.link.width).rate < want.rate


def _under(bdf: str, path: GpuPath) -> bool:
    return any(hop.bdf == bdf for hop in path.bridges)
