"""Files that make runtime changes outlast a reboot, each for one change so that each has its undo.

None is made for what could not be judged again at boot: a clock source that the kernel may come to
distrust, an isolation between devices, an interrupt's number.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence

from gpudoctor.fixes.file import HEADER
from gpudoctor.model import Change, LatencyHold, Module, OwnFile, PciBits, Sysctl, Sysfs
from gpudoctor.text import one_line

_UNITS = "/etc/systemd/system"
_PLAIN = re.compile(r"[A-Za-z0-9_./:@+-]+")
_KEY = re.compile(r"[A-Za-z0-9_./-]+")
_SETTING = re.compile(r"[A-Za-z0-9_.:,+-]+")
_MODULE = re.compile(r"[A-Za-z0-9_-]+")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
# Drivers make or set these after systemd-tmpfiles ran; debugfs may not be mounted by then.
_LATE = (
    "/sys/devices/system/cpu/cpufreq/",
    "/sys/devices/system/cpu/cpu",
    "/sys/devices/system/cpu/intel_pstate/",
    "/sys/kernel/debug/",
    "/sys/bus/pci/",
    "/sys/devices/pci",
)
# Units that set a governor once, at their start.
_GOVERNORS = (
    "tuned.service cpufrequtils.service loadcpufreq.service cpupower.service ondemand.service "
    "tlp.service nvidia-persistenced.service"
)
_NEVER = "/sys/devices/system/clocksource/"
_READ_REQUEST = "CAP_EXP+8.w"
# Files that one command of a unit writes; hundreds of CPUs would make hundreds of processes.
_AT_ONCE = 64


def sysctl_file(change: Sysctl) -> OwnFile | None:
    """Return the sysctl.d file of one key, or None where its text could not be told exactly."""
    if not _KEY.fullmatch(change.key) or not _one_line(change.value):
        return None
    path = f"/etc/sysctl.d/99-zz-gpudoctor-{_slug(change.key)}.conf"
    return _file(change, path, f"rm {path}", [f"{change.key} = {change.value}"])


def sysfs_file(change: Sysfs) -> OwnFile | None:
    """Return the file that writes kernel files at boot: tmpfiles.d, or a unit where that is early.

    None where a path or value is not plain, below /proc, or the clock source.
    """
    texts = (*change.paths, f"/{change.value}")
    if not all(_PLAIN.fullmatch(text) for text in texts) or not _SETTING.fullmatch(change.value):
        return None
    if not all(p.startswith("/sys/") and not p.startswith(_NEVER) for p in change.paths):
        return None
    if not change.paths:
        return None
    name = _name(change.paths)
    if any(path.startswith(_LATE) for path in change.paths):
        return _unit(
            change,
            f"gpudoctor-{name}.service",
            _GOVERNORS,
            [
                f"/bin/sh -c 'echo {change.value} | tee {' '.join(some)} >/dev/null'"
                for some in _chunks(change.paths)
            ],
        )
    path = f"/etc/tmpfiles.d/gpudoctor-{name}.conf"
    lines = [f"w! {each} - - - - {change.value}" for each in change.paths]
    return _file(change, path, f"rm {path}", lines)


def module_file(change: Module) -> OwnFile | None:
    """Return the modules-load.d file of one module."""
    if not _MODULE.fullmatch(change.name):
        return None
    path = f"/etc/modules-load.d/gpudoctor-{_slug(change.name)}.conf"
    return _file(change, path, f"rm {path}", [change.name])


def registers_unit(change: PciBits) -> OwnFile | None:
    """Return the unit that sets the read request size of GPUs, once their driver is there.

    Bus addresses can move between boots, so only a device of NVIDIA's is written. None for other
    registers: the command line does for link power what a unit could only do late, and redirects
    must be judged anew.
    """
    if change.register != _READ_REQUEST or not change.devices:
        return None
    if not all(_ADDRESS.fullmatch(device) for device in change.devices):
        return None
    name = f"gpudoctor-pci-{_slug(change.register)}-{_short(change.devices)}.service"
    bits = f"{change.register}={change.value:04x}:{change.mask:04x}"
    return _unit(
        change,
        name,
        "nvidia-persistenced.service",
        [f"/usr/bin/env setpci -s {device} -d 10de: {bits}" for device in change.devices],
    )


def latency_unit(change: LatencyHold, name: str) -> OwnFile:
    """Return the unit that holds the CPU latency from boot on, by a process with the file open."""
    held = f"exec 3>/dev/cpu_dma_latency && printf 0x{change.microseconds:08x} >&3"
    return _boot_unit(
        change,
        name,
        "tuned.service",
        [
            "Type=exec",
            f"ExecStart=/bin/sh -ec '{held} && exec sleep infinity'",
            "Restart=on-failure",
        ],
    )


def _unit(change: Change, name: str, after: str, commands: Sequence[str]) -> OwnFile:
    """Return a unit that runs the commands once at boot, each whether or not others failed."""
    runs = [f"ExecStart=-{command}" for command in commands]
    return _boot_unit(change, name, after, ["Type=oneshot", "RemainAfterExit=yes", *runs])


def _boot_unit(change: Change, name: str, after: str, service: Sequence[str]) -> OwnFile:
    path = f"{_UNITS}/{name}"
    lines = [
        "[Unit]",
        f"Description=gpudoctor: {_told(change)}",
        f"After={after}",
        "",
        "[Service]",
        *service,
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return _file(change, path, f"systemctl disable {name}; rm {path}", lines)


def _file(change: Change, path: str, undo: str, lines: Sequence[str]) -> OwnFile:
    told = _told(change)
    head = [f"{HEADER}: {told}, at every boot.", f"# To take it back by hand: {undo}"]
    return OwnFile(
        path=path,
        text="".join(f"{line}\n" for line in [*head, *lines]),
        risk=change.risk,
        caution=change.caution,
        told=f"{told}, at every boot ({path})",
    )


def _chunks(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(paths), _AT_ONCE):
        yield paths[at : at + _AT_ONCE]


def _told(change: Change) -> str:
    """Return the title as one line without what systemd would expand."""
    return one_line(change.title, 120).replace("%", "").replace("\\", "")


def _one_line(value: str) -> bool:
    return value != "" and value == value.strip() and value.isprintable()


def _name(paths: Sequence[str]) -> str:
    """Return a short name: of one path the whole, of many their last part and a hash of all."""
    if len(paths) == 1:
        return _slug(paths[0].removeprefix("/sys/").removeprefix("kernel/mm/"))
    return f"{_slug(paths[0].rpartition('/')[2])}-{_short(paths)}"


def _short(names: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:6]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
