"""One benchmark: warm-up until steady, then blocks at each number of streams, within a budget."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpudoctor.bench.ask import bodies
from gpudoctor.bench.figures import counted, quantile, tpot
from gpudoctor.bench.sentences import sentence
from gpudoctor.model.bench import Block, Level, Request, Serving
from gpudoctor.model.error import Refusal


class Client(Protocol):
    """What sends requests to the engine, from beside it."""

    async def job(
        self,
        bodies: Sequence[dict[str, object]],
        streams: int,
        live: Callable[[float, int], None] | None = None,
    ) -> tuple[tuple[Request, ...], float]:
        """Run these requests, so many at a time; return them and the seconds it took."""
        ...


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: times in seconds, `blocks` of each level, `hard` the limit of all."""

    blocks: int
    block: float
    request: float
    least_tokens: int
    most_tokens: int
    warm: float
    pause: float
    hard: float
    full: bool


QUICK = Size(4, 3.0, 1.2, 16, 256, 6.0, 0.0, 90.0, False)
FULL = Size(8, 3.0, 2.5, 32, 256, 20.0, 1.0, 900.0, True)
_WARM_REQUESTS, _STEADY = 3, 0.02
_MOST_AGAIN = 2
ENDED = "the operator ended it"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is; `rate` is pieces of text a second now, `seconds` since its start.

    `expected` is about how many seconds all of it takes, once the warm-up has shown that.
    """

    phase: str
    done: int
    of: int
    rate: float | None
    seconds: float
    expected: float | None = None


Tell = Callable[[Progress], None]
Busy = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run gave; `stopped` says why it ended before its blocks were done, if it did."""

    tokens: int
    levels: tuple[Level, ...]
    stopped: str = ""


