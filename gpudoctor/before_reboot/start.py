"""What will not start by itself: the container that serves, the engine's unit, persistence."""

import re

from gpudoctor.before_reboot.majors import LXC_CONFS, name_of
from gpudoctor.before_reboot.read import Read, why
from gpudoctor.formats.serving import Server
from gpudoctor.model import Reason, Side, Unknown
from gpudoctor.model.before_reboot import Line, Outlook, Topic
from gpudoctor.model.place import ContainerRef
from gpudoctor.probes.gpu import GPUS
from gpudoctor.probes.reboot_starts import (
    BY_HA,
    DOCKER,
    ENABLED,
    ENABLED_INSIDE,
    PERSISTENCED,
    PERSISTENCED_BY_UDEV,
)
from gpudoctor.probes.serving import SERVERS
from gpudoctor.shell import quote
from gpudoctor.text import one_line

_TOPIC = Topic.START
_DAEMON = "nvidia-persistenced.service"
_UNIT = re.compile(
    r"/(?:system\.slice|ns/system\.slice)/(?:[^/]+\.slice/)*(?P<unit>[^/]+\.service)"
)
_LOGIN = re.compile(r"^0::.*/(?:user\.slice|session-[^/]+\.scope)", re.MULTILINE)


def start_lines(read: Read, container: ContainerRef | None) -> list[Line]:
    """Say of the engine, its container and persistence mode whether they come back."""
    servers = read(SERVERS)
    lines = list(_persistence(read))
    if isinstance(servers, Unknown):
        if servers.reason is not Reason.NOT_PRESENT:
            said = f"Whether the serving engine starts at boot cannot be told: {why(servers)}"
            lines.append(Line(_TOPIC, Outlook.UNKNOWN, said, reason=servers.reason))
        return lines + (_container(container, read) if container else [])
    refs = dict.fromkeys(s.container for s in servers if s.container)
    if not refs and container is not None:
        refs = {container: None}
    for ref in refs:
        lines += _container(ref, read)
    return lines + [line for server in servers for line in _engine(server, container, read)]


def _persistence(read: Read) -> list[Line]:
    """Say whether persistence mode comes back, where it is on now."""
    gpus = read(GPUS)
    if isinstance(gpus, Unknown) or not any(gpu.persistence is True for gpu in gpus):
        return []
    on = sum(gpu.persistence is True for gpu in gpus)
    seen = f"persistence mode is on for {on} of {len(gpus)} GPUs"
    sets, started = read(PERSISTENCED), _daemon_starts(read)
    unread = next((v for v in (sets, started) if _not_told(v)), None)
    if isinstance(unread, Unknown):
        said = f"Whether persistence mode comes back cannot be told: {why(unread)}"
        return [Line(_TOPIC, Outlook.UNKNOWN, said, read=seen, reason=unread.reason)]
    if sets is True and started is True:
        said = "nvidia-persistenced starts at boot, and sets persistence mode"
        return [Line(_TOPIC, Outlook.READY, said, read=seen)]
    if isinstance(sets, Unknown):
        lack = "nvidia-persistenced is not installed"
    elif not sets:
        lack = "nvidia-persistenced has --no-persistence-mode in its unit"
    else:
        lack = "nvidia-persistenced is not enabled"
    said = f"Persistence mode is on for {on} GPUs, and nothing known here sets it at boot: {lack}"
    commands = (f"systemctl enable {_DAEMON}",) if sets is True else ()
    todo = "Set it again after the boot, unless something else does"
    return [Line(_TOPIC, Outlook.LOST, said, todo, commands, seen)]


def _not_told(value: object) -> bool:
    return isinstance(value, Unknown) and value.reason is not Reason.NOT_PRESENT


def _daemon_starts(read: Read) -> bool | Unknown:
    """Return whether a unit wants nvidia-persistenced, or udev starts it with the driver."""
    enabled, by_udev = read(ENABLED), read(PERSISTENCED_BY_UDEV)
    if by_udev is True or (not isinstance(enabled, Unknown) and _DAEMON in enabled):
        return True
    return next((v for v in (enabled, by_udev) if isinstance(v, Unknown)), False)


def _container(ref: ContainerRef, read: Read) -> list[Line]:
    if ref.kind == "lxc":
        return [_lxc(ref.name, read)]
    if ref.kind == "docker":
        return [_docker(ref.name, read)]
    said = f"Whether {one_line(str(ref), 60)} starts at boot is not known to be readable here"
    return [Line(_TOPIC, Outlook.UNKNOWN, said, reason=Reason.NOT_MEASURED)]


