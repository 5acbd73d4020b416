"""The app's audits and plans: one worker each, and the question about a key that nobody knows."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from textual import on
from textual.app import App
from textual.screen import ModalScreen
from textual.worker import Worker, WorkerCancelled, WorkerFailed

from gpudoctor.model.error import UnknownHostKey
from gpudoctor.model.finding import Panel
from gpudoctor.screens.board import Board
from gpudoctor.screens.follow import Follower
from gpudoctor.screens.messages import ChoiceChanged

if TYPE_CHECKING:
    from gpudoctor.hosts.target import Target

_HALT_SECONDS = 5.0
Answer = TypeVar("Answer")


class Auditing(App[None]):
    """An app with a board that audits and plans fill."""

    def __init__(self, make_target: "Callable[[], Target]", read_only: bool = False) -> None:
        """Take how to make the target (once for each login), and whether writes are refused."""
        super().__init__()
        self.board = Board(read_only)
        self._follower = Follower(self.board, make_target)
        self._auditing: Worker[None] | None = None

    def _begin(self, panels: Iterable[Panel]) -> None:
        audit = partial(self._audit, tuple(panels))  # a coroutine only once it runs
        self._auditing = self.run_worker(audit, exit_on_error=False)

    async def _audit(self, panels: tuple[Panel, ...]) -> None:
        if await self._with_known_key(lambda: self._follower.audit(panels)):
            self._audited()
            await self._plan()

    def _audited(self) -> None:
        """Do what follows an audit."""

    async def _halt(self) -> None:
        """End a running audit and wait until nothing of it is left on the target."""
        worker, self._auditing = self._auditing, None
        if worker is None or worker.is_finished:
            return
        worker.cancel()
        try:
            async with asyncio.timeout(_HALT_SECONDS):
                await worker.wait()
        except (TimeoutError, WorkerCancelled, WorkerFailed):
            await self._follower.close()

    async def action_reaudit(self) -> None:
        """Read the whole host anew."""
        if self.board.applying is not None and self.board.applying.running:
            self.notify("a transaction is running: its panels are read when it ends", markup=False)
            return
        await self._halt()
        self._begin(tuple(Panel))

    @on(ChoiceChanged)
    def _replan(self) -> None:
        self.run_worker(self._plan(), group="plan", exclusive=True, exit_on_error=False)

    async def _plan(self) -> None:
        await self._with_known_key(self._follower.plan)

    async def _with_known_key(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do the work, again once a key it met is trusted; return whether it was done."""
        while True:
            try:
                await work()
            except UnknownHostKey as error:
                if not await self._trusted(error):
                    return False
            else:
                return True

    async def _trusted(self, error: UnknownHostKey) -> bool:
        """Ask whether a server's key is to be trusted, and keep it where it is."""
        from gpudoctor.screens.ask import AskScreen, host_key_question

        ask = AskScreen("Unknown host key", host_key_question(error), "Trust")
        if not await self._answer(ask):
            return False
        problem = await self._follower.trust(error)
        if problem and self.board.refusal:
            self.board.end(problem)
        elif problem:
            self.notify(problem, severity="error", markup=False)
        return not problem

    async def _answer(self, question: ModalScreen[Answer]) -> Answer | None:
        """Ask, and wait for the answer; None where it was left without one."""
        answered = asyncio.Event()
        said: list[Answer | None] = []

        def hear(answer: Answer | None) -> None:
            said.append(answer)
            answered.set()

        await self.push_screen(question, hear)
        await answered.wait()
        return said[0]
