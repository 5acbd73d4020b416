"""Verdicts about serving engines: one for each distinct status, servers named where several run."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from gpudoctor.formats.launch_flags import Flags, parse_flags
from gpudoctor.formats.serving import Server
from gpudoctor.model import Unknown, Verdict, per_target, unknown

T = TypeVar("T")


def flags_of(server: Server) -> Flags:
    """Return a server's launch flags."""
    return parse_flags(server.arguments)


def label(server: Server) -> str:
    """Return a name that survives a restart: engine and port, else engine and pid."""
    port = flags_of(server).number("port")
    return f"{server.engine}:{port}" if port else f"{server.engine} pid {server.pid}"


def where(server: Server) -> str:
    """Return where a server runs, for a sentence: `on the host`, `in lxc 101`."""
    return (
        f"in {server.container.kind} {server.container.name}" if server.container else "on the host"
    )


def env_of(server: Server) -> Mapping[str, str] | Verdict:
    """Return a server's environment, or the verdict that it is not known."""
    if isinstance(server.env, Unknown):
        return unknown(server.env.reason, f"pid {server.pid}: {server.env.detail}")
    return server.env


def per_server(
    items: Iterable[T], judge: Callable[[T], Verdict], server: Callable[[T], Server]
) -> list[Verdict]:
    """Judge each item; name targets only where more than one server runs."""
    judged = [(label(server(item)), judge(item)) for item in items]
    return [judged[0][1]] if len(judged) == 1 else per_target(judged)
