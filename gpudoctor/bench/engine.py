"""The engines that serve on a host: found by their processes and sockets, asked what they are."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from gpudoctor.bench.asking import asking
from gpudoctor.bench.endpoint import examine
from gpudoctor.bench.listening import Listening, addresses, listening_text, parse_listening
from gpudoctor.bench.way import on_loopback
from gpudoctor.formats.engines import Engine
from gpudoctor.formats.launch_flags import parse_flags
from gpudoctor.formats.serving import Server
from gpudoctor.hosts.session import Job
from gpudoctor.hosts.side import LiveSide
from gpudoctor.hosts.target import LiveTarget, Target
from gpudoctor.model import Facts, Reason, Side, Unknown
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.bench import Serving
from gpudoctor.model.error import Refusal, WrongUsage
from gpudoctor.model.place import ContainerRef
from gpudoctor.probes.serving import SERVERS, SERVING_PROCESSES
from gpudoctor.redact import redact_evidence
from gpudoctor.text import one_line

_NONE = "; start one, or name its address with --url"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A server that was seen, where it listens, and the container whose pids it is told in."""

    server: Server
    listening: Listening
    inside: ContainerRef | None = None

    @property
    def drafts(self) -> list[Serving]:
        """Return what may lead to it, likeliest first: from its own network, then the host's."""
        server = self.server
        draft = Serving(
            server.engine,
            "",
            "",
            pid=0 if self.inside else server.pid,
            started=0 if self.inside else server.start,
            container=self.inside or server.container,
            flags=server.argv,
        )
        hosts = replace(draft, side=Side.HOST)
        apart = replace(draft, side=Side.CONTAINER)
        if self.inside or self.listening.apart:
            return [apart, hosts]
        if self.listening.apart is None and draft.container is not None:
            return [hosts, apart]
        # It shares the host's network: nothing lies between.
        return [replace(hosts, container=None)]


async def find(
    target: Target, result: AuditResult, url: str = "", api_key_env: str = ""
) -> list[Serving]:
    """Return the engines that answer on a host, the last started first; or that at `url` alone.

    They are looked for afresh; `result` is only read for a demo host. Each is asked for one token.
    The target is connected where it is not yet, and stays so. Raises Refusal with one sentence
    where none is found or none answers, WrongUsage, or HostUnreachable.
    """
    if target.simulated:
        return _simulated(result)
    if not isinstance(target, LiveTarget):
        raise Refusal("a recording cannot be measured: name the host itself", 1)
    key = key_of(api_key_env)
    await target.connect()
    seen = await _candidates(target)
    if url:
        return [
            await _given(target, url, [] if isinstance(seen, Unknown) else seen, key, api_key_env)
        ]
    if isinstance(seen, Unknown):
        raise Refusal(f"{seen.detail}{_NONE}")
    taken = {place for one in seen if one.listening.apart is False for place in _ports(one)}
    tries = (_answering(target, one, key, api_key_env, taken) for one in seen)
    found = await asyncio.gather(*tries, return_exceptions=True)
    for other in found:
        if isinstance(other, BaseException) and not isinstance(other, Refusal):
            raise other
    servings = [one for one in found if isinstance(one, Serving)]
    if not servings:
        raise next(one for one in found if isinstance(one, Refusal))
    return sorted(servings, key=lambda one: one.started, reverse=True)


def key_of(api_key_env: str) -> str:
    """Return the API key that a variable of this process holds. Raises WrongUsage."""
    if not api_key_env:
        return ""
    key = os.environ.get(api_key_env, "").strip()
    if not key:
        raise WrongUsage(f"the environment variable {one_line(api_key_env, 80)} is not set here")
    if not key.isprintable() or not key.isascii():
        raise WrongUsage(f"what {one_line(api_key_env, 80)} holds cannot be an API key")
    return key


async def _candidates(target: LiveTarget) -> list[Candidate] | Unknown:
    """Return the servers that run on the host, or in the container that was chosen."""
    found = await _seen_by(target.host(), None)
    chosen = target.chosen_container
    if chosen is None:
        return found
    seen = [] if isinstance(found, Unknown) else found
    if named := [one for one in seen if chosen in one.server.containers]:
        return named
    inner = await _seen_by(target.container(chosen), chosen)
    if isinstance(inner, Unknown):
        return Unknown(inner.reason, f"{chosen}: {inner.detail}")
    # Its cgroup may hold another name than the operator gave: the same process started at once.
    starts = {one.server.start for one in inner}
    return [one for one in seen if one.server.start in starts] or inner


