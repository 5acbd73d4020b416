"""Whether the running kernel fits the CPU and the Proxmox release."""

import re

from gpudoctor.formats.cpuinfo import Cpu
from gpudoctor.formats.version import series
from gpudoctor.model import (
    Class,
    Evidence,
    Files,
    Impact,
    KernelArguments,
    Needs,
    Reader,
    Reason,
    Unknown,
    Verdict,
    Worked,
    check,
    good,
    info,
    issue,
    non_issue,
    not_read,
    unknown,
)
from gpudoctor.probes.cpu import CPU, CPU_FREQ, CpuFreq
from gpudoctor.probes.installed_kernels import PROXMOX
from gpudoctor.probes.kernel import INSIDE_CONTAINER, KERNEL_RELEASE, vouched
from gpudoctor.probes.pci import GPU_FUNCTIONS, PciFunction
from gpudoctor.tables.kernels import dotted, kernels

_CPPC = "/sys/devices/system/cpu/cpu0/acpi_cppc/highest_perf"


def _cppc(evidence: Evidence) -> bool | Unknown:
    """Return whether the firmware describes CPPC, which amd-pstate needs."""
    if evidence.unread:
        return evidence.unread
    return _CPPC in evidence.texts()


CPPC: Reader[bool] = Reader("cppc", (Files("cppc", (_CPPC,)),), _cppc, tolerant=True)


@check(
    "kver-cpufreq-driver",
    "CPU frequency driver",
    reads=(CPU, KERNEL_RELEASE),
    optional=(CPU_FREQ, CPPC, INSIDE_CONTAINER),
    why="Upstream uses amd-pstate on AMD servers of family 26 (Zen 5) from 6.13 on; before that "
    "acpi-cpufreq is the default, and amd_pstate=active works on 6.8 too where the firmware has "
    "CPPC on. With the governor performance both reach full boost: expect 0-2 % for GPU decode.",
    source="Linux drivers/cpufreq/amd-pstate.c; kernel.org admin-guide/pm/amd-pstate.rst",
    changes=(KernelArguments,),
)
def cpufreq_driver(
    cpu: Cpu, release: str, freq: CpuFreq | Unknown, cppc: bool | Unknown, inside: str | Unknown
) -> Verdict:
    """Judge the scaling driver by CPU family and kernel."""
    if isinstance(freq, Unknown):
        return _no_driver(cpu, freq, inside)
    driver = freq.driver
    seen = f"{driver or 'driver not shown'}, {cpu.name or cpu.vendor}, kernel {release}"
    if not driver:
        return unknown(Reason.NOT_PRESENT, "the CPU frequency policies name no driver")
    if not cpu.is_amd or driver != "acpi-cpufreq":
        return (
            good("The CPU frequency driver suits this CPU", seen)
            if driver.startswith(("amd-pstate", "intel_pstate", "intel_cpufreq", "cppc_cpufreq"))
            else info("An uncommon CPU frequency driver is in use", seen)
        )
    if cpu.family < 26 and "EPYC" not in cpu.name:
        return info(
            "acpi-cpufreq drives this CPU",
            seen,
            why="On AMD CPUs that are no server's, amd-pstate is the default from 6.5 on where the "
            "firmware has CPPC (see uefi-cppc); with the governor performance both reach boost.",
        )
    if cpu.family < 26:
        return non_issue(
            "acpi-cpufreq is this CPU's default driver",
            seen,
            why="The kernel keeps amd-pstate off on AMD servers before family 26 (Zen 5).",
        )
    settled = series(release) >= kernels().zen5_settled
    return issue(
        "acpi-cpufreq drives a Zen 5 CPU",
        Class.P1,
        Impact.LOW,
        seen,
        "amd-pstate-epp",
        needs=Needs.REBOOT,
        remedy=_activate(settled, cppc),
        changes=() if settled or cppc is False else ((_ACTIVE,),),
    )


_ACTIVE = KernelArguments(
    add=("amd_pstate=active",),
    caution="Without CPPC in the firmware the driver does not load, and acpi-cpufreq stays.",
)


def _activate(settled: bool, cppc: bool | Unknown) -> str:
    boot = "boot with amd_pstate=active (no new kernel needed)"
    if settled:
        boot = "take amd_pstate=disable (or another amd_pstate=) off the kernel command line"
    if cppc is False:
        return f"The firmware shows no CPPC: enable CPPC in its setup first, then {boot}."
    return f"With CPPC enabled in the firmware, {boot}."


