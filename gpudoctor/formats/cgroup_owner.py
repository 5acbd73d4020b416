"""Who owns a process, told by its cgroup: a container, a virtual machine, a service, a user."""

import re

from gpudoctor.formats.container_ref import containers_of

_MACHINE = re.compile(r"/(?:qemu\.slice/|machine-qemu[^/]*?-)(\d+)[^/]*\.scope")
_SERVICE = re.compile(r"/([^/]+\.service)(?:/|$)")
_USER = re.compile(r"/user-(\d+)\.slice/")


def owner_of(cgroup: str) -> str:
    """Return a name for the owner; processes that nothing tells apart are the host's."""
    lines = cgroup.splitlines()
    containers = containers_of(lines)
    if containers:
        return f"{containers[0].kind} {containers[0].name[:12]}"
    for pattern, name in ((_MACHINE, "VM {}"), (_USER, "user {}"), (_SERVICE, "{}")):
        for line in lines:
            match = pattern.search(line)
            if match:
                return name.format(match.group(1))
    return "the host"
