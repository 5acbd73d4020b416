"""Plans by hand for a server that systemd runs: a variable of its unit, set or taken out."""

import re
from collections.abc import Iterable

from gpudoctor.formats.serving import Server
from gpudoctor.model import Change, Side, Unknown, Worked
from gpudoctor.shell import quote

Options = tuple[tuple[Change, ...], ...]

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_UNIT = re.compile(
    r"0::(?:/lxc(?:/|[.]payload[.])(?P<lxc>[A-Za-z0-9][\w.-]*?)(?:/ns)?)?/system[.]slice/"
    r"(?:[\w.-]+[.]slice/)*(?P<unit>[A-Za-z0-9][\w:.@-]*[.]service)",
    re.ASCII,
)
# Units whose processes outlive them or that start what others ask for, and systemd-run's own.
_NOT_ITS_OWN = re.compile(
    r"(?:ssh|sshd|cron|crond|atd|docker|containerd|podman|crio|kubelet|slurmd|run-.*|user)"
    r"(?:@[^.]*)?[.]service"
)


def set_in_unit(server: Server, name: str, value: str) -> Options:
    """Return the plan that gives the server a variable that it lacks; none without a known unit."""
    if isinstance(server.env, Unknown) or name in server.env:
        return ()
    return _drop_in(server, f"{name}={value}", {name: f"Environment={name}={value}"})


def unset_in_unit(server: Server, names: Iterable[str]) -> Options:
    """Return the plan that takes variables out; none where one is not of its environment."""
    wanted = tuple(names)
    if isinstance(server.env, Unknown) or not server.env.keys() >= set(wanted):
        return ()
    lines = {name: f"UnsetEnvironment={name}" for name in wanted}
    return _drop_in(server, f"{', '.join(wanted)} unset", lines)


def _drop_in(server: Server, what: str, lines: dict[str, str]) -> Options:
    """Return a drop-in a variable, a reload and a restart, in the container of the unit."""
    found = _unit_of(server)
    if found is None or not lines or not all(map(_NAME.fullmatch, lines)):
        return ()
    unit, lxc = found
    folder = quote(f"/etc/systemd/system/{unit}.d")
    files = {name: f"{folder}/gpudoctor-{name.lower().replace('_', '-')}.conf" for name in lines}
    into = f"lxc-attach -n {quote(lxc)} -- " if lxc else ""
    again = (f"{into}systemctl daemon-reload", f"{into}systemctl restart {quote(unit)}")
    write = (
        f"printf '%s\\n' '[Service]' {quote(line)} | {into}tee {files[name]}"
        for name, line in lines.items()
    )
    plan = Worked(
        f"{what} for {unit}{f' of container {lxc}' if lxc else ''}",
        (f"{into}mkdir -p {folder}", *write, *again),
        (f"{into}rm {' '.join(files.values())}", *again),
        caution=f"It restarts {unit}: requests in flight end. A start script that sets or clears "
        "the variable itself wins over the unit.",
    )
    return ((plan,),)


def _unit_of(server: Server) -> tuple[str, str] | None:
    """Return the server's own unit and the LXC container that runs it ("" on the host)."""
    if server.side is not Side.HOST or len(server.containers) > 1:
        return None
    for line in server.cgroup:
        match = _UNIT.fullmatch(line)
        if match and not _NOT_ITS_OWN.fullmatch(match["unit"]):
            lxc = match["lxc"] or ""
            return (match["unit"], lxc) if bool(lxc) == bool(server.containers) else None
    return None
