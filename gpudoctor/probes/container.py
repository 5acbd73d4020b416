"""The container that serves, from both sides: kind, device nodes, limits, libraries, its conf."""

import re
from dataclasses import dataclass

from gpudoctor.formats.cgroup import parse_amount, parse_counters, parse_cpu_max
from gpudoctor.formats.container_ref import group_of
from gpudoctor.formats.cpulist import parse_cpulist
from gpudoctor.formats.limits import Limit, parse_limits
from gpudoctor.formats.listing import Entry, parse_entry
from gpudoctor.formats.lxc_conf import LxcConf, parse_lxc_conf
from gpudoctor.formats.proc_devices import parse_char_majors
from gpudoctor.formats.serving import Server
from gpudoctor.model import Evidence, Files, Listing, Reader, Reason, Side, Tool, Unknown
from gpudoctor.probes.served import SERVERS_HERE

CT = Side.CONTAINER

# The kernel's own files: every container has them, so their absence means there is no container.
INIT = Files(
    "ct-init",
    ("/proc/1/limits", "/proc/1/attr/current", "/proc/sys/kernel/hostname"),
    side=CT,
)


@dataclass(frozen=True, slots=True)
class Init:
    """The container's first process: its limits, its AppArmor profile and the hostname."""

    limits: dict[str, Limit] | Unknown
    profile: str
    hostname: str


def _init(evidence: Evidence) -> Init:
    texts = evidence.texts()
    limits = evidence.get("/proc/1/limits")
    return Init(
        limits if isinstance(limits, Unknown) else parse_limits(limits),
        texts.get("/proc/1/attr/current", "").strip("\n\0\ufffd "),
        texts.get("/proc/sys/kernel/hostname", "").strip(),
    )


CONTAINER_INIT: Reader[Init] = Reader("ct-init", (INIT,), _init)

MARKS = Files(
    "ct-marks",
    ("/run/systemd/container", "/run/.containerenv", "/.dockerenv"),
    side=CT,
    guarded=True,
)
DETECT = Tool("ct-detect-virt", "systemd-detect-virt", "systemd-detect-virt -c; exit 0", side=CT)


def _kind(init: object, detect: Evidence, marks: Evidence) -> str | Unknown:
    """Return lxc, docker, podman … as systemd or the engines' own marks tell; nested: both."""
    if isinstance(init, Unknown):
        return init
    texts = marks.texts()
    named = detect.text.strip() if detect.problem is None else ""
    systemd = texts.get("/run/systemd/container", "").strip()
    kind = next((name for name in (named, systemd) if name and name != "none"), "")
    if "/run/.containerenv" in texts:
        inner = "podman"
    else:
        inner = "docker" if "/.dockerenv" in texts else ""
    if kind and inner and inner != kind:
        return f"{inner} in {kind}" if kind == "lxc" else inner
    if kind or inner:
        return kind or inner
    if named == "none":
        return "none"
    return Unknown(Reason.NOT_PRESENT, "nothing in the container names its kind")


CONTAINER_KIND: Reader[str] = Reader(
    "ct-kind", (CONTAINER_INIT, DETECT, MARKS), _kind, tolerant=True
)

_NODES = ("/dev/nvidia*", "/dev/nvidia-caps/*")
CT_NODES = Listing("ct-gpu-nodes", _NODES, side=CT)
HOST_NODES = Listing("host-gpu-nodes", _NODES)

Nodes = dict[str, Entry]


def _nodes(evidence: Evidence) -> Nodes | Unknown:
    """Return the NVIDIA character devices by path; none at all is an empty mapping."""
    if evidence.unread:
        return evidence.unread
    entries = {
        path: parse_entry(line)
        for path, line in evidence.files.items()
        if not isinstance(line, Unknown)
    }
    return {path: entry for path, entry in entries.items() if entry.device is not None}


def _container_nodes(init: object, evidence: Evidence) -> Nodes | Unknown:
    return init if isinstance(init, Unknown) else _nodes(evidence)


