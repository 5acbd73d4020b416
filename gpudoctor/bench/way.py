"""Ways to run a text of ours beside an engine, the best one that works."""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from gpudoctor.bench.sent import NotStarted, Sent, python_command, running
from gpudoctor.hosts.channel import Channel
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.ssh import SshTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import Side
from gpudoctor.model.bench import Serving
from gpudoctor.model.error import Refusal
from gpudoctor.model.place import ContainerRef

BESIDE = "beside it"
NAMESPACE = "beside it, in its container's network"
INSIDE = "inside its container"
PUBLISHED = "on the host, through its container's published port"
FORWARD = "from here through an SSH forward: round trips are in the numbers"
UNVERIFIED = "its TLS certificate not verified, as on loopback"
_ENTERED = frozenset({"lxc", "docker", "podman", "ssh"})


@dataclass(frozen=True, slots=True)
class Way:
    """One way: sh text on the host or in `ref`, or a forward, for which the text runs here."""

    told: str
    text: str = ""
    ref: ContainerRef | None = None
    as_root: bool = False


@dataclass(frozen=True, slots=True)
class Near:
    """A running text, how it was reached in words, and the engine's address as seen from it."""

    sent: Sent
    path: str
    url: str


def ways(target: LiveTarget, serving: Serving) -> list[Way]:
    """Return the ways to an engine, best first."""
    here = isinstance(target.transport, LocalTransport)
    plain = python_command(sys.executable) if here else python_command()
    if serving.side is Side.HOST:
        way = Way(BESIDE if serving.container is None else PUBLISHED, plain)
        return [way, Way(FORWARD)] if isinstance(target.transport, SshTransport) else [way]
    found = []
    if serving.pid:
        found.append(Way(NAMESPACE, _in_network(serving, plain), as_root=True))
    if serving.container is not None and serving.container.kind in _ENTERED:
        found.append(Way(INSIDE, python_command(), serving.container, as_root=True))
    return found


def _in_network(serving: Serving, plain: str) -> str:
    """Return sh text that runs a Python in the network namespace of the engine's process."""
    pid = int(serving.pid)
    same = (
        f"[ \"$(sed 's/.*) //' /proc/{pid}/stat | cut -d' ' -f20)\" = {int(serving.started)} ]"
        "||{ echo the engine has ended or was started again>&2;exit 1;};"
    )
    return (
        '[ "$(id -u)" = 0 ]||{ echo that needs root without a password there>&2;exit 1;};'
        f"{same if serving.started else ''}"
        f"exec nsenter -t {pid} -n {plain.removeprefix('exec ')}"
    )


@asynccontextmanager
async def near(target: LiveTarget, serving: Serving, name: str) -> AsyncIterator[Near]:
    """Yield one of our texts, running beside the engine by the best way that works.

    The target is connected. Raises Refusal where there is no way, or HostUnreachable.
    """
    whys = []
    async with AsyncExitStack() as stack:
        for way in ways(target, serving):
            try:
                channel, url = await _open(target, serving, way, stack)
                sent = await stack.enter_async_context(running(channel, name))
            except NotStarted as why:
                whys.append(f"{way.told.partition(':')[0]}: {why.sentence}")
                continue
            path = f"{way.told}; {UNVERIFIED}" if unverified(serving.url) else way.told
            yield Near(sent, path, url)
            return
        told = "; ".join(whys) or "its container cannot be entered from here"
        raise Refusal(f"nothing of ours can be run beside the engine ({told})")


async def _open(
    target: LiveTarget, serving: Serving, way: Way, stack: AsyncExitStack
) -> tuple[Channel, str]:
    if way.text:
        return await target.open(way.text, way.ref, way.as_root), serving.url
    assert isinstance(target.transport, SshTransport)
    where = urlsplit(serving.url)
    port = where.port or (443 if where.scheme == "https" else 80)
    ours = await stack.enter_async_context(
        target.transport.forward(where.hostname or "127.0.0.1", port)
    )
    channel = await LocalTransport().open(python_command(sys.executable))
    return channel, f"{where.scheme}://127.0.0.1:{ours}"


def on_loopback(url: str) -> bool:
    """Return whether an address is the machine's own."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def unverified(url: str) -> bool:
    """Return whether the certificate at an address is not verified: only on loopback."""
    return url.startswith("https:") and on_loopback(url)
