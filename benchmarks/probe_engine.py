"""Measure the probe engine over a real sshd: direct, and behind a network of 50 ms round trip.

    CI=true python benchmarks/probe_engine.py      (as root: it makes users and starts an sshd)

Prints, against the budgets of docs/architecture.md: the whole audit after login beside its slowest
chain of dependent probes; the quick probes in one session beside one channel a file or command,
four at a time; and when an audit with a hung, an endless and a 1 GB probe ends, with the memory
it grew by.
"""

import asyncio
import shlex
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import asyncssh

from gpudoctor import shell
from gpudoctor.audit import Audit
from gpudoctor.hosts.session import Session
from gpudoctor.hosts.side import LiveSide
from gpudoctor.hosts.ssh import SshTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.judging import Judging
from gpudoctor.model import Evidence, Files, Later, Panel, Probe, Side, Tool
from gpudoctor.model.audited import AuditResult
from tests.delay_proxy import delay_proxy
from tests.sshd import Sshd, require_ci, running_sshd

ONE_WAY_SECONDS = 0.025
ROUNDS = 3
CHANNELS = 4


async def main() -> None:
    """Run every measurement and print a table."""
    require_ci()
    with tempfile.TemporaryDirectory() as folder:
        with running_sshd(Path(folder)) as sshd:
            await measure(sshd, sshd.port, "direct")
            async with delay_proxy(sshd.port, ONE_WAY_SECONDS) as port:
                await measure(sshd, port, "50 ms round trip")
            await measure_bad_probes(sshd)


async def measure(sshd: Sshd, port: int, name: str) -> None:
    """Print one network's numbers: the best of some rounds."""
    config = sshd.config("root", port)
    audits = [await whole_audit(config) for _ in range(ROUNDS)]
    total, chain = min(audits, key=lambda pair: pair[0] - pair[1])
    print(f"\n{name}")
    print(f"  whole audit after login      {total:6.2f} s")
    print(f"  slowest chain of probes      {chain:6.2f} s")
    print(f"  above it                     {total - chain:6.2f} s   (budget 0.50)")
    probes = quick_probes()
    ours = min([await one_session(config, probes) for _ in range(ROUNDS)])
    theirs = min([await one_channel_each(config, probes) for _ in range(ROUNDS)])
    print(f"  {len(probes)} quick probes, one session {ours:6.2f} s")
    print(f"  a channel each, {CHANNELS} at a time   {theirs:6.2f} s   ratio {theirs / ours:.1f}")


async def whole_audit(config: Path) -> tuple[float, float]:
    """Return seconds from the login to the result, and of the slowest chain on the target."""
    target = LiveTarget(SshTransport("target", config))
    audit = Audit(target)
    result = None
    try:
        await target.connect()
        begun = time.perf_counter()
        async for event in audit.run():
            result = event if isinstance(event, AuditResult) else None
        total = time.perf_counter() - begun
    finally:
        await audit.close()
    assert isinstance(result, AuditResult)
    return total, slowest_chain(result)


def slowest_chain(result: AuditResult) -> float:
    """Return the seconds on the target of the slowest chain of probes that wait for each other."""
    before = {later.key: set(_before(later)) for later in Judging(Panel).waiting}

    def finish(key: str) -> float:
        own = result.evidence[key].seconds if key in result.evidence else 0.0
        return own + max((finish(k) for k in before.get(key, ())), default=0.0)

    return max(finish(key) for key in result.evidence)


def _before(later: Later) -> Iterator[str]:
    for reader in later.after:
        for probe in reader.probes():
            yield probe.key


def quick_probes() -> list[Probe]:
    """Return the host's first-round probes that are not marked slow."""
    due = Judging(Panel).begin(Side.HOST).due
    return [p for p in due if not (isinstance(p, Tool) and (p.slow or p.gentle))]


