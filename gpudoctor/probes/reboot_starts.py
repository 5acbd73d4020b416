"""What starts at boot by itself: units, containers; asked only where somebody wants to reboot."""

import json
import re
from dataclasses import dataclass

from gpudoctor.model import Evidence, Files, Listing, Reader, Reason, Side, Unknown

_PERSISTENCED = "nvidia-persistenced.service"
_UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_WANTS = tuple(
    f"{folder}/*.{kind}/*.service" for folder in _UNIT_FOLDERS for kind in ("wants", "requires")
)
STARTED = Listing("reboot-units", _WANTS)
STARTED_INSIDE = Listing("reboot-units-inside", _WANTS, side=Side.CONTAINER)


_WANTED = re.compile(r"\.(?:wants|requires)/")


def _started(evidence: Evidence) -> frozenset[str] | Unknown:
    """Return the units that some target or unit wants: systemd's `enabled`."""
    if evidence.unread:
        return evidence.unread
    names = (p for p, line in evidence.files.items() if not isinstance(line, Unknown))
    found = frozenset(p.rsplit("/", 1)[-1] for p in names if _WANTED.search(p))
    return found or Unknown(Reason.NOT_PRESENT, "no unit of systemd's is wanted by another there")


ENABLED: Reader[frozenset[str]] = Reader("reboot-units", (STARTED,), _started, tolerant=True)
ENABLED_INSIDE: Reader[frozenset[str]] = Reader(
    "reboot-units-inside", (STARTED_INSIDE,), _started, tolerant=True
)

DAEMON_UNIT = Files(
    "reboot-persistenced",
    tuple(
        f"{folder}/{_PERSISTENCED}{more}" for folder in _UNIT_FOLDERS for more in ("", ".d/*.conf")
    ),
)
_START = re.compile(r"^ExecStart=[ \t]*(?P<command>\S.*)$", re.MULTILINE)


def _sets_mode(evidence: Evidence) -> bool | Unknown:
    """Return whether nvidia-persistenced, when started, switches persistence mode on.

    The first unit file wins, drop-ins come over it by their names; the last command is what runs.
    """
    if evidence.unread:
        return evidence.unread
    texts = evidence.texts()
    units = [f"{folder}/{_PERSISTENCED}" for folder in _UNIT_FOLDERS]
    unit = next((texts[path] for path in units if path in texts), None)
    if unit is None:
        return Unknown(Reason.NOT_PRESENT, f"{_PERSISTENCED} is not installed")
    drop_ins = sorted((p for p in texts if p.endswith(".conf")), key=lambda p: p.rsplit("/")[-1])
    commands = _START.findall("\n".join([unit, *(texts[path] for path in drop_ins)]))
    return bool(commands) and "--no-persistence-mode" not in commands[-1]


PERSISTENCED: Reader[bool] = Reader("persistenced-mode", (DAEMON_UNIT,), _sets_mode, tolerant=True)

UDEV_RULES = Files(
    "reboot-udev-rules",
    tuple(f"{folder}/udev/rules.d/*nvidia*.rules" for folder in ("/etc", "/usr/lib", "/lib")),
    cap=65536,
)


def _by_udev(evidence: Evidence) -> bool | Unknown:
    """Return whether a udev rule starts nvidia-persistenced with the driver, as Ubuntu's does."""
    if evidence.unread:
        return evidence.unread
    return any("nvidia-persistenced" in text for text in evidence.texts().values())


PERSISTENCED_BY_UDEV: Reader[bool] = Reader(
    "reboot-udev-rules", (UDEV_RULES,), _by_udev, tolerant=True
)

DOCKER_CONFS = Files(
    "reboot-docker-confs",
    ("/var/lib/docker/containers/*/hostconfig.json",),
    cap=65536,
    guarded=True,
)


@dataclass(frozen=True, slots=True)
class DockerConf:
    """What Docker keeps of one container: its restart policy and device cgroup rules."""

    id: str
    restart: str
    rules: tuple[str, ...]


def _docker(evidence: Evidence) -> tuple[DockerConf, ...] | Unknown:
    if evidence.unread:
        return evidence.unread
    return tuple(_docker_conf(path, text) for path, text in sorted(evidence.texts().items()))


def _docker_conf(path: str, text: str) -> DockerConf:
    kept = json.loads(text)
    rules = kept.get("DeviceCgroupRules") or []
    restart = (kept.get("RestartPolicy") or {}).get("Name") or "no"
    return DockerConf(path.split("/")[-2], str(restart), tuple(map(str, rules)))


DOCKER: Reader[tuple[DockerConf, ...]] = Reader(
    "reboot-docker-confs", (DOCKER_CONFS,), _docker, tolerant=True
)

HA_FILE = Files("reboot-ha", ("/etc/pve/ha/resources.cfg",), cap=65536)


def _ha(evidence: Evidence) -> frozenset[str] | Unknown:
    """Return the ids of containers that Proxmox's HA starts."""
    if evidence.unread:
        return evidence.unread
    texts = "\n".join(evidence.texts().values())
    return frozenset(re.findall(r"^ct:[ \t]*(\d+)", texts, re.MULTILINE))


BY_HA: Reader[frozenset[str]] = Reader("reboot-ha", (HA_FILE,), _ha, tolerant=True)