class Run:
    """A run over one client; `measure` may be called once."""

    def __init__(
        self,
        client: Client,
        serving: Serving,
        size: Size,
        busy: Busy,
        tell: Tell,
        tokens: int = 0,
        mark: bool = False,
    ) -> None:
        """Take the client, what it measures, how much, and who tells of other users.

        `tokens` forces the output length of an earlier run; `mark` keeps blocks that others
        disturbed, marked as such, where a run is refused or repeated otherwise.
        """
        self._client = client
        self._serving = serving
        self._size = size
        self._busy = busy
        self._tell = tell
        self._tokens = tokens
        self._pace = 0.0
        self._mark = mark
        self._seed = 0
        self._blocks: dict[int, list[Block]] = {}
        self._begun = time.monotonic()
        self._expected: float | None = None
        self._phase, self._done, self._of = "warm-up", 0, 0
        self._last: tuple[float, int] = (0.0, 0)

    async def measure(self, streams: Sequence[int], stop: asyncio.Event | None = None) -> Measured:
        """Warm up and measure each level; what was measured before a failure is kept.

        `stop` ends the run at once, its requests too. Raises Refusal where nothing could be
        measured.
        """
        work = asyncio.ensure_future(self._levels(streams))
        word = asyncio.ensure_future((stop or asyncio.Event()).wait())
        try:
            await asyncio.wait({work, word}, return_when=asyncio.FIRST_COMPLETED)
            stopped = work.result() if work.done() else ENDED
        finally:
            work.cancel()
            word.cancel()
            await asyncio.gather(work, word, return_exceptions=True)
        levels = tuple(Level(number, tuple(b)) for number, b in self._blocks.items() if b)
        if not levels:
            raise Refusal(f"nothing was measured: {stopped}", 3)
        return Measured(self._tokens, levels, stopped)

    async def _levels(self, streams: Sequence[int]) -> str:
        """Measure each level; return why it ended early, if it did. Raises Refusal."""
        await self.prepare()
        spent = time.monotonic() - self._begun
        self._expected = spent + estimate(self._pace, len(streams), self._size, self._tokens)
        for number in streams:
            self._phase, self._done, self._of = _phase(number), 0, self._size.blocks
            if stopped := await self._level(number, self._blocks.setdefault(number, [])):
                return stopped
        return ""

    async def prepare(self) -> None:
        """Warm up, and choose the output length where none was given. Raises Refusal."""
        if (other := await self._busy()) and not self._mark:
            raise in_use(other)
        self._pace = await self._warm_up()
        self._tokens = self._tokens or _length(self._pace, self._size)

    @property
    def tokens(self) -> int:
        """Return the output length of each request."""
        return self._tokens

    @property
    def block_seconds(self) -> float:
        """Return about how long a block of one stream takes; once prepared."""
        return self._rounds(1) * self._pace * self._tokens

    def say(self, phase: str, done: int, of: int) -> None:
        """Tell from now on that this is measured."""
        self._phase, self._done, self._of = phase, done, of
        self._told(None)

    async def block(self, streams: int = 1) -> Block:
        """Measure one block; once prepared."""
        return await self._block(streams, self._rounds(streams))

    def _rounds(self, streams: int) -> int:
        if streams > 1:
            return 1
        return max(2, round(self._size.block / (self._pace * self._tokens)))

    async def _warm_up(self) -> float:
        """Return seconds per token once the last three requests agree within 2 %, or time is up."""
        begun = time.monotonic()
        paces: list[float] = []
        held = 0
        while True:
            request = (await self._job(1, 1, self._tokens or self._size.least_tokens))[0][0]
            held = held + 1 if _held_back(request) else 0
            if 0 < held < _WARM_REQUESTS:
                continue  # a proxy holds back each; once may be a client that waited for a CPU
            pace = tpot(request)
            if request.failure is not None or pace is None:
                raise Refusal(f"nothing was measured: {said(request, self._serving)}", 3)
            paces.append(pace)
            last = paces[-_WARM_REQUESTS:]
            steady = len(last) == _WARM_REQUESTS and max(last) <= (1 + _STEADY) * min(last)
            spent = time.monotonic() - begun
            enough = len(paces) >= _WARM_REQUESTS and spent >= min(3.0, self._size.warm)
            if (steady and enough) or (spent > self._size.warm and len(last) == _WARM_REQUESTS):
                return quantile(last, 0.5)

    async def _level(self, streams: int, blocks: list[Block]) -> str:
        """Add the blocks of one level; return why they are fewer than asked for, if so."""
        while len(blocks) < self._size.blocks:
            begun = time.monotonic()
            block = await self.block(streams)
            if block.requests and all(r.failure for r in block.requests):
                return said(block.requests[0], self._serving)
            blocks.append(block)
            self._done = len(blocks)
            took = time.monotonic() - begun
            if time.monotonic() - self._begun + took > self._size.hard:
                if len(blocks) < self._size.blocks:
                    return f"its time of {self._size.hard:g} s was over"
                break
            await asyncio.sleep(self._size.pause)
        return ""

    async def _block(self, streams: int, rounds: int) -> Block:
        """Measure one block, again where somebody else used the engine meanwhile."""
        for attempt in range(_MOST_AGAIN + 1):
            requests, seconds = await self._job(streams * rounds, streams, self._tokens)
            other = await self._busy()
            if not other or self._mark or attempt == _MOST_AGAIN:
                break
        return Block(requests, streams, seconds, other)

    async def _job(
        self, count: int, streams: int, tokens: int
    ) -> tuple[tuple[Request, ...], float]:
        self._seed += 1
        self._last = (0.0, 0)
        self._told(None)
        asked = bodies(self._serving, count, tokens, self._seed)
        return await self._client.job(asked, streams, self._live)

    def _live(self, at: float, pieces: int) -> None:
        before, had = self._last
        self._last = (at, pieces)
        self._told((pieces - had) / (at - before) if at > before else None)

    def _told(self, rate: float | None) -> None:
        seconds = time.monotonic() - self._begun
        self._tell(Progress(self._phase, self._done, self._of, rate, seconds, self._expected))


def in_use(others: str) -> Refusal:
    """Return the refusal to measure beside others, who are named in words."""
    way = "`gpudoctor bench --on-busy mark` measures all the same"
    return Refusal(f"not measured: {others} ({way})", 1)


def estimate(pace: float, levels: int, size: Size, tokens: int = 0) -> float:
    """Return about how many seconds the blocks take at `pace` seconds per token of one stream.

    Of `levels` numbers of streams the first is one stream; how much the others slow each other
    down is not known before.
    """
    request = pace * (tokens or _length(pace, size))
    block = max(size.block, 2 * request) + size.pause
    return min(size.blocks * (block + (levels - 1) * (request + size.pause)), size.hard)


def _length(pace: float, size: Size) -> int:
    """Return how many tokens a request asks for."""
    return round(min(max(size.request / pace, size.least_tokens), size.most_tokens))


def said(request: Request, serving: Serving) -> str:
    """Return in words why a request gave nothing."""
    failure = request.failure
    if failure is None:
        return f"the engine gave {counted(request)} tokens, too few to measure"
    return sentence(failure, serving)


def _held_back(request: Request) -> bool:
    return request.failure is not None and request.failure.kind == "buffered"


def _phase(streams: int) -> str:
    return "1 stream" if streams == 1 else f"{streams} streams"
