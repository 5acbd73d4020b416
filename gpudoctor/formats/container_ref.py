"""The container that a process runs in, as its cgroup path names it."""

import re
from collections.abc import Sequence

from gpudoctor.model.place import ContainerRef

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


def group_of(cgroup: Sequence[str]) -> str:
    """Return the path of the cgroup (v2) that Docker or LXC made for the outermost container."""
    path = next((line[3:] for line in cgroup if line.startswith("0::/")), "")
    if path.startswith("/user.slice/"):
        return ""
    found = (match for _, pattern in _CONTAINERS[:2] if (match := pattern.search(path)))
    first = min(found, key=lambda match: match.start(), default=None)
    return path[: first.end()] if first else ""


def containers_of(cgroup: Sequence[str]) -> tuple[ContainerRef, ...]:
    """Return the containers that a process's cgroup lines name, the outermost first.

    Below /user.slice a login made the path, as it liked: such a container is `rootless …`, and root
    does not enter it.
    """
    best: tuple[ContainerRef, ...] = ()
    for line in cgroup:
        path = line.split(":", 2)[-1]
        whose = "rootless " if path.startswith("/user.slice/") else ""
        found: dict[int, ContainerRef] = {}
        for kind, pattern in _CONTAINERS:
            if kind == "kubernetes" and "kubepods" not in path:
                continue
            for match in pattern.finditer(path):
                groups = match.groupdict()
                name = groups["id"] or groups.get("id2") or ""
                found.setdefault(match.start(), ContainerRef(f"{whose}{kind}", name))
        refs = tuple(found[at] for at in sorted(found))
        best = refs if len(refs) > len(best) else best
    return best
