"""The container that a process runs in, as its cgroup path names it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_HEX = r"(?P<id>[0-9a-f]{64}|[0-9a-f]{12})"
_CONTAINERS = (
    ("lxc", re.compile(r"/lxc(?:/|[.]payload[./])(?P<id>[A-Za-z0-9][\w.-]*?)(?:[.]lxc)?(?=/|$)")),
    ("docker", re.compile(rf"/(?:docker-{_HEX}[.]scope|docker/(?P<id2>[0-9a-f]{{12,64}}))(?=/|$)")),
    ("podman", re.compile(rf"/libpod-{_HEX}(?:[.]scope)?(?=/|$)")),
    (
        "kubernetes",
        re.compile(rf"/(?:cri-containerd-|crio-|containerd-|docker-)?{_HEX}(?:[.]scope)?(?=/|$)"),
    ),
)


@dataclass(frozen=True, slots=True)
class ContainerRef:
    """A container as its processes' cgroup names it: kind (lxc, docker, podman, kubernetes), id."""

    kind: str
    name: str


def containers_of(cgroup: Sequence[str]) -> tuple[ContainerRef, ...]:
    """Return the containers that a process's cgroup lines name, the outermost first."""
    best: tuple[ContainerRef, ...] = ()
    for line in cgroup:
        path = line.split(":", 2)[-1]
        found: dict[int, ContainerRef] = {}
        for kind, pattern in _CONTAINERS:
            if kind == "kubernetes" and "kubepods" not in path:
                continue
            for match in pattern.finditer(path):
                groups = match.groupdict()
                name = groups["id"] or groups.get("id2") or ""
                found.setdefault(match.start(), ContainerRef(kind, name))
        refs = tuple(found[at] for at in sorted(found))
        best = refs if len(refs) > len(best) else best
    return best