def _lxc(name: str, read: Read) -> Line:
    confs, by_ha = read(LXC_CONFS), read(BY_HA)
    if isinstance(confs, Unknown):
        said = f"Whether container {name} starts at boot cannot be told: {why(confs)}"
        return Line(_TOPIC, Outlook.UNKNOWN, said, reason=confs.reason)
    path = next((path for path in confs if name_of(path) == name), "")
    if not path:
        said = f"Whether container {name} starts at boot cannot be told: its conf was not found"
        return Line(_TOPIC, Outlook.UNKNOWN, said, reason=Reason.NOT_PRESENT)
    proxmox = path.startswith("/etc/pve/")
    key = "onboot" if proxmox else "lxc.start.auto"
    seen = f"{path}: {key} {one_line(confs[path].last(key) or 'not set', 20)}"
    if confs[path].last(key) == "1":
        return Line(_TOPIC, Outlook.READY, f"Container {name} starts at boot", read=seen)
    if not isinstance(by_ha, Unknown) and name in by_ha:
        return Line(_TOPIC, Outlook.READY, f"Proxmox's HA starts container {name}", read=seen)
    said = f"Container {name}, which serves, does not start at boot"
    commands = (f"pct set {quote(name)} --onboot 1",) if proxmox else ()
    todo = "Have it start, or start it by hand" + ("" if proxmox else f": {key} = 1 in {path}")
    return Line(_TOPIC, Outlook.LOOK, said, todo, commands, seen)


def _docker(name: str, read: Read) -> Line:
    confs = read(DOCKER)
    short = one_line(name, 13).removesuffix("…")
    found = None
    if not isinstance(confs, Unknown):
        found = next((one for one in confs if one.id.startswith(name)), None)
    if found is None:
        reason = confs if isinstance(confs, Unknown) else Unknown(Reason.NOT_PRESENT, "")
        said = f"Whether Docker starts {short} at boot cannot be told"
        said += f": {why(reason)}" if reason.detail else ": its conf is not in /var/lib/docker"
        return Line(_TOPIC, Outlook.UNKNOWN, said, reason=reason.reason)
    seen = f"restart policy {one_line(found.restart, 40)}"
    if found.restart in {"always", "unless-stopped"}:
        enabled = read(ENABLED)
        if not isinstance(enabled, Unknown) and not any("docker" in unit for unit in enabled):
            said = f"Docker would start container {short}, but docker.service is not enabled"
            todo = "Enable it, unless something else starts it"
            enable = ("systemctl enable docker.service",)
            return Line(_TOPIC, Outlook.LOOK, said, todo, enable, seen)
        return Line(_TOPIC, Outlook.READY, f"Docker starts container {short} at boot", read=seen)
    said = f"Docker does not start container {short}, which serves, at boot"
    commands = (f"docker update --restart unless-stopped {quote(short)}",)
    todo = "Give it a restart policy, unless something else starts it"
    return Line(_TOPIC, Outlook.LOOK, said, todo, commands, seen)


def _engine(server: Server, entered: ContainerRef | None, read: Read) -> list[Line]:
    """Say whether the unit that the engine runs in is wanted by anything at boot."""
    if server.side is not Side.HOST or (server.containers and server.containers[0].kind != "lxc"):
        return []
    name = f"the engine ({server.engine}, pid {server.pid})"
    inside = server.container
    if inside is not None and (len(server.containers) > 1 or inside != entered):
        where = " in ".join(one_line(str(ref), 24) for ref in reversed(server.containers))
        said = f"Whether {name} starts with {where} was not read there"
        return [Line(_TOPIC, Outlook.UNKNOWN, said, reason=Reason.NOT_MEASURED)]
    lines = "\n".join(server.cgroup)
    units = _UNIT.findall(lines)
    if not units:
        said = f"Nothing starts {name} at boot: it was started in a login"
        todo = "Give it a unit, or start it by hand"
        return [Line(_TOPIC, Outlook.LOOK, said, todo)] if _LOGIN.search(lines) else []
    return [_unit(units[-1], name, inside, read)]


def _unit(unit: str, name: str, inside: ContainerRef | None, read: Read) -> Line:
    enabled = read(ENABLED if inside is None else ENABLED_INSIDE)
    if isinstance(enabled, Unknown):
        said = f"Whether {one_line(unit, 80)} starts at boot cannot be told: {why(enabled)}"
        return Line(_TOPIC, Outlook.UNKNOWN, said, read=name, reason=enabled.reason)
    if unit in enabled:
        said = f"{one_line(unit, 80)}, in which {name} runs, is enabled"
        return Line(_TOPIC, Outlook.READY, said, read=name)
    said = f"{one_line(unit, 80)}, in which {name} runs, is not enabled: nothing wants it at boot"
    into = f"lxc-attach -n {quote(inside.name)} -- " if inside else ""
    todo = "Enable it, unless a timer, a socket or another unit starts it"
    return Line(_TOPIC, Outlook.LOOK, said, todo, (f"{into}systemctl enable {quote(unit)}",), name)