def _no_driver(cpu: Cpu, freq: Unknown, inside: str | Unknown) -> Verdict:
    """Judge a missing driver: usual in a guest or container, a firmware matter on bare metal."""
    if freq.reason is not Reason.NOT_PRESENT:
        return not_read(freq)
    if hidden := vouched(inside, "CPU frequency driver"):
        return not_read(hidden)
    if cpu.is_virtual or not cpu.is_amd and cpu.vendor != "GenuineIntel":
        return unknown(Reason.NOT_PRESENT, "no CPU frequency driver (usual in a virtual machine)")
    return issue(
        "No CPU frequency driver is loaded on bare metal",
        Class.P1,
        Impact.MEDIUM,
        f"no policies in /sys/devices/system/cpu/cpufreq, {cpu.name or cpu.vendor}",
        "amd-pstate, acpi-cpufreq or intel_pstate",
        needs=Needs.REBOOT,
        why="Without a driver nobody asks for boost; the CPUs may stay at their base clock.",
        remedy="Enable CPPC and P-states in the firmware's setup, look for amd_pstate= or "
        "intel_pstate= on the kernel command line, and reboot.",
    )


@check(
    "kver-zen5",
    "Kernel for Zen 5",
    reads=(CPU, KERNEL_RELEASE),
    why="Zen 5 boots on 6.8; its defaults and sensor ids arrived up to 6.13. A figure of about "
    "14 % for newer kernels that goes around could not be verified and is a CPU benchmark's if "
    "anything: for GPU decode it is unproven.",
    source="Phoronix on Linux 6.13 and EPYC 9005; Linux drivers/cpufreq/amd-pstate.c",
    changes=(Worked,),
)
def zen5(cpu: Cpu, release: str) -> Verdict:
    """Judge the kernel series by the CPU family; vendor kernels carry backports."""
    table, seen = kernels(), f"{cpu.name or cpu.vendor} family {cpu.family}, kernel {release}"
    wanted = f"{dotted(table.zen5_settled)} or later"
    if not cpu.is_zen5:
        return info("The CPU is not a Zen 5", seen)
    if re.search(r"\.el\d|\.amzn|-azure|-default$", release):
        return info("A vendor kernel with backports: its number says little", seen)
    if series(release) >= table.zen5_settled:
        return good("The kernel knows Zen 5", seen, wanted)
    early = series(release) < table.zen5_boots
    return issue(
        "The kernel series predates the one in which Zen 5's support settled",
        Class.P1,
        Impact.MEDIUM if early else Impact.LOW,
        seen,
        wanted,
        needs=Needs.REBOOT,
        remedy="Check first that the NVIDIA module builds for the newer kernel.",
        changes=((_OPT_IN,),) if re.match(r"6\.(2|5|8|11)\.\d.*-pve$", release) else (),
    )


# The kernel series that Proxmox VE 8 offers to opt in to (pve.proxmox.com, Host Bootloader).
_OPT_IN = Worked(
    "a trial boot of proxmox-kernel-6.14",
    (
        "apt install proxmox-kernel-6.14 proxmox-headers-6.14",
        "dkms status nvidia",
        'proxmox-boot-tool kernel pin "$(ls -v /lib/modules | grep ^6.14 | tail -n 1)" --next-boot',
        "reboot",
    ),
    (
        "proxmox-boot-tool kernel unpin",
        "reboot",
        "apt purge proxmox-kernel-6.14 proxmox-headers-6.14",
    ),
)


@check(
    "kver-pve-series",
    "Proxmox release and kernel series",
    reads=(KERNEL_RELEASE,),
    optional=(PROXMOX, GPU_FUNCTIONS),
    why="Each Proxmox VE release has a default kernel series and a few to opt in to.",
    source="proxmox.com press releases 8.0 to 9.2",
)
def pve_series(
    release: str, pve: str | Unknown, gpus: tuple[PciFunction, ...] | Unknown
) -> Verdict:
    """Judge the pair of Proxmox release and kernel series."""
    if isinstance(pve, Unknown):
        if not release.endswith("-pve"):
            return info("This is not a Proxmox VE kernel", release)
        return unknown(pve.reason, f"the Proxmox VE release is unknown ({pve})")
    table, runs, seen = kernels(), series(release), f"Proxmox VE {pve}, kernel {release}"
    blackwell = isinstance(gpus, tuple) and any(table.is_blackwell(gpu.device) for gpu in gpus)
    if blackwell and runs < table.blackwell_from:
        return issue(
            "This Proxmox kernel is too old for Blackwell GPUs",
            Class.P1,
            Impact.HIGH,
            seen,
            "Proxmox VE 8 or later",
            needs=Needs.REBOOT,
            remedy="Upgrade to Proxmox VE 8 or later.",
        )
    offered = table.offered(pve)
    names = ", ".join(map(dotted, offered))
    if runs in offered:
        return good("Proxmox offers this kernel series for its release", seen, names)
    return info("An uncommon pair of Proxmox release and kernel", seen, names)
