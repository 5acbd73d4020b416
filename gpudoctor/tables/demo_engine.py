"""The demo host's simulated engine: its speed, and what changes it (`demo_engine.toml`)."""

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Condition:
    """A file, or a pattern of files, that `equals` a text, `differs` from it, or lies `below`."""

    path: str
    equals: str | None = None
    differs: str | None = None
    below: int | None = None

    def holds(self, data: bytes) -> bool:
        """Return whether a file's bytes fulfil it."""
        if self.below is not None:
            return len(data) == 4 and int.from_bytes(data, "little", signed=True) < self.below
        text = data.decode("utf-8", "replace").strip()
        return text == self.equals if self.differs is None else text != self.differs


@dataclass(frozen=True, slots=True)
class Effect:
    """The share by which a token takes longer while one of the conditions holds."""

    name: str
    change: float
    any: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class DemoEngine:
    """Seconds per token and to the first one, standard deviations as shares, load and effects."""

    tpot: float
    ttft: float
    request_noise: float
    job_noise: float
    token_noise: float
    load: tuple[tuple[int, float], ...]
    effects: tuple[Effect, ...]

    def multiple(self, streams: int) -> float:
        """Return by how much a token takes longer with so many streams."""
        for (few, low), (many, high) in pairwise(self.load):
            if streams <= many:
                share = math.log(max(streams, few) / few) / math.log(many / few)
                return low + (high - low) * share
        return self.load[-1][1] * streams / self.load[-1][0]


@cache
def demo_engine() -> DemoEngine:
    """Return the table."""
    text = files("gpudoctor.tables").joinpath("demo_engine.toml").read_text("utf-8")
    table = tomllib.loads(text)
    effects = tuple(
        Effect(row["name"], row["change"], tuple(Condition(**one) for one in row["any"]))
        for row in table["effect"]
    )
    return DemoEngine(
        table["tpot_ms"] / 1e3,
        table["ttft_ms"] / 1e3,
        table["request_noise"],
        table["job_noise"],
        table["token_noise"],
        tuple((row["streams"], row["multiple"]) for row in table["load"]),
        effects,
    )
