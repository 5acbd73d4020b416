"""The demo host's engine: simulated, so that a benchmark and its verdict can be seen without a GPU.

No engine runs and nothing is sent. Times come from a seeded model: on the untouched demo host the
founding audit's own (95.21 ms a token, 10.34 tok/s over 128 tokens with the first), and from the
machine's state as it is now. What a setting changes is made up for the demo and kept small
(`tables/demo_engine.toml`); it is no evidence for any real host.
"""

import asyncio
import heapq
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from zlib import crc32

from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import SimulatedTarget
from gpudoctor.hosts.target import Target
from gpudoctor.model import Files
from gpudoctor.model.bench import Failure, Request, Serving
from gpudoctor.model.error import Refusal
from gpudoctor.tables.demo_engine import Condition, DemoEngine, demo_engine

Live = Callable[[float, int], None]
_LIVE_SECONDS = 0.25
_DEFAULT_TOKENS = 128
_PROMPT_TOKENS = 64
_LEAST_SECONDS = 1e-4
_WORDS = (
    "simulated text of the demo engine says that no model wrote these words while time passes here"
    " about rivers bridges clocks bread harbours and old maps with many stones under a quiet sky"
).split()


class SimulatedBeside:
    """A simulated client beside the demo's simulated engine; it waits only where it is `paced`.

    `path` says that it is simulated. Jobs of the same seed and bodies on the same state are alike.
    """

    path = "simulated"

    def __init__(
        self, machine: SimulatedMachine, serving: Serving, seed: int = 0, paced: float = 0.0
    ) -> None:
        """Take the machine and its engine; `paced` is real seconds for each simulated one.

        Raises Refusal for an engine that is not simulated.
        """
        if not serving.simulated:
            raise Refusal("only the demo host's engine is simulated", 1)
        self._machine = machine
        self._seed = seed
        self._paced = paced
        self._jobs = 0

    async def job(
        self,
        bodies: Sequence[Mapping[str, object]],
        streams: int,
        live: Live | None = None,
        stall_seconds: float = 30.0,
        request_seconds: float = 600.0,
    ) -> tuple[tuple[Request, ...], float]:
        """Return simulated requests, by number, and the simulated seconds that they took.

        The machine's state counts as it is when the job begins.
        """
        self._jobs += 1
        words = json.dumps([self._seed, self._jobs, list(bodies)], sort_keys=True, default=str)
        chance = random.Random(crc32(words.encode()))
        tpot = seconds_per_token(self._machine) * demo_engine().multiple(min(streams, len(bodies)))
        tpot *= chance.gauss(1.0, demo_engine().job_noise)
        found = _requests(bodies, max(1, streams), tpot, chance, request_seconds)
        wall = max((request.last for request in found), default=0.0)
        await self._pass(found, wall, live)
        return tuple(found), wall

    async def stop(self) -> None:
        """Do nothing: nothing runs."""

    async def _pass(self, requests: Sequence[Request], wall: float, live: Live | None) -> None:
        """Let the job's time pass, and tell four times a simulated second what came so far."""
        times = sorted(at for request in requests for at in request.times)
        start, at, pieces = asyncio.get_running_loop().time(), 0.0, 0
        step = wall if live is None else _LIVE_SECONDS
        while at < wall:
            at = min(at + step, wall)
            ahead = start + at * self._paced - asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, ahead) if self._paced else 0)
            while pieces < len(times) and times[pieces] <= at:
                pieces += 1
            if live is not None:
                live(at, pieces)


@asynccontextmanager
async def open_simulated(
    target: Target, serving: Serving, seed: int = 0, paced: float = 0.0
) -> AsyncIterator[SimulatedBeside]:
    """Yield a simulated client beside the demo's engine. Raises Refusal for any other target."""
    if not isinstance(target, SimulatedTarget):
        raise Refusal("only the demo host's engine is simulated", 1)
    yield SimulatedBeside(target.machine, serving, seed, paced)


def seconds_per_token(machine: SimulatedMachine) -> float:
    """Return the seconds that a token of one stream takes in the machine's state now."""
    engine = demo_engine()
    factor = 1.0
    for effect in engine.effects:
        factor *= 1 + effect.change * max(_share(machine, one) for one in effect.any)
    return engine.tpot * factor


def _share(machine: SimulatedMachine, condition: Condition) -> float:
    """Return for which share of the files that a condition names it holds."""
    answer = machine.answer(Files("demo-engine", (condition.path,)))
    read = [data for data in answer.files.values() if isinstance(data, bytes)]
    return sum(map(condition.holds, read)) / len(read) if read else 0.0


def _requests(
    bodies: Sequence[Mapping[str, object]],
    streams: int,
    tpot: float,
    chance: random.Random,
    limit: float,
) -> list[Request]:
    """Return one request a body; each stream takes the next one once its last has ended."""
    free = [0.0] * streams
    found = []
    for body in bodies:
        request = _request(body, heapq.heappop(free), tpot, chance, limit)
        heapq.heappush(free, request.last)
        found.append(request)
    return found


def _request(
    body: Mapping[str, object], began: float, tpot: float, chance: random.Random, limit: float
) -> Request:
    """Return one request that began so many seconds after the job did."""
    engine = demo_engine()
    each = tpot * chance.gauss(1.0, engine.request_noise)
    at = began + engine.ttft * each / engine.tpot
    times = [at]
    for _ in range(_tokens(body) - 1):
        at += max(_LEAST_SECONDS, each * chance.gauss(1.0, engine.token_noise))
        times.append(at)
    if at - began > limit:
        kept = tuple(one for one in times if one - began <= limit)
        return Request(began, kept, began + limit, failure=Failure("slow"))
    return Request(
        began,
        tuple(times),
        at,
        len(times),
        prompt_tokens=_PROMPT_TOKENS,
        cached=0,
        finish="length",
        text=_text(len(times), chance),
        server_ms=_of_server(engine, times, each),
    )


def _of_server(engine: DemoEngine, times: Sequence[float], each: float) -> float:
    """Return what the engine itself would tell of its time per token, in milliseconds."""
    return 1e3 * ((times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else each)


def _tokens(body: Mapping[str, object]) -> int:
    """Return the output length that a request forces."""
    for name in ("max_tokens", "n_predict"):
        value = body.get(name)
        if isinstance(value, int) and 1 <= value <= 100_000:
            return value
    return _DEFAULT_TOKENS


def _text(tokens: int, chance: random.Random) -> str:
    """Return words that say what they are."""
    return " ".join(["[simulated]", *chance.choices(_WORDS, k=max(0, tokens - 1))])
