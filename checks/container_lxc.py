"""What the LXC configuration and AppArmor grant the container."""

import re

from gpudoctor.checks.container_conf import devices_in_conf, nesting_on
from gpudoctor.model import (
    Class,
    Evidence,
    Impact,
    Listing,
    Needs,
    Reader,
    Reason,
    Side,
    Unknown,
    Verdict,
    Worked,
    check,
    good,
    info,
    issue,
    unknown,
)
from gpudoctor.probes.container import (
    CGROUP_V2,
    CHAR_MAJORS,
    CONTAINER_CONF,
    CONTAINER_INIT,
    CONTAINER_KIND,
    ContainerConf,
    Init,
)
from gpudoctor.probes.kernel import KERNEL_LOG_READ, KernelLog

_RESTART = Needs.CONTAINER_RESTART
# The major of nvidia0, nvidiactl and nvidia-modeset is registered; uvm's moves between boots.
_STATIC = 195


@check(
    "lxc-device-cgroup",
    "Device rules of the container",
    reads=(CONTAINER_CONF,),
    optional=(CGROUP_V2, CHAR_MAJORS),
    why="Rules name device numbers, and nvidia-uvm's number moves between boots: after a kernel or "
    "driver update the container starts without CUDA while nvidia-smi works. dev[n] entries are "
    "resolved at each start.",
    source="proxmox/pve-container (dev[n], vmconfig_hotplug_pending); lxc.container.conf(5)",
    scope="container",
    changes=(Worked,),
)
def device_cgroup(
    conf: ContainerConf, unified: bool | Unknown, majors: dict[str, frozenset[int]] | Unknown
) -> Verdict:
    """Judge whether nvidiactl, a GPU and nvidia-uvm may be opened with today's numbers."""
    rules = conf.conf.rules
    seen = f"{conf.path}: {_described(conf)}"
    if not rules and not any("nvidia" in path for path in conf.conf.devices):
        return info("The configuration passes no NVIDIA device", seen)
    if isinstance(unified, Unknown) or isinstance(majors, Unknown):
        why = unified if isinstance(unified, Unknown) else majors
        assert isinstance(why, Unknown)
        return _without_host(conf, why, seen)
    uvm = min(majors.get("nvidia-uvm", ()), default=None)
    version = 2 if unified else 1
    needed = {"/dev/nvidiactl": (_STATIC, 255)}
    if uvm is not None:
        needed["/dev/nvidia-uvm"] = (uvm, 0)
    barred = {p: d for p, d in needed.items() if not conf.conf.allows(p, *d, version=version)}
    if barred:
        return _barred(conf, barred, seen, unified)
    if uvm is None:
        return unknown(
            Reason.NOT_PRESENT,
            "nvidia-uvm has no device number on the host now (its module is not loaded)",
            observed=seen,
        )
    return good("The device rules fit today's numbers", f"{seen}; nvidia-uvm is {uvm}")


def _without_host(conf: ContainerConf, why: Unknown, seen: str) -> Verdict:
    """Say what a configuration alone tells, without its host's device numbers."""
    if {"/dev/nvidiactl", "/dev/nvidia-uvm"} <= set(conf.conf.devices):
        return good(
            "dev[n] entries name the nodes: their numbers are looked up at each start", seen
        )
    if conf.conf.rules and all(rule.version == 1 for rule in conf.conf.rules):
        return info(
            "All device rules are of cgroup v1, which a cgroup v2 host ignores",
            seen,
            "lxc.cgroup2.devices, or dev[n] entries",
            why="Proxmox VE uses cgroup v2 by default since 7.0: there lxc.cgroup.devices lines "
            "have no effect. Which version this host has does not show here.",
        )
    return unknown(
        why.reason,
        "the rules' numbers cannot be compared: the host's /proc/devices is not known",
        observed=seen,
    )


def _described(conf: ContainerConf) -> str:
    parts = [f"dev {path}" for path in conf.conf.devices]
    for key, value in conf.conf.items:
        if ".devices." in key:
            parts.append(f"{key.removeprefix('lxc.')} {value}")
    return "; ".join(parts) or "no device entry"


def _barred(
    conf: ContainerConf, barred: dict[str, tuple[int, int]], seen: str, unified: bool
) -> Verdict:
    names = ", ".join(f"{path} ({major}:{minor})" for path, (major, minor) in barred.items())
    old = unified and any(rule.version == 1 for rule in conf.conf.rules)
    why = (
        "On a cgroup v2 host lxc.cgroup.devices lines have no effect; the key is "
        "lxc.cgroup2.devices. "
        if old
        else ""
    )
    lines = ", ".join(f"dev[n]: {path}" for path in barred)
    return issue(
        f"The device rules do not let the container open {' and '.join(barred)}",
        Class.P0,
        Impact.HIGH,
        seen,
        f"access to {names}",
        needs=_RESTART,
        why=f"{why}CUDA fails without these nodes; nvidia-uvm's number moves between boots, so a "
        "number in a rule goes stale.",
        remedy=f"Use {lines}, [n] being the next free number (pct set {conf.name or 'ID'} "
        "--dev[n] PATH; undo: --delete dev[n]), or correct the lxc.cgroup2.devices.allow numbers "
        "above the first [ of the file, then restart the container.",
        changes=devices_in_conf(conf, barred),
    )


