"""Changes: the desired value of one kind of thing on one host, as data. Mechanisms know how."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What every change carries beside its own fields.

    `risk` is low, medium or high, and `caution` what can go wrong. Two changes of one `group` serve
    the same end, or exclude each other: a plan holds one of them. `told` replaces the title.
    """

    # What gpudoctor never runs itself, and only works out as commands.
    by_hand: ClassVar[bool] = False

    risk: str = "low"
    caution: str = ""
    group: str = ""
    told: str = ""

    @property
    def title(self) -> str:
        """Return the change in the field's own notation."""
        return self.told or self._title()

    def _title(self) -> str:
        """Return what shall be so; a type that says no more is its own name."""
        return type(self).__name__


@dataclass(frozen=True, slots=True)
class Sysctl(Change):
    """One kernel parameter under /proc/sys, wanted at `value`.

    Of the pairs vm.dirty_ratio and vm.dirty_bytes (and their background ones) the kernel zeroes the
    other when one is set; they are read and put back as pairs.
    """

    key: str
    value: str

    def _title(self) -> str:
        return f"sysctl {self.key} = {self.value}"


@dataclass(frozen=True, slots=True)
class Sysfs(Change):
    """One value for each of these kernel files (below /sys or /proc/irq), undone file by file.

    A `choice` file reads `a [b] c` and is written one of its words. `beside` names a file in the
    same folder that such a write may change too; an undo writes its captured value back.
    `tolerates` is an extended regular expression: a write that fails with such a complaint, and
    changed nothing, is skipped (interrupts that the kernel manages refuse an affinity).
    """

    paths: tuple[str, ...]
    value: str
    choice: bool = False
    beside: str = ""
    tolerates: str = ""

    def _title(self) -> str:
        number = len(self.paths)
        what = self.paths[0] if number == 1 else f"{self.paths[0]} and {number - 1} more"
        return f"{what} = {self.value}"


@dataclass(frozen=True, slots=True)
class PciBits(Change):
    """The bits `mask` of one register (setpci's notation, `CAP_EXP+8.w`) of these devices."""

    devices: tuple[str, ...]
    register: str
    value: int
    mask: int

    def _title(self) -> str:
        number = len(self.devices)
        where = self.devices[0] if number == 1 else f"{number} devices"
        return f"{self.register} = {self.value:x}:{self.mask:x} on {where}"


@dataclass(frozen=True, slots=True)
class Module(Change):
    """A kernel module that shall be loaded."""

    name: str

    def _title(self) -> str:
        return f"modprobe {self.name}"


@dataclass(frozen=True, slots=True)
class ProcessLimit(Change):
    """A resource limit (`memlock`, `nofile`; prlimit's names) of running processes.

    `value` is a number or `unlimited`, for both the soft and the hard limit. Pids are the host's.
    """

    pids: tuple[int, ...]
    resource: str
    value: str

    def _title(self) -> str:
        number = len(self.pids)
        who = f"process {self.pids[0]}" if number == 1 else f"{number} processes"
        return f"{self.resource} limit of {who} = {self.value}"


@dataclass(frozen=True, slots=True)
class Affinity(Change):
    """The CPUs (a list such as `0-15,64`) that all threads of these processes may run on."""

    pids: tuple[int, ...]
    cpus: str

    def _title(self) -> str:
        number = len(self.pids)
        who = f"process {self.pids[0]}" if number == 1 else f"{number} processes"
        return f"CPUs of {who} = {self.cpus}"


@dataclass(frozen=True, slots=True)
class CgroupLimit(Change):
    """One limit file of a container's cgroup (`memory.max`, `cpu.max`), path below /sys/fs/cgroup.

    `usage` names the file of the same folder that tells what is used now: an undo never goes below.
    """

    path: str
    value: str
    usage: str = ""

    def _title(self) -> str:
        return f"{self.path} = {self.value}"


@dataclass(frozen=True, slots=True)
class MountSize(Change):
    """The size in bytes of a tmpfs in the mount namespace of a process (of the host's pids)."""

    pid: int
    size: int
    path: str = "/dev/shm"

    def _title(self) -> str:
        return f"{self.path} of process {self.pid} = {self.size >> 20} MiB"


@dataclass(frozen=True, slots=True)
class GpuSetting(Change):
    """A setting of these GPUs (PCI addresses), by nvidia-smi.

    `setting` is persistence (Enabled, Disabled), power-limit (watts) or compute-mode (Default,
    Prohibited, Exclusive_Process).
    """

    gpus: tuple[str, ...]
    setting: str
    value: str

    def _title(self) -> str:
        where = self.gpus[0] if len(self.gpus) == 1 else f"{len(self.gpus)} GPUs"
        return f"{self.setting} of {where} = {self.value}"


@dataclass(frozen=True, slots=True)
class Service(Change):
    """A systemd unit that shall run, or not."""

    unit: str
    active: bool

    def _title(self) -> str:
        return f"systemctl {'start' if self.active else 'stop'} {self.unit}"


@dataclass(frozen=True, slots=True)
class LatencyHold(Change):
    """A process that holds /dev/cpu_dma_latency at so many microseconds for all CPUs."""

    microseconds: int

    def _title(self) -> str:
        return f"/dev/cpu_dma_latency held at {self.microseconds} µs"


@dataclass(frozen=True, slots=True)
class DeviceNodes(Change):
    """The nodes of nvidia-uvm under /dev, made by nvidia-modprobe."""

    def _title(self) -> str:
        return "the device nodes of nvidia-uvm"


@dataclass(frozen=True, slots=True)
class OwnFile(Change):
    """A file of gpudoctor's own (a drop-in or a unit), with this text; it survives a reboot."""

    path: str
    text: str

    def _title(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Worked(Change):
    """What gpudoctor never runs itself: exact commands for this host, and how to take them back.

    Accepted, it is pending: the next audit tells whether the finding is gone.
    """

    by_hand: ClassVar[bool] = True

    what: str
    commands: tuple[str, ...]
    undo: tuple[str, ...] = ()

    def _title(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class KernelArguments(Change):
    """Words of the kernel command line to add and to take out, by hand and with a reboot."""

    by_hand: ClassVar[bool] = True

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()

    def _title(self) -> str:
        words = [*(f"+{word}" for word in self.add), *(f"-{word}" for word in self.remove)]
        return f"kernel command line {' '.join(words)}"


@dataclass(frozen=True, slots=True)
class ModuleOption(Change):
    """An option of a kernel module, by hand; it acts when the module is loaded again.

    `reload` names the modules to unload for it, in order.
    """

    by_hand: ClassVar[bool] = True

    module: str
    option: str
    value: str
    reload: tuple[str, ...] = ()

    def _title(self) -> str:
        return f"options {self.module} {self.option}={self.value}"
