"""Values in the kernel's and the host's own texts: memory, CPUs, command line, packages, limits."""

import re
from collections.abc import Iterator

from gpudoctor.formats.cgroup import parse_counters
from gpudoctor.formats.cmdline import parse_cmdline
from gpudoctor.formats.cpuinfo import parse_cpuinfo
from gpudoctor.formats.dmi_memory import parse_dimms
from gpudoctor.formats.dmi_supplies import parse_supplies
from gpudoctor.formats.limits import parse_limits
from gpudoctor.formats.listing import parse_entry
from gpudoctor.formats.lxc_conf import parse_lxc_conf
from gpudoctor.formats.meminfo import parse_meminfo
from gpudoctor.formats.proc_devices import parse_char_majors
from gpudoctor.model import Reason, Unknown
from gpudoctor.snapshots.compared_row import COUNTER, INVENTORY, SETTING, Answer, Parser, Row

# The loader adds the image's path, which says no more than the kernel's release does.
CONFIGURED = "has a configuration"
_BOOT_LOADER = {"BOOT_IMAGE", "initrd"}
_MICROCODE = re.compile(r"^(microcode|stepping)\s*:\s*(\S+)", re.MULTILINE)
# Others (low, high, max) grow under any load.
_KILLS = ("oom", "oom_kill", "oom_group_kill")


def os_release(answer: Answer) -> Iterator[Row]:
    """Yield the system's name and version."""
    found = dict(line.split("=", 1) for line in answer.text.splitlines() if "=" in line)
    yield Row("", "system", INVENTORY, found.get("PRETTY_NAME", "").strip('"'))


def cpuinfo(answer: Answer) -> Iterator[Row]:
    """Yield the processor's name, family, model, stepping and microcode; clocks are volatile."""
    cpu = parse_cpuinfo(answer.text)
    yield Row("CPU", "model", INVENTORY, f"{cpu.name} (family {cpu.family}, model {cpu.model})")
    for name, text in dict(reversed(_MICROCODE.findall(answer.text))).items():
        yield Row("CPU", name, INVENTORY, text)


def cmdline(answer: Answer) -> Iterator[Row]:
    """Yield each parameter; one given several times holds all its values in order."""
    line = parse_cmdline(answer.text)
    for key in dict.fromkeys(key for key, _ in line.items if key not in _BOOT_LOADER):
        values = " ".join(value or "(bare)" for value in line.all(key))
        yield Row("kernel command line", key, SETTING, values)


def meminfo(answer: Answer) -> Iterator[Row]:
    """Yield the memory's size and the huge pages that are set aside."""
    found = parse_meminfo(answer.text)
    yield Row("memory", "size", INVENTORY, gib(found["MemTotal"]))
    for name in ("HugePages_Total", "Hugepagesize"):
        if name in found:
            yield Row("memory", name, SETTING, str(found[name]))


def node_memory(answer: Answer) -> Iterator[Row]:
    """Yield a NUMA node's memory."""
    total = parse_meminfo(answer.text)["MemTotal"]
    yield Row(f"NUMA {answer.parts[0]}", "memory", INVENTORY, gib(total))


def gib(size: int) -> str:
    """Return bytes in GiB."""
    return f"{size / (1 << 30):.2f} GiB"


def swaps(answer: Answer) -> Iterator[Row]:
    """Yield each swap area's size and priority; what is used is volatile."""
    head, _, rest = answer.text.partition("\n")
    if not head.startswith("Filename"):
        raise ValueError("/proc/swaps has not its heading")
    for row in (line.split() for line in rest.splitlines() if line.strip()):
        yield Row(f"swap {row[0]}", "size", SETTING, gib(int(row[-3]) << 10))


def majors(answer: Answer) -> Iterator[Row]:
    """Yield the major numbers of NVIDIA's character devices, which containers are given by."""
    for name, numbers in parse_char_majors(answer.text).items():
        if name.startswith("nvidia"):
            yield Row("device major", name, INVENTORY, ", ".join(map(str, sorted(numbers))))


