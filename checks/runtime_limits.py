"""Panel 10, what the server's processes may take: open files and locked memory."""

from gpudoctor.checks.runtime_servers import per_server
from gpudoctor.formats.pci import bytes_text
from gpudoctor.formats.serving import Server
from gpudoctor.model import (
    Class,
    Impact,
    ProcessLimit,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    non_issue,
    not_read,
)
from gpudoctor.probes.nccl import RDMA, RdmaPort
from gpudoctor.probes.served import PARENTS, Parents, tree_of
from gpudoctor.probes.serving import SERVERS

_INHERITED = "Processes that start later inherit it, and keep it after an undo."


@check(
    "rt-nofile",
    "Open files",
    reads=(SERVERS,),
    optional=(PARENTS,),
    why="Each client connection takes a file. The soft limit counts; SGLang raises its own.",
    source="getrlimit(2); SGLang set_ulimit",
    scope="server",
    changes=(ProcessLimit,),
)
def nofile(servers: tuple[Server, ...], parents: Parents | Unknown) -> list[Verdict]:
    """Judge the soft limit of the launcher."""
    return per_server(servers, lambda s: _nofile(s, parents), lambda s: s)


def _nofile(server: Server, parents: Parents | Unknown) -> Verdict:
    limit = server.limit("Max open files")
    if isinstance(limit, Unknown):
        return not_read(limit)
    soft, hard = limit.soft, limit.hard
    if soft is None or soft >= 65535:
        return good("Enough open files", f"{soft or 'unlimited'} soft", "65535 or more")
    return issue(
        "Few open files a process",
        Class.P0,
        Impact.LOW,
        f"pid {server.pid}: {soft} soft, {hard or 'unlimited'} hard",
        "65535 or more",
        remedy="To last: LimitNOFILE= of its unit, lxc.prlimit.nofile, docker --ulimit nofile=.",
        changes=((ProcessLimit(tree_of(server, parents), "nofile", "65535", caution=_INHERITED),),),
    )


@check(
    "rt-memlock",
    "Locked memory of a server on the host",
    reads=(SERVERS, RDMA),
    optional=(PARENTS,),
    why="RDMA registration, mlock and io_uring count against RLIMIT_MEMLOCK. CUDA's pinned memory "
    "does not: NVIDIA's kernel module does not look at the limit.",
    source="getrlimit(2); NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/os-mlock.c",
    scope="server",
    changes=(ProcessLimit,),
)
def memlock(
    servers: tuple[Server, ...], ports: tuple[RdmaPort, ...], parents: Parents | Unknown
) -> list[Verdict]:
    """Judge the soft limit where the server runs outside containers."""
    return per_server(servers, lambda s: _memlock(s, bool(ports), parents), lambda s: s)


def _memlock(server: Server, rdma: bool, parents: Parents | Unknown) -> Verdict:
    limit = server.limit("Max locked memory")
    if isinstance(limit, Unknown):
        return not_read(limit)
    observed = "unlimited" if limit.soft is None else f"{bytes_text(limit.soft)} soft"
    if server.container:
        return info("The server runs in a container: see lxc-memlock", observed)
    if limit.soft is None:
        return good("Locked memory is unlimited", observed, "unlimited with RDMA")
    if not rdma:
        return non_issue("A locked-memory limit, and nothing here that it could limit", observed)
    return issue(
        "RDMA registration is limited by RLIMIT_MEMLOCK",
        Class.P0,
        Impact.LOW,
        observed,
        "unlimited",
        remedy="To last: LimitMEMLOCK=infinity of its unit.",
        changes=(
            (ProcessLimit(tree_of(server, parents), "memlock", "unlimited", caution=_INHERITED),),
        ),
    )