DOCKER_INSIDE: Reader[bool] = Reader(
    "ct-docker-inside",
    (Listing("ct-docker-socket", ("/run/docker.sock", "/run/containerd"), side=Side.CONTAINER),),
    Evidence.present,
    tolerant=True,
)


@check(
    "lxc-nesting",
    "Nesting",
    reads=(CONTAINER_CONF,),
    optional=(DOCKER_INSIDE,),
    why="Docker inside the container and modern systemd need it. No effect on throughput.",
    source="pve.proxmox.com pct(1), features: nesting",
    scope="container",
    changes=(Worked,),
)
def nesting(conf: ContainerConf, docker: bool | Unknown) -> Verdict:
    """Judge the feature by whether Docker runs inside."""
    seen = f"{conf.path}: features {conf.conf.last('features') or 'none'}"
    if conf.conf.nesting:
        return good("Nesting is on", seen, "nesting=1")
    if docker is True:
        return issue(
            "Docker runs inside, and nesting is off",
            Class.P0,
            Impact.LOW,
            seen,
            "nesting=1",
            needs=_RESTART,
            remedy=f"pct set {conf.name or 'ID'} --features nesting=1 (keep the other features), "
            "then restart the container; undo: the old features.",
            changes=nesting_on(conf),
        )
    return info("Nesting is off, and nothing seen here needs it", seen)


_DENIED = re.compile(r'apparmor="DENIED"')
_FIELD = re.compile(r'\b(profile|name|comm)="([^"]*)"')
_MATTERS = re.compile(r"nvidia|/dev/shm|cuda|sglang|vllm|llama|ollama|text-generation")


@check(
    "lxc-apparmor",
    "AppArmor",
    reads=(CONTAINER_INIT, CONTAINER_KIND),
    optional=(CONTAINER_CONF, KERNEL_LOG_READ),
    why="AppArmor costs no measurable throughput; it matters only where it blocks. Running "
    "unconfined is no speed fix.",
    source="proxmox/pve-container; apparmor(7)",
    scope="container",
)
def apparmor(
    init: Init, kind: str, conf: ContainerConf | Unknown, log: KernelLog | Unknown
) -> Verdict:
    """Judge this container's denials since boot by what they touch."""
    if isinstance(conf, ContainerConf) and conf.conf.last("lxc.apparmor.profile") == "unconfined":
        return info("The container is unconfined: a matter of security, not of speed", conf.path)
    if isinstance(log, Unknown):
        return unknown(log.reason, f"AppArmor's denials are unknown ({log})")
    profile = init.profile or "not shown"
    prefix = _prefix(kind, conf)
    if prefix is None:
        return unknown(
            Reason.NOT_PRESENT, "which AppArmor profile is this container's could not be told"
        )
    mine = [line for line in log.lines if _DENIED.search(line) and _of(line, prefix)]
    blocking = [line for line in mine if _MATTERS.search(_about(line))]
    if not blocking:
        seen = f"profile {profile}; {len(mine)} other denials"
        return good("AppArmor denied nothing that serving needs", seen)
    return issue(
        "AppArmor denied what serving may need",
        Class.P0,
        Impact.LOW,
        f"{len(blocking)} denials, last: {_about(blocking[-1])}",
        "no denial of NVIDIA files, /dev/shm or the server",
        needs=_RESTART,
        remedy="Allow just that in the container's profile (on Proxmox: lxc.apparmor.raw), then "
        "restart it; do not run it unconfined for speed.",
    )


def _prefix(kind: str, conf: ContainerConf | Unknown) -> str | None:
    """Return how the profile's name begins in the host's log."""
    if "lxc" in kind:
        return None if isinstance(conf, Unknown) else f"lxc-{conf.name}_"
    return {"docker": "docker-default", "podman": "containers-default"}.get(kind)


def _fields(line: str) -> dict[str, str]:
    return {match[1]: match[2] for match in _FIELD.finditer(line)}


def _of(line: str, prefix: str) -> bool:
    return _fields(line).get("profile", "").startswith(prefix)


def _about(line: str) -> str:
    """Return what was denied and to whom."""
    fields = _fields(line)
    return f"{fields.get('name', '?')} to {fields.get('comm', '?')}"
