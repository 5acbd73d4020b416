"""Which container serves, told by the cgroup of the serving process."""

from gpudoctor.formats.serving import Server
from gpudoctor.model import Reader, Reason, Unknown
from gpudoctor.model.place import ContainerRef
from gpudoctor.probes.serving import SERVERS

_ENTERED = {"lxc", "docker", "podman"}


def _container(servers: tuple[Server, ...]) -> ContainerRef | Unknown:
    """Return the outermost container of the first server in one: the host can enter that."""
    for server in servers:
        if server.containers and server.containers[0].kind in _ENTERED:
            return server.containers[0]
    return Unknown(Reason.NOT_PRESENT, "the engine serves on the host itself, in no container")


SERVING_CONTAINER: Reader[ContainerRef] = Reader("serving-container", (SERVERS,), _container)
