"""What the board knows of benchmarks: engines, the run under way, the last one, and the loop's."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoctor.bench.run import Progress
    from gpudoctor.model.bench import BenchRun, Comparison, Serving
    from gpudoctor.model.ceiling import Ceiling

_MOST_RATES = 400


@dataclass(slots=True)
class Going:
    """A run under way; `purpose` says in our own words what it is for.

    `before` is what it will be compared with, of a change made by `transaction`. What is measured
    once `holds` no longer does is dropped. `again`: it is ended, to be begun anew a little later.
    """

    full: bool
    purpose: str = ""
    transaction: str = ""
    before: "BenchRun | None" = None
    holds: Callable[[], bool] = lambda: True
    phase: str = "looking for the engine"
    progress: "Progress | None" = None
    rates: "deque[float | None]" = field(default_factory=lambda: deque(maxlen=_MOST_RATES))
    began: float = field(default_factory=time.monotonic)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    again: bool = False
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=4))

    def take(self, progress: "Progress") -> None:
        """Note where it is; the rate between two requests is a gap."""
        self.progress, self.phase = progress, progress.phase
        if progress.rate is None:
            self._recent.clear()
            if self.rates and self.rates[-1] is not None:
                self.rates.append(None)
        else:  # four a second: by itself one would show how many tokens happen to fall into it
            self._recent.append(progress.rate)
            self.rates.append(sum(self._recent) / len(self._recent))
        if not self.holds():
            self.stop.set()

    @property
    def rate(self) -> float | None:
        """Return pieces of text a second over about the last second, None before the first."""
        return next((rate for rate in reversed(self.rates) if rate is not None), None)


@dataclass(frozen=True, slots=True)
class Shown:
    """A kept run, what it says against the one before, and where one stream could be."""

    run: "BenchRun"
    told: "Comparison | None"
    ceiling: "Ceiling | None"


@dataclass(slots=True)
class Weighed:
    """What a transaction did to decode; `said` is why that is not known, or not yet."""

    busy: bool = True
    going: Going | None = None
    before: "BenchRun | None" = None
    after: "BenchRun | None" = None
    told: "Comparison | None" = None
    said: str = ""


@dataclass(slots=True)
class Bench:
    """Benchmarks on this host: `engines` is None until looked for, `place` the chosen one's.

    `problem` says why there is none to measure, `said` why the last run gave nothing. `weighed`
    is by transaction.
    """

    engines: "tuple[Serving, ...] | None" = None
    problem: str = ""
    looking: bool = False
    place: str = ""
    shown: Shown | None = None
    going: Going | None = None
    said: str = ""
    weighed: dict[str, Weighed] = field(default_factory=dict)

    @property
    def pace(self) -> float | None:
        """Return the seconds that a token took when last measured, None where that is not known."""
        from gpudoctor.bench.figures import figures

        level = self.shown.run.level(1) if self.shown is not None else None
        return figures(level).typical if level is not None else None

    def expected(self, full: bool) -> float | None:
        """Return about how many seconds a run takes, None where no earlier one tells the pace."""
        from gpudoctor.bench.run import FULL, QUICK, estimate

        pace, size = self.pace, FULL if full else QUICK
        if pace is None or self.shown is None:
            return None
        tokens = self.shown.run.tokens_asked if self.shown.run.full == full else 0
        return size.warm / 2 + estimate(pace, 2, size, tokens)
