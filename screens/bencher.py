"""Find engines, measure them and compare runs, onto the board; the engine is imported when used."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from gpudoctor.model.error import Refusal
from gpudoctor.screens.archive import made
from gpudoctor.screens.benched import Going, Shown
from gpudoctor.screens.board import Board

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpudoctor.bench.run import Progress
    from gpudoctor.hosts.target import Target
    from gpudoctor.model.audited import AuditResult
    from gpudoctor.model.bench import BenchRun, Comparison, Serving
    from gpudoctor.model.plan import Transaction

_MOST_KEPT = 12
# Of the demo's slowest answer, for each second of its simulated engine: a run can be watched.
_PACE_SHARE = 0.4


class Bencher:
    """What measures beside the screens; it writes the board and touches no widget."""

    def __init__(
        self,
        board: Board,
        make_target: "Callable[[], Target]",
        transactions: "Callable[[], Awaitable[list[Transaction]]]",
    ) -> None:
        """Take the board, how to make a target for each login, and who tells what was applied."""
        self._board = board
        self._make_target = make_target
        self._transactions = transactions
        self._runs: list[BenchRun] = []
        self._stood: dict[str, dict[str, bool]] = {}

    async def look(self) -> None:
        """Find the engines and the last run of this host. Raises UnknownHostKey."""
        bench = self._board.bench
        bench.looking = True
        self._board.touch()
        try:
            _, bench.problem = await made(self._look())
        finally:
            bench.looking = False
            self._board.touch()

    async def _look(self) -> None:
        result, servings = await self._engines()
        await self._show(result, servings[0] if len(servings) == 1 else None)

    async def _engines(self) -> "tuple[AuditResult, list[Serving]]":
        from gpudoctor.bench.measure import Wish, engines_of

        bench = self._board.bench
        try:
            result, servings = await engines_of(self._make_target, Wish())
        except Refusal:
            bench.engines = ()
            raise
        bench.engines, bench.problem = tuple(servings), ""
        return result, servings

    async def _engine(self, before: "BenchRun | None" = None) -> "tuple[AuditResult, Serving]":
        """Return the engine to measure: that of a run before, the only one, or the chosen one."""
        result, servings = await self._engines()
        bench = self._board.bench
        if before is not None:
            found = [one for one in servings if before.serving.same(one)]
            if not found:
                raise Refusal(f"{before.serving.place} does not serve {before.serving.model} now")
            return result, found[0]
        found = [one for one in servings if len(servings) == 1 or one.place == bench.place]
        if not found:
            raise Refusal(f"{len(servings)} engines serve there: choose one in 4 Benchmark", 1)
        return result, found[0]

    async def measure(self, going: Going) -> "BenchRun | None":
        """Measure once, keep the run and show it; `said` tells why not. Raises UnknownHostKey."""
        bench = self._board.bench
        bench.going, bench.said = going, ""
        self._board.touch()
        try:
            run, bench.said = await made(self._measured(going))
            return run
        finally:
            bench.going = None
            self._board.touch()

    async def _measured(self, going: Going) -> "BenchRun":
        from gpudoctor.bench.history import earlier, with_length
        from gpudoctor.bench.measure import Wish, measure_engine

        result, serving = await self._engine(going.before)
        going.phase = "looking at the host"
        self._board.touch()
        wish = Wish(full=going.full, transaction=going.transaction, paced=self.paced)
        known = await self._known(result)
        wish = with_length(wish, [going.before] if going.before else earlier(known, serving, wish))
        tell = partial(self._tell, going)
        run = await measure_engine(self._make_target, wish, tell, result, serving, going.stop)
        if not going.holds():
            raise Refusal("not measured: the change was taken back meanwhile", 1)
        with suppress(Refusal):  # without the right to read them, nothing was applied from here
            self._stood[run.id] = what_stands(await self._transactions())
        if going.before is not None:
            self._only_it(going.before, run)
        self._runs.insert(0, run)
        problem = await self._keep(run)
        await self._show(result, serving)
        if problem:
            raise Refusal(problem)
        return run

    def _only_it(self, before: "BenchRun", after: "BenchRun") -> None:
        """Raise a Refusal where more stands, or less, than the change that was measured."""
        was, now = self._stood.get(before.id), self._stood.get(after.id)
        if was is None or now is None:
            return
        if not now.get(after.transaction, True):
            raise Refusal("not measured: the change does not stand on the host", 1)
        others = {one for one in was.keys() | now.keys() if one != after.transaction}
        if any(was.get(one, False) is not now.get(one, False) for one in others):
            raise Refusal("not measured: something else was applied or taken back meanwhile", 1)

    def _tell(self, going: Going, progress: "Progress") -> None:
        going.take(progress)
        self._board.touch()

    @property
    def paced(self) -> float:
        """Return real seconds for each of a simulated engine; 0 but on the paced demo."""
        if not self._board.simulated:
            return 0.0
        pace: tuple[float, float] = getattr(self._make_target(), "pace", (0.0, 0.0))
        return pace[1] * _PACE_SHARE

    async def _keep(self, run: "BenchRun") -> str:
        """Keep a run in the store; return why not, or nothing. The demo's live in this session."""
        from gpudoctor.snapshots.benchmarks import keep_run

        if run.serving.simulated:
            return ""
        _, problem = await made(asyncio.to_thread(keep_run, run))
        return f"the run is not kept: {problem}" if problem else ""

    async def _known(self, result: "AuditResult") -> "list[BenchRun]":
        """Return the runs of this machine, newest first: this session's, then kept ones."""
        if result.simulated:
            return list(self._runs)
        kept = await asyncio.to_thread(_kept, result)
        ours = {run.id for run in self._runs}
        return [*self._runs, *(run for run in kept if run.id not in ours)]

    async def _show(self, result: "AuditResult", serving: "Serving | None") -> None:
        """Show the newest run of an engine, or of the host, against the one before it."""
        known = await self._known(result)
        same = [run for run in known if serving is not None and serving.same(run.serving)]
        if found := same or known:
            self._board.bench.shown = await asyncio.to_thread(_shown, found, result, serving)
            self._board.touch()

    async def fresh(self, but: str = "") -> "BenchRun | None":
        """Return a run that still says how it was before the transaction `but`, or before now.

        Raises Refusal where that cannot be told, and UnknownHostKey.
        """
        from gpudoctor.bench.history import fresh

        result, serving = await self._engine()
        told = await self._transactions()
        if but and not any(one.id == but and one.stands for one in told):
            raise Refusal("not measured: the change does not stand on the host", 1)
        known = await self._known(result)
        same = (run for run in known if self._unchanged(run, told, but))
        return fresh(same, serving, result.identity.boot_id, datetime.now(UTC))

    def _unchanged(self, run: "BenchRun", told: "Sequence[Transaction]", but: str) -> bool:
        """Return whether nothing was applied or undone since a run, but one transaction.

        What stood at a run of this session is known. For others the target's clock is believed.
        """
        others = [one for one in told if one.id != but]
        if run.id in self._stood:
            return self._stood[run.id] == what_stands(others)
        taken = datetime.fromisoformat(run.taken)
        early = all(one.stands and _began(one) < taken for one in others if not one.epoch_ended)
        return early and all(taken < _began(one) for one in told if one.id == but)

    async def compare(self, before: "BenchRun", after: "BenchRun") -> "Comparison":
        """Judge a change between two runs."""
        from gpudoctor.bench.history import earlier, judged
        from gpudoctor.bench.measure import Wish

        at = next((n for n, run in enumerate(self._runs) if run.id == before.id), None)
        older = [before] if at is None else self._runs[at:]
        runs = earlier(older, before.serving, Wish(streams=(1,), full=before.full)) or [before]
        told = await asyncio.to_thread(judged, runs, after, 1)
        assert told is not None
        return told


