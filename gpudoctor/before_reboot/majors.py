"""Device numbers that may move: containers whose configuration names one by hand."""

import re
from collections.abc import Iterable, Iterator, Mapping

from gpudoctor.before_reboot.read import Read, why
from gpudoctor.formats.lxc_conf import LxcConf, parse_lxc_conf
from gpudoctor.model import Evidence, Reader, Reason, Unknown
from gpudoctor.model.before_reboot import Line, Outlook, Topic
from gpudoctor.probes.container import CGROUP_V2, CHAR_MAJORS, CONFS
from gpudoctor.probes.reboot_starts import DOCKER
from gpudoctor.text import one_line

_TOPIC = Topic.MAJORS
# nvidia0, nvidiactl and nvidia-modeset have this registered number; every other one is dynamic.
_REGISTERED = 195
# The ranges that the kernel gives dynamic majors from (Documentation/admin-guide/devices.txt).
_DYNAMIC = (*range(234, 255), *range(384, 512))
# A number that no driver has: what may open that, may open any.
_NOBODYS = 383
_UVM = "nvidia-uvm"
_NAMED = re.compile(r"/etc/pve/lxc/(?P<a>\d+)\.conf|/var/lib/lxc/(?P<b>[^/]+)/config")
_RULE = re.compile(r"[ac]\s+(?P<major>\d+):")


def _confs(evidence: Evidence) -> dict[str, LxcConf] | Unknown:
    """Return every LXC configuration of the host by its path, Proxmox's own before those it made.

    Plain LXC's file of a Proxmox container is made anew at each start, and left out.
    """
    if evidence.unread:
        return evidence.unread
    found = {p: parse_lxc_conf(t) for p, t in sorted(evidence.texts().items()) if _NAMED.match(p)}
    proxmox = {name_of(path) for path in found if path.startswith("/etc/pve/")}
    return {
        path: conf
        for path, conf in found.items()
        if path.startswith("/etc/pve/") or name_of(path) not in proxmox
    }


LXC_CONFS: Reader[dict[str, LxcConf]] = Reader("all-lxc-confs", (CONFS,), _confs, tolerant=True)


def name_of(path: str) -> str:
    """Return the container's id or name, as the path of its configuration has it."""
    match = _NAMED.fullmatch(path)
    return (match["a"] or match["b"]) if match else path


def major_lines(read: Read) -> list[Line]:
    """Name the containers whose rules name a number that may move, and what it is today."""
    majors, confs, docker = read(CHAR_MAJORS), read(LXC_CONFS), read(DOCKER)
    if isinstance(majors, Unknown):
        return [_unknown(majors)]
    moving = _moving(majors)
    version = 1 if read(CGROUP_V2) is False else 2
    lines = [_unknown(value) for value in (confs, docker) if isinstance(value, Unknown)]
    if not isinstance(confs, Unknown):
        for path, conf in confs.items():
            lines += _of_lxc(path, conf, version, moving)
    if not isinstance(docker, Unknown):
        for one in docker:
            found = (m["major"] for m in map(_RULE.match, one.rules) if m)
            lines += _of_docker(one.id, {int(n) for n in found}, moving)
    return lines or [_nothing(moving)]


def _unknown(value: Unknown) -> Line:
    said = f"Whether a container names a device number that may move cannot be told: {why(value)}"
    return Line(_TOPIC, Outlook.UNKNOWN, said, reason=value.reason)


def _moving(majors: Mapping[str, Iterable[int]]) -> dict[int, str]:
    """Return NVIDIA's dynamic majors of today, with the driver's name."""
    return {
        number: name
        for name, numbers in majors.items()
        for number in numbers
        if name.startswith("nvidia") and number != _REGISTERED
    }


def _nothing(moving: Mapping[int, str]) -> Line:
    said = "No container names a device number that may move at the reboot"
    return Line(_TOPIC, Outlook.READY, said, read=_today(moving))


def _today(moving: Mapping[int, str]) -> str:
    told = (f"{one_line(name, 40)} {number}" for number, name in sorted(moving.items()))
    return f"today: {', '.join(told) or 'no dynamic NVIDIA number'}"


def _of_lxc(path: str, conf: LxcConf, version: int, moving: Mapping[int, str]) -> Iterator[Line]:
    """Judge the rules that count on this host; who may open any number, or a path, is safe."""
    if conf.allows("", _NOBODYS, 0, version):
        return
    counted = [r for r in conf.rules if r.version == version and r.allow and r.kind != "b"]
    ruled = {rule.major for rule in counted if rule.major is not None}
    named = sorted(n for n in ruled & moving.keys() if not _by_path(moving[n], conf))
    if named:
        rules = ", ".join(f"{number} ({moving[number]})" for number in named)
        said = f"Container {name_of(path)} is allowed devices by numbers that may move: {rules}"
        todo = (
            f"Name the devices instead (dev[n] entries), or correct {path} after the reboot and "
            "start the container again"
        )
        commands = _entries(path, conf, named, moving)
        yield Line(_TOPIC, Outlook.LOOK, said, todo, commands, _today(moving))
    guessed = sorted(n for n in ruled if n in _DYNAMIC)
    if _REGISTERED in ruled and guessed and _UVM not in moving.values():
        numbers = ", ".join(map(str, guessed))
        said = (
            f"Whether {numbers} in the rules of container {name_of(path)} fit after the reboot "
            "cannot be told: nvidia-uvm has no number today"
        )
        yield Line(_TOPIC, Outlook.UNKNOWN, said, read=_today(moving), reason=Reason.NOT_PRESENT)


def _by_path(name: str, conf: LxcConf) -> bool:
    """Return whether dev[n] entries name the driver's nodes: these are looked up at each start."""
    if name == "nvidia-caps":
        return any(path.startswith("/dev/nvidia-caps/") for path in conf.devices)
    return f"/dev/{name}" in conf.devices


def _entries(
    path: str, conf: LxcConf, named: Iterable[int], moving: Mapping[int, str]
) -> tuple[str, ...]:
    """Return Proxmox's commands that name the nodes of nvidia-uvm; caps differ by host."""
    if not path.startswith("/etc/pve/") or _UVM not in {moving[n] for n in named}:
        return ("grep nvidia /proc/devices",)
    taken = {key for key, _ in conf.items}
    free = (n for n in range(256) if f"dev{n}" not in taken)
    nodes = [p for p in ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools") if p not in conf.devices]
    sets = (f"pct set {name_of(path)} --dev{next(free)} {node}" for node in nodes)
    return (*sets, "grep nvidia /proc/devices")


def _of_docker(name: str, ruled: set[int], moving: Mapping[int, str]) -> Iterator[Line]:
    named = sorted(ruled & moving.keys())
    if named:
        rules = ", ".join(f"{number} ({moving[number]})" for number in named)
        said = f"Docker container {one_line(name, 12)} has device rules with numbers that may move"
        todo = "Make it again with --gpus or --device in place of --device-cgroup-rule"
        yield Line(_TOPIC, Outlook.LOOK, f"{said}: {rules}", todo, read=_today(moving))
