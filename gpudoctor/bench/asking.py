"""Single questions to an engine from beside it: what it is, and how busy it is while measured."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gpudoctor.bench.sent import Sent
from gpudoctor.bench.way import near, on_loopback
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.bench import Failure, Serving

GET_SECONDS, POST_SECONDS = 5.0, 60.0
# What may pass between a question's own limit and its answer: a slow line, a starved host.
_GRACE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: `server` is its Server header; or the `failure` that took its place."""

    status: int = 0
    body: str = ""
    server: str = ""
    failure: Failure | None = None

    @property
    def json(self) -> Mapping[str, object]:
        """Return the body's object; empty where it is none."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def good(self) -> bool:
        """Return whether it answered with 200."""
        return self.failure is None and self.status == 200


class Asker:
    """Asks one engine; questions wait for each other. `url` is its address as seen from there."""

    def __init__(self, sent: Sent, url: str, key: str = "", local: bool = False) -> None:
        """Take a running `asker.py`, the address, the key, and whether it is on loopback there."""
        self.url = url
        self._sent = sent
        self._key = key
        self._local = local
        self._count = 0
        self._lock = asyncio.Lock()

    def secure(self, on: bool = True) -> None:
        """Ask by https from now on, or by http again."""
        self.url = ("https:" if on else "http:") + self.url.partition(":")[2]

    async def get(self, path: str, seconds: float = GET_SECONDS) -> Answer:
        """Return what a path answers; never raises for the engine or the line."""
        return await self._ask({"path": path, "seconds": seconds})

    async def post(
        self, path: str, body: Mapping[str, object], seconds: float = POST_SECONDS
    ) -> Answer:
        """Return what a path answers to a JSON body; never raises for the engine or the line."""
        return await self._ask({"path": path, "seconds": seconds, "body": body})

    async def _ask(self, question: dict[str, object]) -> Answer:
        async with self._lock:
            self._count += 1
            question |= {
                "ask": self._count,
                "url": self.url,
                "headers": headers(self._key),
                "unverified": self._local,
            }
            seconds = question["seconds"]
            assert isinstance(seconds, float | int)
            try:
                async with asyncio.timeout(seconds * 2 + _GRACE_SECONDS):
                    await self._sent.tell(question)
                    return self._answer(await self._heard())
            except TimeoutError:
                return Answer(failure=Failure("stalled"))
            except OSError as error:
                return Answer(failure=Failure("lost", 0, str(error)))

    async def _heard(self) -> Mapping[str, object]:
        """Return the answer to the last question; those to earlier ones came too late."""
        while (row := await self._sent.hear()) is not None:
            if row.get("answer") == self._count:
                return row
        raise ConnectionError(self._sent.complaint())

    def _answer(self, row: Mapping[str, object]) -> Answer:
        status = row.get("status")
        body, server, kind, said = (
            blanked(str(row.get(name) or ""), self._key)
            for name in ("body", "server", "kind", "said")
        )
        failure = Failure(kind, 0, said) if kind else None
        return Answer(status if isinstance(status, int) else 0, body, server, failure)


def headers(key: str) -> dict[str, str]:
    """Return the headers of a request, with the key where there is one."""
    kept = {"Content-Type": "application/json", "Accept": "*/*", "User-Agent": "gpudoctor"}
    return kept | {"Authorization": f"Bearer {key}"} if key else kept


def blanked(text: str, key: str) -> str:
    """Return text without the key: an engine may repeat it in a complaint."""
    return text.replace(key, "***") if key else text


@asynccontextmanager
async def asking(target: LiveTarget, serving: Serving, key: str = "") -> AsyncIterator[Asker]:
    """Yield an asker beside an engine. Raises Refusal where there is no way, or HostUnreachable."""
    async with near(target, serving, "asker.py") as place:
        yield Asker(place.sent, place.url, key, on_loopback(serving.url))