def what_stands(told: "Iterable[Transaction]") -> dict[str, bool]:
    """Return of each transaction of this boot whether it stands."""
    return {one.id: one.stands for one in told if not one.epoch_ended}


def _began(told: "Transaction") -> datetime:
    """Return when a transaction began by the target's clock; the far future where not told."""
    try:
        return datetime.fromisoformat(told.started)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)


def _kept(result: "AuditResult") -> "list[BenchRun]":
    from gpudoctor.snapshots.benchmarks import kept_runs

    who = result.identity
    return list(islice(kept_runs(who.machine_id, result.label, who.system_uuid), _MOST_KEPT))


def _shown(runs: "Sequence[BenchRun]", result: "AuditResult", serving: "Serving | None") -> Shown:
    """Return the first of the runs against those behind it; the ceiling is the engine's now."""
    from gpudoctor.bench.history import ceiling_of, earlier, judged
    from gpudoctor.bench.measure import Wish

    run = runs[0]
    streams = tuple(level.streams for level in run.levels)
    before = earlier(runs[1:], run.serving, Wish(streams=streams, full=run.full)) if streams else []
    now = serving if serving is not None and serving.same(run.serving) else run.serving
    ceiling = ceiling_of(result, replace(run, serving=now))
    return Shown(run, judged(before, run, streams[0]) if before else None, ceiling)
