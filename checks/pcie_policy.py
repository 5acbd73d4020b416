"""Panel 7, policies: ports that sleep, payload policy at boot, replays, switches on the way."""

from gpudoctor.formats.cmdline import Cmdline
from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.model import (
    Class,
    Impact,
    Needs,
    Reason,
    Sysfs,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    not_read,
    per_target,
)
from gpudoctor.probes.gpu import GPUS
from gpudoctor.probes.gpu_paths import GPU_PATHS, GpuPath
from gpudoctor.probes.kernel import KERNEL_PARAMETERS
from gpudoctor.probes.pci import DEVICES, GPU_FUNCTIONS, PciFunction
from gpudoctor.tables.pcie import pcie_table


@check(
    "pcie-port-runtime-pm",
    "Ports that go to sleep",
    reads=(GPU_PATHS,),
    why="A port that suspends while its GPU retrains has given `Surprise Link Down` and lost GPUs. "
    "`auto` is the kernel's default and harmless while the port stays awake.",
    source="kernel.org Documentation/power/runtime_pm.rst; sysfs-devices-power (control)",
    scope="gpu",
    changes=(Sysfs,),
)
def port_runtime_pm(paths: tuple[GpuPath, ...]) -> list[Verdict]:
    """Judge whether a bridge above a GPU was asleep when read."""
    return per_target((path.bdf, _sleep(path)) for path in paths)


def _sleep(path: GpuPath) -> Verdict:
    states = {hop.bdf: (hop.power_control, hop.runtime_status) for hop in path.bridges}
    known = {bdf: s for bdf, s in states.items() if not any(isinstance(v, Unknown) for v in s)}
    if not known:
        why = path.port.power_control if path.port else path.gpu.power_control
        if isinstance(why, Unknown):
            return not_read(why)
        return info("No port is visible above the GPU", observed=f"GPU {why}")
    seen = ", ".join(f"{bdf} {control}/{status}" for bdf, (control, status) in known.items())
    asleep = [bdf for bdf, state in known.items() if state == ("auto", "suspended")]
    if not asleep:
        return good("The ports above the GPU are awake", observed=seen)
    return issue(
        "A port above the GPU is allowed to sleep, and does",
        Class.P0,
        Impact.MEDIUM,
        observed=seen,
        expected="on, or awake",
        changes=((_awake(path),),),
        remedy="`pcie_port_pm=off` on the kernel command line lasts over boots.",
    )


def _awake(path: GpuPath) -> Sysfs:
    """Return the change that keeps a GPU and the bridges above it from sleeping, root port first.

    A bridge wakes its parent with it; written from the top, each write wakes one.
    """
    sleepy = [hop.bdf for hop in reversed(path.hops) if hop.power_control == "auto"]
    return Sysfs(
        tuple(f"{DEVICES}/{bdf}/power/control" for bdf in sleepy),
        "on",
        caution="More power at idle; the ports wake up now.",
    )


@check(
    "pcie-bus-config-policy",
    "Payload policy at boot",
    reads=(KERNEL_PARAMETERS,),
    optional=(GPU_FUNCTIONS,),
    why="`pcie_bus_perf` also sets the read request size to the payload; `pcie_bus_peer2peer` "
    "forces every payload to 128 bytes.",
    source="kernel.org Documentation/admin-guide/kernel-parameters.txt (pci=pcie_bus_*)",
)
def bus_policy(cmdline: Cmdline, gpus: tuple[PciFunction, ...] | Unknown) -> Verdict:
    """Judge the last pci=pcie_bus_* word of the command line, for hosts that may have a GPU."""
    if isinstance(gpus, Unknown) and gpus.reason is not Reason.NOT_IN_RECORDING:
        return not_read(gpus)
    words = [word for word in cmdline.options("pci") if word.startswith("pcie_bus_")]
    last = words[-1] if words else ""
    if last == "pcie_bus_peer2peer":
        return issue(
            "All payloads are forced to 128 bytes at boot",
            Class.P1,
            Impact.MEDIUM,
            observed=f"pci={last}",
            expected="no such parameter, or pcie_bus_safe",
            needs=Needs.REBOOT,
            remedy="Take `pcie_bus_peer2peer` out of the kernel command line and reboot.",
        )
    if last in {"", "pcie_bus_safe"}:
        return good("The kernel chooses payloads as usual", last or "not set")
    return info("A payload policy is set at boot", observed=f"pci={last}")


@check(
    "pcie-replays",
    "Packets sent again, as the GPU counts them",
    reads=(GPUS,),
    why="Replays since the driver was loaded: the GPU's own view of its link. A count that grows "
    "is a marginal link; a few after loading are usual.",
    source="nvidia-smi(1) Replays Since Reset",
    scope="gpu",
)
def replays(gpus: tuple[Gpu, ...]) -> list[Verdict]:
    """Show the count; whether it grows takes two snapshots."""
    return per_target((gpu.bdf, _replays(gpu)) for gpu in gpus)


def _replays(gpu: Gpu) -> Verdict:
    count = gpu.link.replays
    if isinstance(count, Unknown):
        return not_read(count)
    if count == 0:
        return good("No replays since the driver was loaded", "0", "0")
    return info("Replays since the driver was loaded; compare later", observed=str(count))


@check(
    "pcie-switch-map",
    "Switches above the GPUs",
    reads=(GPU_PATHS,),
    why="Several virtual switches may share one chip, which nvidia-smi's topology cannot see. On "
    "Broadcom PEX890xx chips, writes between GPUs that cross root ports have collapsed from 37 to "
    "2.7 GB/s.",
    source="PCI vendor ids (pciutils pci.ids); community measurements (voipmonitor/rtx6kpro)",
    scope="gpu",
)
def switch_map(paths: tuple[GpuPath, ...]) -> list[Verdict]:
    """Name every bridge above each GPU by its vendor."""
    return per_target((path.bdf, _switches(path)) for path in paths)


def _switches(path: GpuPath) -> Verdict:
    names = pcie_table().bridges
    seen = ", ".join(
        f"{hop.bdf} {hop.function.label}: {names.get(hop.function.vendor, 'bridge')}"
        for hop in path.bridges
    )
    return info("The bridges above the GPU, by vendor", observed=seen or "none visible")