async def _seen_by(side: LiveSide, inside: ContainerRef | None) -> list[Candidate] | Unknown:
    try:
        await side.start()
        answers = [await job for job in side.ask([SERVING_PROCESSES])]
        servers = Facts({e.key: redact_evidence(e) for group in answers for e in group})[SERVERS]
        if isinstance(servers, Unknown):
            return servers
        return [Candidate(s, await _listening(side, s), inside) for s in servers]
    except Refusal as refusal:
        if inside is None:
            raise
        return Unknown(Reason.NOT_PRESENT, refusal.sentence)
    finally:
        await asyncio.shield(side.close())


async def _listening(side: LiveSide, server: Server) -> Listening:
    answer = await side.session.run(Job(listening_text(server), cap=1 << 20))
    return parse_listening(answer.stdout.decode("ascii", "replace"))


def _ports(one: Candidate) -> list[str]:
    return [address.rpartition(":")[2] for address in addresses(one.server, one.listening)]


async def _answering(
    target: LiveTarget, one: Candidate, key: str, env: str, taken: set[str]
) -> Serving:
    """Return the engine as it answers, over the first way and address that give it.

    A containered one is asked on the host's side only at a port that no other engine has there.
    """
    whys: list[Refusal] = []
    server, places = one.server, addresses(one.server, one.listening)
    if not places:
        raise Refusal(f"{server.engine} (pid {server.pid}) listens nowhere yet: is it loading?")
    for draft in one.drafts:
        for place in places:
            published = draft.side is Side.HOST and draft.container is not None
            if published and place.rpartition(":")[2] in taken:
                continue
            where = f"127.0.0.1:{place.rpartition(':')[2]}" if published else place
            draft = replace(draft, url=f"http://{where}", api_key_env=env)
            try:
                return await _examined(target, draft, key, server.engine)
            except Refusal as why:
                whys.append(why)
    raise _first_of(whys)


def _first_of(whys: Sequence[Refusal]) -> Refusal:
    """Return the refusal that says most: of an engine that answered, before one of silence."""
    spoken = [why for why in whys if "HTTP" in why.sentence]
    return (*spoken, *whys)[0]


async def _examined(
    target: LiveTarget, draft: Serving, key: str, hint: Engine | None, prefix: str = ""
) -> Serving:
    async with asking(target, draft, key) as asker:
        return await examine(asker, draft, hint, prefix)


async def _given(
    target: LiveTarget, url: str, seen: Sequence[Candidate], key: str, env: str
) -> Serving:
    """Return the engine at an address, asked from the host; its process, where it is one there.

    Where a container was chosen, loopback is its own.
    """
    base, prefix = parse_url(url)
    port = str(urlsplit(base).port or (443 if base.startswith("https:") else 80))
    inside = target.chosen_container is not None
    near = [one for one in seen if inside or one.listening.apart is False]
    mine = [one for one in near if port in _ports(one)]
    if not mine or not on_loopback(base):
        draft = Serving("", base, "", api_key_env=env)
        return await _examined(target, draft, key, None, prefix)
    draft = replace(mine[0].drafts[0], url=base, api_key_env=env)
    return await _examined(target, draft, key, mine[0].server.engine, prefix)


def parse_url(url: str) -> tuple[str, str]:
    """Return `scheme://host:port` and the path before /v1. Raises WrongUsage."""
    text = url.strip() if "://" in url else f"http://{url.strip()}"
    try:
        parts = urlsplit(text)
        well = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        well = False
    if not well or not text.isascii() or not text.isprintable() or " " in text:
        raise WrongUsage("--url wants http://HOST:PORT or https://HOST:PORT")
    if "@" in parts.netloc:
        raise WrongUsage("--url must hold no password: name a variable with --api-key-env")
    prefix = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}", prefix


def _simulated(result: AuditResult) -> list[Serving]:
    """Return the demo host's engine, labelled as simulated; nothing is asked."""
    servers = Facts(result.evidence)[SERVERS]
    if isinstance(servers, Unknown):
        raise Refusal(f"{servers.detail}{_NONE}")
    return [
        Serving(
            server.engine,
            f"http://{addresses(server, Listening())[0]}",
            parse_flags(server.arguments).get("served-model-name", "model-path", "model", "m")
            or "",
            pid=server.pid,
            started=server.start,
            container=server.container,
            flags=server.argv,
            simulated=True,
        )
        for server in servers
    ]
