"""A whole benchmark: find the engine, look at the host, measure beside the engine, keep the run."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gpudoctor.audit import run_audit
from gpudoctor.bench.asking import Asker, asking
from gpudoctor.bench.beside import open_beside
from gpudoctor.bench.copies import copies
from gpudoctor.bench.engine import find, key_of
from gpudoctor.bench.run import FULL, QUICK, Busy, Client, Run, Tell, in_use
from gpudoctor.bench.sentences import complaints
from gpudoctor.bench.simulated import SimulatedBeside
from gpudoctor.bench.standing import STANDING_READS
from gpudoctor.bench.verdict import APPLIED
from gpudoctor.bench.waking import wake_up
from gpudoctor.bench.watch import Seen, look, running
from gpudoctor.hosts.simulated_target import SimulatedTarget
from gpudoctor.hosts.target import LiveTarget, Target
from gpudoctor.model import Facts, Unknown
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.bench import BenchRun, Serving, Witness
from gpudoctor.model.error import Refusal
from gpudoctor.probes.identity import IDENTITY
from gpudoctor.probes.serving import SERVERS
from gpudoctor.snapshots.catalog import heads
from gpudoctor.snapshots.plans import records_in
from gpudoctor.snapshots.store import machine_folder


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator wants measured; `url` chooses one of several engines.

    `tokens` forces an earlier run's output length. `mark` measures beside other users all the same,
    and marks those blocks. `paced` is real seconds for each of the demo's simulated engine.
    `copies` runs the bandwidth tools that are there.
    """

    url: str = ""
    api_key_env: str = ""
    streams: tuple[int, ...] = (1, 8)
    full: bool = False
    mark: bool = False
    tokens: int = 0
    transaction: str = ""
    paced: float = 0.0
    copies: bool = False


async def engines_of(
    make_target: Callable[[], Target], wish: Wish
) -> tuple[AuditResult, list[Serving]]:
    """Return who the host is, and the engines that answer there, the last started first.

    Raises Refusal where none does, or HostUnreachable.
    """
    result = await run_audit(make_target(), (), (IDENTITY, SERVERS, *STANDING_READS))
    target = make_target()
    try:
        return result, await find(target, result, wish.url, wish.api_key_env)
    finally:
        await target.close()


async def engine_of(make_target: Callable[[], Target], wish: Wish) -> tuple[AuditResult, Serving]:
    """Return who the host is, and the one engine to measure. Raises Refusal or HostUnreachable."""
    result, found = await engines_of(make_target, wish)
    if len(found) > 1:
        told = ", ".join(map(_where, found))
        choice = "choose one with --url, or its container with --container"
        raise Refusal(f"{len(found)} engines serve there: {choice} ({told})", 1)
    return result, found[0]


def _where(serving: Serving) -> str:
    inside = f" in {serving.container}" if serving.container is not None else ""
    return f"{serving.kind} at {serving.url}{inside}"


async def measure(make_target: Callable[[], Target], wish: Wish, tell: Tell) -> BenchRun:
    """Measure the engine that serves there, and return the run, not kept yet.

    What was measured before a failure is returned, and says why it stopped. Raises Refusal where
    nothing could be measured, or HostUnreachable.
    """
    result, serving = await engine_of(make_target, wish)
    return await measure_engine(make_target, wish, tell, result, serving)


