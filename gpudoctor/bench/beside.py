"""The client beside the engine: jobs of requests go to it, what each request told comes back."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from gpudoctor.bench.asking import headers
from gpudoctor.bench.rows import request_of
from gpudoctor.bench.way import Near, near, unverified
from gpudoctor.hosts.target import LiveTarget, Target
from gpudoctor.model.bench import Failure, Request, Serving
from gpudoctor.model.error import Refusal

Live = Callable[[float, int], None]
# The client says something four times a second: a line so quiet is lost.
_QUIET_SECONDS = 20.0


class Beside:
    """A client process beside an engine; `path` says how it was reached."""

    def __init__(self, target: LiveTarget, serving: Serving, key: str) -> None:
        """Take a connected target; the key is kept in memory, and sent on the client's input."""
        self._target = target
        self._serving = serving
        self._key = key
        self._stack = AsyncExitStack()
        self._near: Near | None = None
        self._jobs = 0
        self.path = ""

    async def start(self) -> Near:
        """Start the client where it does not run. Raises Refusal or HostUnreachable."""
        if self._near is None:
            way = near(self._target, self._serving, "client.py")
            self._near = await self._stack.enter_async_context(way)
            self.path = self._near.path
        return self._near

    async def job(
        self,
        bodies: Sequence[Mapping[str, object]],
        streams: int,
        live: Live | None = None,
        stall_seconds: float = 30.0,
        request_seconds: float = 600.0,
    ) -> tuple[tuple[Request, ...], float]:
        """Send requests, `streams` at a time; return what each told, by number, and wall seconds.

        `live` gets seconds since the start and the pieces of all streams so far. A stream ends with
        its first failure: requests that were never sent are not in the answer. A lost line is a
        failure of the last request. Cancelled, it leaves nothing running.
        """
        place = await self.start()
        rows: dict[int, Request] = {}
        wall = 0.0
        most = request_seconds * math.ceil(len(bodies) / max(1, streams)) + stall_seconds
        lost = ""
        try:
            async with asyncio.timeout(most):
                await place.sent.tell(
                    self._job(place, bodies, streams, stall_seconds, request_seconds)
                )
                wall = await self._follow(place, rows, live)
        except TimeoutError:
            lost = "slow"
        except OSError:
            lost = "lost"
        except BaseException:
            await self.stop()
            raise
        if lost:
            await self.stop()
            rows[max(rows, default=-1) + 1] = Request(failure=Failure(lost))
        return tuple(rows[number] for number in sorted(rows)), wall

    def _job(
        self,
        place: Near,
        bodies: Sequence[Mapping[str, object]],
        streams: int,
        stall_seconds: float,
        request_seconds: float,
    ) -> dict[str, object]:
        self._jobs += 1
        return {
            "job": self._jobs,
            "url": place.url,
            "path": self._serving.path,
            "headers": headers(self._key),
            "bodies": list(bodies),
            "streams": streams,
            "stall_seconds": stall_seconds,
            "request_seconds": request_seconds,
            "unverified": unverified(self._serving.url),
        }

    async def _follow(self, place: Near, rows: dict[int, Request], live: Live | None) -> float:
        """Keep rows as they come, until the job's end; return its wall seconds. Raises OSError."""
        while True:
            try:
                async with asyncio.timeout(_QUIET_SECONDS):
                    row = await place.sent.hear()
            except TimeoutError:
                raise ConnectionError("the client is silent") from None
            if row is None:
                raise ConnectionError("the client has ended")
            number, at, pieces = row.get("request"), row.get("at"), row.get("pieces")
            if isinstance(number, int) and 0 <= number < 1_000_000:
                rows[number] = request_of(row, self._key)
            elif live and isinstance(at, int | float) and isinstance(pieces, int):
                live(float(at), pieces)
            elif row.get("end") == self._jobs:
                wall = row.get("wall")
                return float(wall) if isinstance(wall, int | float) else 0.0

    async def stop(self) -> None:
        """End the client, and so every stream of it; the next job starts another."""
        self._near = None
        await asyncio.shield(self._stack.aclose())
        self._stack = AsyncExitStack()


@asynccontextmanager
async def open_beside(target: Target, serving: Serving, key: str = "") -> AsyncIterator[Beside]:
    """Yield a client beside an engine; leaving ends it. The target stays connected.

    Raises Refusal where there is no way to run one, or HostUnreachable.
    """
    if not isinstance(target, LiveTarget):
        raise Refusal("only a live host's engine can be measured", 1)
    await target.connect()
    beside = Beside(target, serving, key)
    try:
        await beside.start()
        yield beside
    finally:
        with contextlib.suppress(OSError):
            await beside.stop()