def memory_events(answer: Answer) -> Iterator[Row]:
    """Yield how often a cgroup ran out of memory."""
    of = f"cgroup {answer.parts[0]}" if answer.parts else "cgroup"
    found = parse_counters(answer.text)
    for name in _KILLS:
        if name in found:
            yield Row(of, f"memory {name}", COUNTER, str(found[name]))


def limits(answer: Answer) -> Iterator[Row]:
    """Yield a process's resource limits, soft and hard."""
    yield from limit_rows("first process", answer.text)


def limit_rows(of: str, text: str) -> Iterator[Row]:
    """Yield the limits in the text of /proc/PID/limits."""
    for name, limit in parse_limits(text).items():
        soft, hard = ("unlimited" if n is None else str(n) for n in (limit.soft, limit.hard))
        yield Row(of, name, SETTING, soft if soft == hard else f"{soft} (hard {hard})")


def lxc_conf(answer: Answer) -> Iterator[Row]:
    """Yield a container's configuration by key; a key given several times holds all values."""
    of = f"LXC {answer.parts[0]}".strip()
    yield Row(of, CONFIGURED, SETTING, "yes")
    found: dict[str, list[str]] = {}
    for key, value in parse_lxc_conf(answer.text).items:
        found.setdefault(key, []).append(value)
    for key, values in found.items():
        yield Row(of, key, SETTING, " | ".join(values))


def node(answer: Answer) -> Iterator[Row]:
    """Yield a device node's numbers and mode."""
    entry = parse_entry(answer.raw)
    if entry.device is not None:
        yield Row(answer.path, "device", INVENTORY, "{}:{}".format(*entry.device))
        yield Row(answer.path, "mode", SETTING, f"{entry.mode} uid {entry.uid}")


def kernel_packages(answer: Answer) -> Iterator[Row]:
    """Yield the version of each kernel package that is installed."""
    for row in (line.split() for line in answer.text.splitlines()):
        if len(row) == 3 and row[0] == "installed":
            yield Row("package", row[1], INVENTORY, row[2])


def supplies(answer: Answer) -> Iterator[Row]:
    """Yield each power supply that the firmware lists."""
    if not answer.raw.strip():
        return
    for index, supply in enumerate(parse_supplies(answer.text), 1):
        state = "working" if supply.healthy else "failing" if supply.present else "absent"
        yield Row("power supply", str(index), INVENTORY, f"{supply.watts} W, {state}")


def dimms(answer: Answer) -> Iterator[Row]:
    """Yield each memory slot's module, and how many channels hold one."""
    found = parse_dimms(answer.text)
    for dimm in found:
        yield Row("memory slot", dimm.slot, INVENTORY, str(dimm))
    if found:
        filled = sum(dimm.size > 0 for dimm in found)
        yield Row("memory", "slots filled", INVENTORY, f"{filled} of {len(found)}")


def shm(answer: Answer) -> Iterator[Row]:
    """Yield the size of /dev/shm; what is used is volatile."""
    rows = [line.split() for line in answer.text.splitlines()[1:] if line.strip()]
    if rows:
        yield Row("/dev/shm", "size", SETTING, gib(int(rows[-1][1]) << 10))


def virtualization(answer: Answer) -> Iterator[Row]:
    """Yield the kind of container that systemd sees."""
    text = answer.text.strip()
    why = Unknown(Reason.NOT_PRESENT, "systemd-detect-virt said nothing")
    yield Row("", "kind", INVENTORY, text or why)


PARSERS: dict[str, Parser] = {
    "os_release": os_release,
    "cpuinfo": cpuinfo,
    "cmdline": cmdline,
    "meminfo": meminfo,
    "node_memory": node_memory,
    "swaps": swaps,
    "majors": majors,
    "memory_events": memory_events,
    "limits": limits,
    "lxc_conf": lxc_conf,
    "node": node,
    "kernel_packages": kernel_packages,
    "supplies": supplies,
    "dimms": dimms,
    "shm": shm,
    "virtualization": virtualization,
}
