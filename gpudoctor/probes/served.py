"""Where fixes of a serving engine aim: its whole process tree, and the servers of the container."""

from collections.abc import Mapping

from gpudoctor.formats.listing import link_target
from gpudoctor.formats.serving import Server
from gpudoctor.model import Evidence, Later, Listing, Reader, Reason, Side, Tool, Unknown
from gpudoctor.probes.serving import SERVERS

Parents = Mapping[int, int]

# A process's name may hold anything: what follows its last parenthesis is state and parent.
_TREE = "cat /proc/[0-9]*/stat 2>/dev/null | awk '{p=$1;sub(/.*[)] /,\"\");print p,$2}'"
PROCESS_TREE = Tool("process-tree", "awk", _TREE, cap=1 << 20)


def _parents(evidence: Evidence) -> dict[int, int]:
    rows = (line.split() for line in evidence.text.splitlines())
    return {int(row[0]): int(row[1]) for row in rows if len(row) == 2}


# The parent of every process, by pid.
PARENTS: Reader[Parents] = Reader("process-parents", (PROCESS_TREE,), _parents)


def tree_of(server: Server, parents: Parents | Unknown) -> tuple[int, ...]:
    """Return the pids of a server's launcher, its workers and all below them, sorted."""
    found = {server.pid, *(worker.pid for worker in server.workers)}
    known = {} if isinstance(parents, Unknown) else parents
    while more := {pid for pid, parent in known.items() if parent in found} - found:
        found |= more
    return tuple(sorted(found))


_LINK = "/proc/{}/ns/pid"
_INSIDE = Listing("ct-pid-namespace", (_LINK.format(1),), side=Side.CONTAINER)


def _links(servers: tuple[Server, ...]) -> Listing:
    pids = [1, *(server.pid for server in servers)]
    return Listing("server-namespaces", tuple(_LINK.format(pid) for pid in pids))


_NAMESPACES = Later("server-namespaces", (SERVERS,), _links)


def _here(
    servers: tuple[Server, ...] | Unknown, inside: Evidence, outside: Evidence
) -> tuple[Server, ...] | Unknown:
    """Return the servers whose pid namespace is the container's; the host's own tells nothing."""
    if isinstance(servers, Unknown):
        return servers
    own = _target(inside, 1)
    if not own or own == _target(outside, 1):
        return Unknown(Reason.NOT_PRESENT, "which servers run in this container is not known")
    return tuple(s for s in servers if _target(outside, s.pid) == own)


def _target(evidence: Evidence, pid: int) -> str:
    line = evidence.files.get(_LINK.format(pid))
    return link_target(line) if isinstance(line, bytes) else ""


SERVERS_HERE: Reader[tuple[Server, ...]] = Reader(
    "servers-here", (SERVERS, _INSIDE, _NAMESPACES), _here, tolerant=True
)
