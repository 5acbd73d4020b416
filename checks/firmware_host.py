"""Panel 1, the host: NUMA nodes per socket, SMT, CPPC, kernel lockdown."""

from gpudoctor.formats.cpuinfo import Cpu
from gpudoctor.model import (
    Class,
    Evidence,
    Files,
    Impact,
    Listing,
    Reader,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
)
from gpudoctor.probes.cpu import CPU, SOCKETS
from gpudoctor.probes.kernel import KERNEL_LOG_READ, NUMA_NODES, KernelLog
from gpudoctor.probes.lockdown import LOCKDOWN

_CPUS = "/sys/devices/system/cpu"
_SMT = f"{_CPUS}/smt/control"
_CPPC = f"{_CPUS}/cpu0/acpi_cppc"


SMT_CONTROL: Reader[str] = Reader(
    "smt-control", (Files("smt-control", (_SMT,)),), lambda evidence: evidence.get(_SMT)
)


CPPC_FILES: Reader[bool] = Reader(
    "acpi-cppc", (Listing("acpi-cppc", (_CPPC,)),), Evidence.present, tolerant=True
)


@check(
    "uefi-nps",
    "NUMA nodes per socket",
    reads=(NUMA_NODES, SOCKETS),
    optional=(CPU,),
    why="NCCL treats each NUMA node as a CPU of its own: a socket split into several turns close "
    "GPU pairs into far ones and multiplies affinity masks; two sockets shown as one node hide "
    "which memory is near. Little effect unless pinning is wrong.",
    source="NVIDIA/nccl src/graph/topo.h; AMD NPS and `L3 as NUMA` firmware options",
)
def nps(nodes: int, sockets: int, cpu: Cpu | Unknown) -> Verdict:
    """Compare nodes that have CPUs and memory with sockets."""
    seen = f"{nodes} node(s), {sockets} socket(s)"
    if isinstance(cpu, Cpu) and cpu.is_virtual:
        return info("A virtual machine's nodes and sockets are the hypervisor's choice", seen)
    if nodes == sockets:
        return good("One NUMA node a socket", seen, "one node a socket (NPS1)")
    more = nodes > sockets
    return issue(
        "The firmware appears to split sockets (NPS2/4, L3 as NUMA, or Intel's SNC)"
        if more
        else "The firmware appears to interleave the sockets' memory (NPS0, node interleaving)",
        Class.FW,
        Impact.LOW if more else Impact.MEDIUM,
        observed=seen,
        expected="one node a socket (NPS1)",
        remedy="Firmware: NUMA nodes per socket NPS1, `ACPI SRAT L3 cache as NUMA domain` off "
        "(Intel: sub-NUMA clustering off), node interleaving off.",
    )


@check(
    "uefi-smt",
    "Simultaneous multithreading",
    reads=(SMT_CONTROL,),
    why="GPU servers are rarely bound by CPU threads; SMT off helps jitter at most. Context only.",
    source="kernel.org Documentation/ABI/testing/sysfs-devices-system-cpu (smt)",
)
def smt(control: str) -> Verdict:
    """Show the state; any is fine."""
    return info("Simultaneous multithreading, as the kernel has it", observed=control.strip())


@check(
    "uefi-cppc",
    "CPPC (the firmware's part of amd-pstate)",
    reads=(CPU, CPPC_FILES),
    optional=(KERNEL_LOG_READ,),
    why="amd-pstate does not load without the firmware's CPPC tables, and leaves acpi-cpufreq.",
    source="kernel.org Documentation/admin-guide/pm/amd-pstate.rst; drivers/cpufreq/amd-pstate.c",
)
def cppc(cpu: Cpu, present: bool, log: KernelLog | Unknown) -> Verdict:
    """Judge AMD hosts by CPU flag, sysfs directory and the kernel's own complaint."""
    name = cpu.name or cpu.vendor or "unnamed"
    if not cpu.is_amd:
        return info("Only AMD hosts need it", observed=name)
    if cpu.is_virtual:
        return info("A virtual machine's CPU frequency is the hypervisor's choice", observed=name)
    if cpu.family < 23 or (cpu.family == 23 and cpu.model < 0x30):
        return info("This CPU is older than CPPC", observed=cpu.name)
    lines = () if isinstance(log, Unknown) else log.matching("CPPC feature is supported but")
    flag = "cppc" in cpu.flags
    seen = f"CPU flag {'yes' if flag else 'no'}, acpi_cppc {'yes' if present else 'no'}"
    if (flag or present) and not lines:
        return good("CPPC is there", observed=seen)
    return issue(
        "CPPC appears to be off in the firmware",
        Class.FW,
        Impact.LOW,
        observed=f"{seen}; the kernel says so" if lines else seen,
        expected="CPPC enabled",
        remedy="Firmware: CPPC = Enabled (AMD CBS, SMU options).",
    )


@check(
    "uefi-kernel-lockdown",
    "Kernel lockdown",
    reads=(LOCKDOWN,),
    why="Under lockdown (usually with Secure Boot) even root cannot write PCI registers or MSRs, "
    "or load unsigned modules: such changes are not possible here.",
    source="kernel_lockdown(7)",
)
def kernel_lockdown(mode: str) -> Verdict:
    """Judge whether register writes can work at all."""
    if mode in {"none", "absent"}:
        return good("No kernel lockdown", observed=mode, expected="none")
    return info(
        "Kernel lockdown forbids PCI register and MSR writes: those changes are not possible here",
        observed=mode,
        expected="none, for register changes",
    )