HOST_GPU_NODES: Reader[Nodes] = Reader("host-gpu-nodes", (HOST_NODES,), _nodes, tolerant=True)
CONTAINER_GPU_NODES: Reader[Nodes] = Reader(
    "ct-gpu-nodes", (CONTAINER_INIT, CT_NODES), _container_nodes, tolerant=True
)


def gpu_minors(nodes: Nodes) -> frozenset[int]:
    """Return the numbers N of the /dev/nvidiaN nodes."""
    found = (re.fullmatch(r"/dev/nvidia(\d+)", path) for path in nodes)
    return frozenset(int(match.group(1)) for match in found if match)


HOST_DEVICES = Files("host-char-devices", ("/proc/devices",), cap=16384)


def _majors(evidence: Evidence) -> dict[str, frozenset[int]] | Unknown:
    text = evidence.get("/proc/devices")
    return text if isinstance(text, Unknown) else parse_char_majors(text)


CHAR_MAJORS: Reader[dict[str, frozenset[int]]] = Reader("char-majors", (HOST_DEVICES,), _majors)

# Exists on no host: `--from` keeps a configuration file given alone under this name.
GIVEN_CONF = "/gpudoctor/lxc.conf"
CONFS = Files(
    "lxc-confs",
    ("/etc/pve/lxc/*.conf", "/var/lib/lxc/*/config", GIVEN_CONF),
    cap=65536,
    guarded=True,
)


@dataclass(frozen=True, slots=True)
class ContainerConf:
    """The live LXC configuration of the container that serves, and the file it came from."""

    path: str
    name: str
    conf: LxcConf

    @property
    def is_proxmox(self) -> bool:
        """Return whether Proxmox keeps it (and gives plain LXC a made one)."""
        return self.path.startswith("/etc/pve/")


_NAMED = re.compile(r"/etc/pve/lxc/(?P<a>\d+)\.conf|/var/lib/lxc/(?P<b>[^/]+)/config")
_PROFILE = re.compile(r"lxc-(?P<id>[^_\s]+)_<")


def _conf(init: Init | Unknown, kind: str | Unknown, evidence: Evidence) -> ContainerConf | Unknown:
    """Choose the conf by the id in the AppArmor profile, else by the container's hostname."""
    given = evidence.get(GIVEN_CONF)
    if not isinstance(given, Unknown):
        return ContainerConf("the given configuration", "", parse_lxc_conf(given))
    if isinstance(init, Unknown) or isinstance(kind, Unknown):
        return next(each for each in (init, kind) if isinstance(each, Unknown))
    if "lxc" not in kind:
        return Unknown(Reason.NOT_PRESENT, f"no LXC configuration: the container is {kind}")
    if evidence.problem:
        return evidence.problem
    found = []
    for path, text in sorted(evidence.texts().items()):
        match = _NAMED.fullmatch(path)
        if match:
            name = match["a"] or match["b"]
            found.append(ContainerConf(path, name, parse_lxc_conf(text)))
    profile = _PROFILE.search(init.profile)
    own = [c for c in found if profile and c.name == profile["id"]]
    return _only(own or [c for c in found if _same_host(c.conf.hostname, init.hostname)])


def _same_host(left: str, right: str) -> bool:
    return bool(left) and left.partition(".")[0].lower() == right.partition(".")[0].lower()


def _only(found: list[ContainerConf]) -> ContainerConf | Unknown:
    """Return the one conf, Proxmox's before the one it makes of it; two different ones are none."""
    if not found:
        return Unknown(Reason.NOT_PRESENT, "no LXC configuration on the host has this hostname")
    if len({conf.name for conf in found}) > 1:
        names = ", ".join(conf.path for conf in found)
        return Unknown(Reason.NOT_PRESENT, f"several configurations have this hostname: {names}")
    return next((conf for conf in found if conf.is_proxmox), found[0])


CONTAINER_CONF: Reader[ContainerConf] = Reader(
    "ct-conf", (CONTAINER_INIT, CONTAINER_KIND, CONFS), _conf, tolerant=True
)

