"""The app and the benchmark: a run at a time, nothing beside it, and what a change did."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import on
from textual.worker import Worker, WorkerCancelled, WorkerFailed

from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import State
from gpudoctor.screens.applying import Applying
from gpudoctor.screens.benched import Going, Weighed
from gpudoctor.screens.board import serves
from gpudoctor.screens.follow import named
from gpudoctor.screens.messages import BenchAsked, ConfirmAsked
from gpudoctor.screens.storytelling import Storytelling

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gpudoctor.hosts.target import Target
    from gpudoctor.model.bench import BenchRun
    from gpudoctor.model.plan import Plan
    from gpudoctor.screens.bencher import Bencher

_END_SECONDS = 4.0
_LOOK_SECONDS = 0.1
# What a run takes beside its blocks: finding the engine, looking at the host before and after.
_AROUND_SECONDS = 5.0
_NOTHING_BEFORE = (
    "there is nothing to compare with: in the hour before this change, none of this engine's runs "
    "was taken with the host as it was then. To know: u undoes it, 4 measures, then apply it again"
)


class Measuring(Storytelling):
    """An app that measures the engine, by itself and around a change."""

    def __init__(self, make_target: "Callable[[], Target]", read_only: bool = False) -> None:
        """Take how to make the target, and whether writes are refused."""
        super().__init__(make_target, read_only)
        self._measures: Bencher | None = None
        self._run: Worker[BenchRun | None] | None = None
        self._looking: Worker[None] | None = None
        self._transacted: set[str] = set()
        self._befores: dict[str, BenchRun] = {}

    @property
    def _bencher(self) -> "Bencher":
        """Return what measures, made when first used."""
        if self._measures is None:
            from gpudoctor.screens.bencher import Bencher

            told = self._transactor.transactions
            self._measures = Bencher(self.board, self._make_target, told)
        return self._measures

    @on(BenchAsked)
    async def asked_of_bench(self, event: BenchAsked) -> None:
        """Do what a screen asks for."""
        match event.wish:
            case "look":
                self._look_for_engines()
            case "quick":
                self._measure_once()
            case "full":
                self._in_turn(self._full_asked)
            case "end":
                self._end_asked()
            case "weigh":
                self._weigh_asked()

    async def action_measure(self) -> None:
        """Go to the benchmark and measure."""
        await self._to_bench()
        self._measure_once()

    async def _to_bench(self) -> None:
        if self.current_mode != "bench":
            await self.switch_mode("bench")

    # the engine

    def _look_for_engines(self) -> None:
        bench = self.board.bench
        if bench.going is None and not bench.looking and not self._leaving:
            bench.looking = True
            self._looking = self.run_worker(self._look, group="bench", exit_on_error=False)

    async def _look(self) -> None:
        try:
            await self._audit_over()
            await self._with_known_key(self._bencher.look)
        finally:
            self.board.bench.looking = False
            self.board.touch()

    # one run

    def _unmeasurable(self) -> str:
        """Return why nothing can be measured now, or nothing."""
        board = self.board
        if board.bench.going is not None:
            return "a benchmark runs already"
        if board.running:
            return "an audit reads the host: both at once would disturb each other"
        if board.applying is not None and board.applying.running:
            return "values are being written there: t shows it"
        if board.page.reading:
            return "the page before a reboot reads the host: wait until it is there"
        if board.capturing:
            return "the values to plan with are read: wait until they are there"
        return ""

    def _measure_once(self) -> None:
        if sentence := self._unmeasurable() or self._outlasts(full=False):
            self.notify(sentence, severity="warning", markup=False)
        else:
            self._begin_run(Going(full=False, holds=self._as_it_stands()))

    async def _full_asked(self) -> None:
        """Tell how long a full run takes, ask, and measure."""
        from gpudoctor.screens.bench_text import full_question

        if sentence := self._unmeasurable() or self._outlasts(full=True):
            return self.notify(sentence, severity="warning", markup=False)
        if not await self._agree("Full run?", full_question(self.board.bench), "Measure"):
            return
        if sentence := self._unmeasurable() or self._outlasts(full=True):
            return self.notify(sentence, severity="warning", markup=False)
        self._begin_run(Going(full=True, holds=self._as_it_stands()))

    def _outlasts(self, full: bool) -> str:
        """Return that what waits to be kept would be taken back amid a run, or nothing."""
        applying, needed = self.board.applying, self.expected(full)
        left = applying.left if applying is not None and applying.waits else None
        if left is None or left > needed:
            return ""
        return (
            f"measuring takes about {needed:.0f} s, and the target takes the last change back "
            "before that: t shows it, to keep it or to undo it first"
        )

    def _as_it_stands(self) -> "Callable[[], bool]":
        """Return what tells whether the change that waits now, if one does, still stands."""
        applying = self.board.applying
        if applying is None or not applying.waits:
            return lambda: True
        return partial(_stands, applying)

    def _begin_run(self, going: Going) -> "Worker[BenchRun | None]":
        self.board.bench.going = going  # at once: nothing else begins
        self.board.touch()
        work = partial(self._measure, going)
        self._run = self.run_worker(work, group="bench", exit_on_error=False)
        return self._run

    async def _measure(self, going: Going) -> "BenchRun | None":
        runs: list[BenchRun | None] = []

        async def work() -> None:
            runs.append(await self._bencher.measure(going))

        try:
            await _ended(self._looking)
            await self._with_known_key(work)
        finally:
            if self.board.bench.going is going:
                self.board.bench.going = None
                self.board.touch()
            if self.board.chosen and self.board.plan is None and not self._leaving:
                self._replan()  # it waited for the run
        return runs[-1] if runs else None

    def _end_asked(self) -> None:
        """End the run under way: what its blocks gave is kept."""
        going, bench = self.board.bench.going, self.board.bench
        if going is None or self._run is None:
            return
        if going.progress is not None:
            going.stop.set()
            going.phase = "ending"
        else:
            self._run.cancel()
            bench.said = "ended before anything was measured"
        self.board.touch()

    async def _end_run(self, why: str) -> None:
        """End the run under way for something that comes first, and wait until nothing is left."""
        going, worker = self.board.bench.going, self._run
        if going is not None and worker is not None and not worker.is_finished:
            worker.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await _ended(worker)
            self.board.bench.said = why
            self.board.touch()

    # nothing beside it

    def _forbidden(self) -> str:
        """Return why nothing may be written now, or nothing."""
        if self.board.bench.going is not None:
            return "a benchmark runs, and a change would disturb it: 4 shows it"
        return super()._forbidden()

    async def action_reaudit(self) -> None:
        """Read the whole host anew, unless a benchmark runs."""
        if self.board.bench.going is not None:
            words = "a benchmark runs, and an audit would disturb it: 4 shows it"
            self.notify(words, severity="warning", markup=False)
        else:
            await super().action_reaudit()

    async def _before_reboot(self) -> None:
        if self.board.bench.going is not None:
            self.board.page.problem = "a benchmark runs: r reads this once it has ended"
            self.board.touch()
        else:
            await super()._before_reboot()

    def _start(self, applying: Applying, work: "Callable[[], Awaitable[None]]") -> None:
        """Transact once no benchmark runs; what was measured before waits for its other half."""
        self._transacted.add(applying.id)
        super()._start(applying, partial(self._quietly, work))
        if before := self._befores.pop(applying.id, None):
            self._weigh(applying, before)

    def _start_beside(self, work: "Callable[[], Awaitable[None]]") -> None:
        super()._start_beside(partial(self._quietly, work))

    async def _quietly(self, work: "Callable[[], Awaitable[None]]") -> None:
        await self._end_run("the run was ended: something is written or taken back")
        await work()

    async def _transact(self, applying: Applying, work: "Callable[[], Awaitable[None]]") -> None:
        try:
            await super()._transact(applying, work)
        finally:
            self._transacted.discard(applying.id)

    @on(ConfirmAsked)
    def measured_anew(self) -> None:
        """Let the word to keep go first: the audit after it would disturb what is measured."""
        going = self.board.bench.going
        if going is not None and self._run is not None:
            going.again = True
            self.board.bench.said = "the run was ended: the change is kept, and read once more"
            self._run.cancel()

    # before and after a change

    def _also(self, plan: "Plan") -> str:
        """Return the third answer to whether to apply: to measure too, where an engine serves."""
        return "Measure too" if plan.steps and serves(self.board) else ""

    def _also_words(self) -> str:
        from gpudoctor.bench.verdict import QUICK_MARGIN
        from gpudoctor.screens.bench_text import length

        each = "seconds" if self.board.simulated else length(self.board.bench, False)
        return (
            f"measures decode before and after it ({each} each; tells changes beyond "
            f"{QUICK_MARGIN:.0%})"
        )

    async def _measured_before(self, plan: "Plan") -> bool:
        """Take the run before a plan, unless a fresh one is there; return whether there is one."""
        found: list[BenchRun | None] = []

        async def fresh() -> None:
            found.append(await self._bencher.fresh())

        try:
            if not await self._with_known_key(fresh):
                return False
            run = found[-1] or await self._run_before()
        except Exception as error:  # no traceback ever reaches an operator
            self.board.bench.said = _sentence(error)
            run = None
        said = self.board.bench.said or "the run before it was ended"
        why = said if run is None else "" if found[-1] else _cut_short(run)
        if run is None or why:
            self.notify(f"nothing was applied: {why}", severity="warning", markup=False)
            return False
        self._befores[plan.id] = run
        return True

    async def _run_before(self) -> "BenchRun | None":
        await self._audit_over()
        if sentence := self._unmeasurable():
            raise Refusal(sentence)
        await self._to_bench()
        going = Going(full=False, purpose="before the change, which follows")
        return await _result(self._begin_run(going))

    def _weigh_asked(self) -> None:
        """Measure what the transaction on the board did, where there is a run before it."""
        applying = self.board.applying
        if applying is None or not _stands(applying):
            self.notify("nothing stands here that could be measured", markup=False)
        elif sentence := self._unmeasurable():
            self.notify(sentence, severity="warning", markup=False)
        else:
            self._weigh(applying, None)

    def _weigh(self, applying: Applying, before: "BenchRun | None") -> None:
        known = self.board.bench.weighed.get(applying.id)
        if known is None or not known.busy:
            made = self.board.bench.weighed[applying.id] = Weighed(before=before)
            work = partial(self._weighing, applying, made)
            _: Worker[None] = self.run_worker(work, group="weigh", exit_on_error=False)

    async def _weighing(self, applying: Applying, weighed: Weighed) -> None:
        try:
            await self._with_known_key(partial(self._weighed, applying, weighed))
        except Exception as error:  # no traceback ever reaches an operator
            weighed.said = _sentence(error)
        finally:
            weighed.busy, weighed.going = False, None
            self.board.touch()

    async def _weighed(self, applying: Applying, weighed: Weighed) -> None:
        """Measure once the change stands and is read, and compare. Raises Refusal."""
        await self._settled(applying)
        if weighed.before is None:
            weighed.said = "looking for a run from before it …"
            self.board.touch()
            weighed.before = await self._bencher.fresh(but=applying.id)
        if weighed.before is None:
            raise Refusal(_NOTHING_BEFORE)
        weighed.after = await self._run_after(applying, weighed)
        weighed.said = "comparing …"
        weighed.told = await self._bencher.compare(weighed.before, weighed.after)
        weighed.said = ""

    async def _run_after(self, applying: Applying, weighed: Weighed) -> "BenchRun":
        """Return the run after a change, begun anew where the word to keep came in between."""
        assert weighed.before is not None
        while True:
            await self._settled(applying)
            if not _stands(applying):
                raise Refusal("not measured: the change does not stand")
            weighed.said = self._too_long(applying, weighed.before.full)
            self.board.touch()
            if weighed.said:
                await _until(lambda: not applying.waits)
                continue
            if sentence := self._unmeasurable():
                raise Refusal(f"not measured: {sentence}")
            holds = partial(_stands, applying)
            purpose, full = "after the change", weighed.before.full
            going = Going(full, purpose, applying.id, weighed.before, holds)
            weighed.going = going
            run = await _result(self._begin_run(going))
            weighed.going = None
            if run is not None:
                return run
            if not going.again:
                raise Refusal(self.board.bench.said or "not measured: the run was ended")

    async def _settled(self, applying: Applying) -> None:
        """Wait until a change waits for a word, or is over and read anew."""
        await _until(
            lambda: (
                (applying.waits and not applying.confirmed.is_set())
                or applying.id not in self._transacted
            )
        )
        await self._audit_over()
        await _until(lambda: not self.board.capturing)

    def _too_long(self, applying: Applying, full: bool) -> str:
        """Return that the target would take it back before it is measured, or nothing."""
        left = applying.left if applying.waits else None
        needed = self.expected(full)
        if left is None or left > needed:
            return ""
        return (
            f"measuring takes about {needed:.0f} s, and the target takes it back before that: c "
            "keeps it first, and it is measured then; u takes it back after that too"
        )

    def expected(self, full: bool = False) -> float:
        """Return about how many seconds a run takes, with all around it."""
        from gpudoctor.bench.run import FULL, QUICK

        expected = self.board.bench.expected(full) or (FULL if full else QUICK).hard
        return (expected * self._bencher.paced if self.board.simulated else expected) + (
            0.0 if self.board.simulated else _AROUND_SECONDS
        )


def _cut_short(run: "BenchRun") -> str:
    """Return why a run just taken is no base to judge a change by, or nothing."""
    from gpudoctor.bench.history import fits
    from gpudoctor.bench.run import ENDED

    if run.stopped == ENDED:
        return "the run before it was ended"
    return "" if fits(run, run.serving, (1,)) else run.stopped or "too little of it was undisturbed"


def _stands(applying: Applying) -> bool:
    """Return whether a change is on the target, and nobody takes it back."""
    stands = applying.state in {State.APPLIED, State.CONFIRMED}
    return stands and not (applying.asked and applying.busy) and not applying.lost


async def _until(condition: "Callable[[], bool]") -> None:
    """Wait until the board says so."""
    while True:
        if condition():
            return
        await asyncio.sleep(_LOOK_SECONDS)


async def _ended(worker: "Worker[Any] | None") -> None:
    """Wait for a worker's end, however it ends; to cancel this wait does not cancel the worker."""
    if worker is not None:
        await _until(lambda: worker.is_finished)


async def _result(worker: "Worker[BenchRun | None]") -> "BenchRun | None":
    """Return what a run gave; None where it was ended or could not be begun."""
    try:
        return await worker.wait()
    except (WorkerCancelled, WorkerFailed):
        return None


def _sentence(error: Exception) -> str:
    if isinstance(error, Refusal):
        return error.sentence
    return f"a fault of gpudoctor's own: {named(error)}"
