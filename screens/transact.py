"""Follow transactions onto the board: apply, wait, confirm, take back, and list what is there."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from gpudoctor.model.error import INCOMPLETE, Refusal, UnknownHostKey
from gpudoctor.model.plan import Move, State, Transaction
from gpudoctor.screens.applying import Applying
from gpudoctor.screens.board import Board, History
from gpudoctor.screens.follow import named

if TYPE_CHECKING:
    from gpudoctor.hosts.target import Target

# The demo's machine writes in no time: a share of its pace for each line lets its steps be seen.
_PACE_SHARE = 0.1
_MOVING = frozenset({State.APPLYING, State.UNDOING})


class Transactor:
    """What changes the target; every method raises UnknownHostKey: the operator must decide."""

    def __init__(self, board: Board, make_target: "Callable[[], Target]") -> None:
        """Take the board, and how to make a target for each login."""
        self._board = board
        self._make_target = make_target

    async def apply(self, applying: Applying) -> None:
        """Apply the plan; where it has a timer, wait for the operator's word or the timer."""
        from gpudoctor.loop import apply_between_snapshots

        if applying.state is not State.PLANNED:  # it runs there already: the line was lost
            return await self.wait(applying)
        plan, result = applying.plan, self._board.result
        assert plan is not None and result is not None
        applying.begin()
        self._board.plans[plan.id] = plan
        word = applying.confirmed
        run = apply_between_snapshots(self._make_target, plan, result, word)
        applying.hears = True
        await self._follow(applying, run)
        if word.is_set() and applying.cut_short:  # the word did not get through: how does it end?
            await self.wait(applying, applying.refused)

    async def undo(self, applying: Applying) -> None:
        """Take a transaction back, from its beginning or where an undo stopped."""
        from gpudoctor.transaction import undo

        applying.begin(undoing=True)
        await self._follow(applying, undo(self._make_target(), applying.id))

    async def wait(self, applying: Applying, why: str = "") -> None:
        """Follow a transaction that waits for a word, once the run that applied it is lost."""
        from gpudoctor.transaction import watch

        applying.begin()
        applying.refused = why
        await self._follow(applying, watch(self._make_target(), applying.id))

    async def take_back(self, applying: Applying) -> None:
        """Take back what waits for a word; the run that waits sees it end in the journal."""
        from gpudoctor.transaction import undo

        applying.asked, begun = True, False

        async def back() -> None:
            nonlocal begun
            async with aclosing(undo(self._make_target(), applying.id)) as run:
                async for _ in run:
                    begun = True

        problem = "nobody took it back"
        try:
            problem = applying.refused = await self._told(back())
        finally:
            applying.asked = begun or not problem
            self._board.touch()

    async def confirm(self, applying: Applying) -> None:
        """Keep what was applied, over a new login; why not is kept on the transaction."""
        from gpudoctor.transaction import confirm

        applying.confirmed.set()

        async def confirmed() -> None:
            applying.take(await confirm(self._make_target(), applying.id))

        problem = "nobody confirmed it"
        try:
            problem = applying.refused = await self._told(confirmed())
        finally:
            if problem:
                applying.confirmed = asyncio.Event()
            self._board.touch()

    async def look(self) -> None:
        """Read what transactions the target keeps; the board's history says why not."""
        history = self._board.history
        history.reading = True
        self._board.touch()
        told: list[Transaction] = []

        async def read() -> None:
            told.extend(await self.transactions())

        try:
            history.problem = await self._told(read())
        except UnknownHostKey as error:
            history.problem = error.sentence
            raise
        finally:
            kept = None if history.problem else tuple(map(self._as_seen, reversed(told)))
            self._board.history = History(kept, history.problem, False, time.monotonic())
            self._agree(told)
            self._board.touch()

    async def transactions(self) -> list[Transaction]:
        """Return what the target keeps, oldest first. Raises Refusal."""
        from gpudoctor.transaction import transactions

        target = await asyncio.to_thread(self._make_target)
        return await transactions(target)

    def _as_seen(self, told: Transaction) -> Transaction:
        """Return a transaction as told, but never interrupted while this screen follows it."""
        applying = self._board.applying
        ours = applying is not None and applying.busy and applying.id == told.id
        return replace(told, interrupted=False) if ours else told

    def _agree(self, told: list[Transaction]) -> None:
        """Let the transaction on the board say what the target says of it, unless it is moving."""
        applying = self._board.applying
        same = next((t for t in told if applying and t.id == applying.id), None)
        if applying is not None and not applying.busy and same is not None:
            applying.state = same.state

    async def _follow(self, applying: Applying, run: AsyncGenerator[Move, None]) -> None:
        problem = "it is not known how it went on: h looks again"
        try:
            problem = await self._told(self._feed(applying, run), applying)
        except UnknownHostKey as error:
            problem = error.sentence
            raise
        finally:
            applying.end(problem)
            self._board.touch()

    async def _feed(self, applying: Applying, run: AsyncGenerator[Move, None]) -> None:
        pause = self._pause()
        self._board.touch()
        async with aclosing(run):
            async for move in run:
                applying.take(move)
                self._board.touch()
                await asyncio.sleep(pause if applying.state in _MOVING else 0)

    async def _told(self, work: Awaitable[None], applying: Applying | None = None) -> str:
        """Do the work and return why it stopped short, or nothing. Raises UnknownHostKey."""
        try:
            await work
        except UnknownHostKey:
            raise
        except Refusal as refusal:
            if applying is not None:
                applying.lost = refusal.code == INCOMPLETE
            return refusal.sentence
        except Exception as error:  # no traceback ever reaches an operator
            return f"a fault of gpudoctor's own: {named(error)}"
        finally:
            self._board.touch()
        return ""

    def _pause(self) -> float:
        """Return seconds between two lines: none but on the paced demo."""
        if not self._board.simulated:
            return 0.0
        pace: tuple[float, float] = getattr(self._make_target(), "pace", (0.0, 0.0))
        return pace[0] * _PACE_SHARE