_HOST_CGROUP = Files("host-cgroup-kind", ("/sys/fs/cgroup/cgroup.controllers",))


# Whether the host mounts cgroup v2 alone, where v1 keys have no effect.
CGROUP_V2: Reader[bool] = Reader("cgroup-v2", (_HOST_CGROUP,), Evidence.present, tolerant=True)

_GROUP_FILES = (
    "memory.max",
    "memory.high",
    "memory.current",
    "memory.events",
    "cpu.max",
    "cpu.stat",
    "cpuset.cpus.effective",
    "cpuset.mems.effective",
)
CT_CGROUP = Files("ct-cgroup", tuple(f"/sys/fs/cgroup/{name}" for name in _GROUP_FILES), side=CT)
# Proxmox sets limits on lxc/ID, and the container's own view begins one below, at lxc/ID/ns.
HOST_CGROUPS = Files(
    "lxc-cgroups",
    tuple(
        f"/sys/fs/cgroup/{place}/{name}"
        for place in ("lxc/*", "lxc.payload.*")
        for name in _GROUP_FILES
    ),
)


@dataclass(frozen=True, slots=True)
class Group:
    """One cgroup: bytes, counters and CPUs; None is no limit, an absent file leaves its default.

    `path` is its folder as the host sees it, empty where that is not certain.
    """

    memory_max: int | None = None
    memory_high: int | None = None
    memory_now: int = 0
    events: tuple[tuple[str, int], ...] = ()
    cpu_quota: float | None = None
    cpu_stat: tuple[tuple[str, int], ...] = ()
    cpus: frozenset[int] = frozenset()
    mems: frozenset[int] = frozenset()
    path: str = ""

    @property
    def has_memory(self) -> bool:
        """Return whether memory events were read at all."""
        return bool(self.events)


def _group(texts: dict[str, str], path: str) -> Group:
    """Read one cgroup from its files' texts by name."""
    return Group(
        parse_amount(texts.get("memory.max", "max")),
        parse_amount(texts.get("memory.high", "max")),
        int(texts.get("memory.current", "0")),
        tuple(parse_counters(texts.get("memory.events", "")).items()),
        parse_cpu_max(texts.get("cpu.max", "max 100000")),
        tuple(parse_counters(texts.get("cpu.stat", "")).items()),
        parse_cpulist(texts.get("cpuset.cpus.effective", "")),
        parse_cpulist(texts.get("cpuset.mems.effective", "")),
        path,
    )


def _groups(
    inside: Evidence,
    conf: ContainerConf | Unknown,
    host: Evidence,
    here: tuple[Server, ...] | Unknown,
) -> tuple[Group, ...] | Unknown:
    """Return the container's cgroup as it sees it, and the host's own above it where known."""
    if inside.problem:
        return inside.problem
    own = {path.rsplit("/", 1)[-1]: text for path, text in inside.texts().items()}
    if isinstance(conf, Unknown):
        return (_group(own, _docker_home(here)),)
    homes = (f"/sys/fs/cgroup/lxc/{conf.name}", f"/sys/fs/cgroup/lxc.payload.{conf.name}")
    for home in homes:
        above = {
            path.rsplit("/", 1)[-1]: text
            for path, text in host.texts().items()
            if path.startswith(f"{home}/")
        }
        if above:
            view = f"{home}/ns" if conf.is_proxmox else home if home == homes[1] else ""
            return (_group(own, view), _group(above, home))
    return (_group(own, ""),)


def _docker_home(here: tuple[Server, ...] | Unknown) -> str:
    """Return the folder of the container's own cgroup, told by the servers that run in it."""
    servers = () if isinstance(here, Unknown) else here
    paths = {group_of(s.cgroup) for s in servers if s.container and s.container.kind == "docker"}
    return f"/sys/fs/cgroup{paths.pop()}" if len(paths) == 1 else ""


CONTAINER_GROUPS: Reader[tuple[Group, ...]] = Reader(
    "ct-groups", (CT_CGROUP, CONTAINER_CONF, HOST_CGROUPS, SERVERS_HERE), _groups, tolerant=True
)