async def one_session(config: Path, probes: list[Probe]) -> float:
    """Return the seconds from the channel request to the last answer, as an audit asks."""
    transport = SshTransport("target", config)
    await transport.connect()
    begun = time.perf_counter()
    side = LiveSide(Session(transport.open))
    await side.start()
    await asyncio.gather(*side.ask(probes))
    seconds = time.perf_counter() - begun
    await side.close()
    await transport.close()
    return seconds


async def one_channel_each(config: Path, probes: list[Probe]) -> float:
    """Return the seconds where each file or command has a channel of its own, four at a time."""
    transport = SshTransport("target", config)
    await transport.connect()
    connection = transport._connections[-1]
    turn = asyncio.Semaphore(CHANNELS)

    async def one(command: str) -> None:
        async with turn:
            try:
                await connection.run(command, encoding=None)
            except asyncssh.ChannelOpenError:
                await connection.run(command, encoding=None)

    begun = time.perf_counter()
    await asyncio.gather(*(one(command) for command in commands(probes)))
    seconds = time.perf_counter() - begun
    await transport.close()
    return seconds


def commands(probes: Iterable[Probe]) -> Iterator[str]:
    """Yield one command for each tool and for each file pattern."""
    for probe in probes:
        if isinstance(probe, Tool):
            yield f"timeout {probe.limit:g} sh -c {shlex.quote(probe.script)}"
            continue
        for pattern in probe.patterns:
            bulk = isinstance(probe, Files)
            yield shell.read_files([pattern], 4096) if bulk else shell.list_entries([pattern])


BAD: dict[str, Tool] = {
    "hung": Tool("bad", "bad", "sleep 600", limit=3),
    "deaf to SIGTERM": Tool("bad", "bad", "trap '' TERM; while :; do sleep 9; done", limit=3),
    "gentle and deaf": Tool("bad", "bad", "trap '' TERM; exec sleep 20", limit=3, gentle=True),
    "endless": Tool("bad", "bad", "yes", limit=3),
    "endless on stderr": Tool("bad", "bad", "yes >&2", limit=3),
    "1 GB": Tool("bad", "bad", "head -c 1000000000 /dev/zero", limit=3),
    "1 GB in a line": Tool("bad", "bad", "head -c 1000000000 /dev/zero | tr '\\0' x", limit=3),
}


async def measure_bad_probes(sshd: Sshd) -> None:
    """Print when an audit's probes end with a bad one among them, and the memory they took."""
    print("\na bad probe among the quick ones      ends after   memory grown   others unharmed")
    probes = quick_probes()
    whole = await answered(sshd, probes)
    for name, bad in BAD.items():
        seconds, grown, evidence = await bad_round(sshd, [*probes, bad])
        spoiled = [k for k, e in evidence.items() if k in whole and _differs(e, whole[k])]
        kept = "yes" if not spoiled else f"NO: {', '.join(spoiled)}"
        ends = f"{seconds:6.2f} s (limit {bad.limit:g} + 1)"
        print(f"  {name:<34} {ends}  {grown / 1e6:6.1f} MB   {kept}")


def _differs(now: Evidence, before: Evidence) -> bool:
    return (now.problem is None) != (before.problem is None)


async def answered(sshd: Sshd, probes: list[Probe]) -> dict[str, Evidence]:
    """Return every probe's evidence, by key."""
    return (await bad_round(sshd, probes))[2]


async def bad_round(sshd: Sshd, probes: list[Probe]) -> tuple[float, int, dict[str, Evidence]]:
    """Return the seconds until all have answered, the most bytes held, and the evidence."""
    transport = SshTransport("target", sshd.config("root"))
    await transport.connect()
    side = LiveSide(Session(transport.open))
    await side.start()
    tracemalloc.start()
    begun = time.perf_counter()
    lists = await asyncio.gather(*side.ask(probes))
    seconds = time.perf_counter() - begun
    grown = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    await side.close()
    await transport.close()
    return seconds, grown, {e.key: e for answers in lists for e in answers}


if __name__ == "__main__":
    asyncio.run(main())