async def measure_engine(
    make_target: Callable[[], Target],
    wish: Wish,
    tell: Tell,
    result: AuditResult,
    serving: Serving,
    stop: asyncio.Event | None = None,
) -> BenchRun:
    """Measure an engine that was found, until `stop`. Raises as `measure` does."""
    workers = _workers(result, serving)
    before = await look(make_target(), serving, workers)
    if before.others and not wish.mark:
        raise in_use(before.others)
    witnesses: tuple[Witness, ...] = (await wake_up(make_target),)
    if wish.copies:
        gpus = int(before.conditions.values.get("GPUs", "0"))
        witnesses += await copies(make_target, serving.container, gpus)
    size = FULL if wish.full else QUICK
    if serving.simulated:
        size = replace(size, warm=0.0, pause=0.0)
    async with client_beside(make_target, serving, wish) as (client, reached, busy):
        run = Run(client, serving, size, busy, tell, wish.tokens, wish.mark)
        measured = await run.measure(wish.streams, stop)
        path = reached()
    after = await look(make_target(), serving, workers)
    applied, snapshot = await asyncio.to_thread(_kept, result)
    requests = [r for level in measured.levels for b in level.blocks for r in b.requests]
    return BenchRun(
        id=secrets.token_hex(4),
        taken=datetime.now(UTC).isoformat(timespec="seconds"),
        label=result.label,
        machine_id=result.identity.machine_id,
        boot_id=result.identity.boot_id,
        serving=serving,
        levels=measured.levels,
        tokens_asked=measured.tokens,
        full=wish.full,
        path=path,
        conditions=_between(before, after, applied).conditions,
        remarks=tuple(complaints(requests, measured.tokens, serving)),
        stopped=measured.stopped,
        snapshot=snapshot,
        transaction=wish.transaction,
        system_uuid=result.identity.system_uuid,
        witnesses=witnesses,
    )


def _workers(result: AuditResult, serving: Serving) -> frozenset[int]:
    """Return the pids of the engine on the host."""
    servers = Facts(result.evidence)[SERVERS]
    if isinstance(servers, Unknown):
        return frozenset({serving.pid} - {0})
    mine = [s for s in servers if s.pid == serving.pid]
    return frozenset(p.pid for s in mine for p in s.workers) | ({serving.pid} - {0})


@asynccontextmanager
async def client_beside(
    make_target: Callable[[], Target], serving: Serving, wish: Wish
) -> AsyncIterator[tuple[Client, Callable[[], str], Busy]]:
    """Yield the client beside the engine, how it was reached, and who tells of other requests.

    Raises Refusal or HostUnreachable.
    """
    target = make_target()
    if isinstance(target, SimulatedTarget):
        yield (
            SimulatedBeside(target.machine, serving, paced=wish.paced),
            lambda: "simulated",
            _nobody,
        )
        return
    other = make_target()
    assert isinstance(other, LiveTarget)
    key = key_of(wish.api_key_env)
    try:
        await other.connect()
        async with open_beside(target, serving, key) as beside, asking(other, serving, key) as ask:
            yield beside, lambda: beside.path, _busy(ask)
    finally:
        await target.close()
        await other.close()


def _busy(ask: Asker) -> Busy:
    """Return who tells of requests that the engine is answering; asked while none of ours runs."""
    mute = False

    async def others() -> str:
        nonlocal mute
        if mute:
            return ""
        answer = await ask.get("/metrics")
        count = running(answer.body) if answer.good else None
        mute = count is None  # this engine does not tell: it is not asked again
        return f"the engine answers {count} requests of others" if count else ""

    return others


async def _nobody() -> str:
    return ""


def _kept(result: AuditResult) -> tuple[str, str]:
    """Return what this client's store tells of this boot: the changes in force, the last snapshot.

    The demo leaves nothing there.
    """
    who = result.identity
    if result.simulated:
        return "", ""
    folder = machine_folder(who.machine_id, result.label)
    applied = sorted(one.id for one in records_in(folder) if one.boot_id == who.boot_id)
    taken = (head.id for head in heads(folder)[0] if head.identity.boot_id == who.boot_id)
    return ", ".join(applied) or "none", next(taken, "")


def _between(before: Seen, after: Seen, applied: str) -> Seen:
    """Return the later look with both readings where they moved, and with what is applied."""
    values = {**after.conditions.values, **({APPLIED: applied} if applied else {})}
    readings = dict(after.conditions.readings)
    for name, value in before.conditions.readings.items():
        now = readings.get(name)
        readings[name] = value if now in {None, value} else f"{value} before, {now} at its end"
    return replace(after, conditions=replace(after.conditions, values=values, readings=readings))
