"""The app's transactions: what is asked before one, and what follows it."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.content import Content
from textual.notifications import SeverityLevel

from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Plan, State, Transaction
from gpudoctor.screens.applying import Applying, applying_known, applying_plan
from gpudoctor.screens.auditing import Auditing
from gpudoctor.screens.messages import ApplyAsked, UndoAsked
from gpudoctor.screens.transact import Transactor

if TYPE_CHECKING:
    from gpudoctor.hosts.target import Target
    from gpudoctor.model.audited import AuditResult

_STAND = frozenset({State.APPLIED, State.CONFIRMED})


class Transacting(Auditing):
    """An app that changes the target, each time after asking."""

    def __init__(self, make_target: "Callable[[], Target]", read_only: bool = False) -> None:
        """Take how to make the target, and whether writes are refused."""
        super().__init__(make_target, read_only)
        self._transactor = Transactor(self.board, make_target)
        self._leaving = False
        self._asking = False
        self._accepted_of: set[str] = set()

    # before

    def _forbidden(self) -> str:
        """Return why nothing may be written now, or nothing."""
        applying, result = self.board.applying, self.board.result
        if self.board.read_only:
            return "read-only: nothing is written"
        if applying is not None and applying.unsettled:
            return "a transaction is not over yet: t shows it"
        if result is None:
            return "the host has not been read yet"
        from gpudoctor.hosts.root_shell import require_root

        try:
            require_root(result.user, "changing the host")
        except Refusal as refusal:
            return refusal.sentence
        return _elsewhere(result)

    def _in_turn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Ask and act in a worker; while one question is open, no other is asked."""
        if not self._asking and not self._leaving:
            self._asking = True
            self.run_worker(self._asked(work), group="ask", exit_on_error=False)

    async def _asked(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            self._asking = False

    async def _agree(self, title: str, text: Content, yes: str) -> bool:
        from gpudoctor.screens.ask import AskScreen

        answer = await self._answer(AskScreen(title, text, yes))
        return answer is True

    @on(ApplyAsked)
    def ask_to_apply(self, event: ApplyAsked) -> None:
        """Ask once (twice where a step was seen on a stand-in only), then apply."""
        if sentence := self._forbidden():
            self.notify(sentence, severity="warning", markup=False)
            return
        self._in_turn(partial(self._apply_asked, event.plan))

    async def _apply_asked(self, plan: Plan) -> None:
        from gpudoctor.screens.ask import ALSO, AskScreen
        from gpudoctor.screens.questions import apply_question, unproven_question

        yes, also = "Apply" if plan.steps else "Accept", self._also(plan)
        question = apply_question(plan, self.board, self._also_words() if also else "")
        answer = await self._answer(AskScreen(f"{yes}?", question, yes, also=also))
        if not answer:
            return
        unproven = [step for step in plan.steps if step.unproven]
        if unproven and not await self._agree("Sure?", unproven_question(unproven), yes):
            return
        if not plan.steps and not await self._accepted(plan):
            return
        if answer == ALSO and not await self._measured_before(plan):
            return
        applying = applying_plan(plan, self.board.chosen)
        self.board.chosen, self.board.plan = (), None
        self.board.touch()
        if plan.steps:
            self.board.applying = applying
            self._start(applying, partial(self._apply, applying))

    def _also(self, plan: Plan) -> str:
        """Return what a third answer to whether to apply is called; nothing where there is none."""
        return ""

    def _also_words(self) -> str:
        """Return what the third answer does, in a sentence."""
        return ""

    async def _measured_before(self, plan: Plan) -> bool:
        """Do what the third answer wants before a plan is applied; return whether it was done."""
        return True

    async def _apply(self, applying: Applying) -> None:
        await self._transactor.apply(applying)
        if not await self._keep_by_hand(applying):
            words = "what is left to do by hand is not kept as pending: its steps did not end well"
            self.notify(words, severity="warning", markup=False)

    async def _keep_by_hand(self, applying: Applying) -> bool:
        """Keep what a plan leaves to do by hand once its steps stand; return whether they do."""
        plan = applying.plan
        if plan is None or not plan.by_hand or plan.id in self._accepted_of:
            return True
        if applying.state not in _STAND or applying.refused:
            return False
        self._accepted_of.add(plan.id)
        await self._accepted(plan)
        return True

    async def _accepted(self, plan: Plan) -> bool:
        """Keep the worked plans as pending, so that the next audit tells whether they were done."""
        if self.board.simulated:
            self.notify("the simulated host ends with this screen: nothing is pending there")
            return True
        from gpudoctor.snapshots.pending import accept

        try:
            await asyncio.to_thread(accept, plan.machine_id, plan.label, plan.by_hand, plan.boot_id)
        except Refusal as refusal:
            self.notify(refusal.sentence, severity="error", markup=False)
            return False
        self.notify("kept as pending: the next audit tells whether it was done", markup=False)
        return True

    # while it runs, and after

    def _start(self, applying: Applying, work: Callable[[], Awaitable[None]]) -> None:
        self.run_worker(self._transact(applying, work), group="apply", exit_on_error=False)

    async def _transact(self, applying: Applying, work: Callable[[], Awaitable[None]]) -> None:
        """See a transaction through, whatever becomes of this worker; then read its panels anew."""
        await self._halt()
        await self._follower.forget()
        await self.action_transaction()
        await asyncio.shield(asyncio.ensure_future(self._with_known_key(work)))
        self._say(applying)
        if applying.untouched:
            self.board.chosen = self.board.chosen or applying.chosen
            await self._plan()
        elif touched := self.board.touched:
            await self._halt()
            self._begin(touched)

    def _say(self, applying: Applying) -> None:
        """Tell how it ended where its own screen is not what the operator sees."""
        from gpudoctor.screens.apply import ApplyScreen
        from gpudoctor.screens.journal_text import in_words

        if not isinstance(self.screen, ApplyScreen):
            self.notify(in_words(applying), severity=_severity(applying), markup=False)

    async def action_transaction(self) -> None:
        """Show the transaction of this session."""
        from gpudoctor.screens.apply import ApplyScreen

        if self.board.applying is None or isinstance(self.screen, ApplyScreen):
            return
        await self.push_screen(ApplyScreen(self.board))

    @on(UndoAsked)
    def ask_to_undo(self, event: UndoAsked) -> None:
        """Ask, then take a transaction back; one that waits for a word goes back at once."""
        applying = self.board.applying
        if event.told is not None and (applying is None or applying.id != event.told.id):
            if sentence := self._forbidden():
                self.notify(sentence, severity="warning", markup=False)
            else:
                self._in_turn(partial(self._undo_asked, self._known(event.told), event.told))
        elif applying is not None and applying.waits and event.told is None:
            self._undo(applying)
        elif applying is not None and not applying.running and not self.board.read_only:
            self._in_turn(partial(self._undo_asked, applying, event.told))

    async def _undo_asked(self, applying: Applying, told: Transaction | None) -> None:
        from gpudoctor.screens.questions import undo_question

        question = undo_question(applying, told, self.board)
        if await self._agree("Undo?", question, "Undo"):
            self._undo(applying)

    def _undo(self, applying: Applying) -> None:
        if applying.waits and applying.busy:  # the run that waits follows it to its end
            self._start_beside(partial(self._transactor.take_back, applying))
            return
        self.board.applying = applying
        applying.begin(undoing=True)
        self._start(applying, partial(self._transactor.undo, applying))

    def _known(self, told: Transaction) -> Applying:
        return applying_known(told, self.board.plans.get(told.id))

    def _start_beside(self, work: Callable[[], Awaitable[None]]) -> None:
        self.run_worker(self._with_known_key(work), group="beside", exit_on_error=False)


def _elsewhere(result: "AuditResult") -> str:
    """Return that what would be changed belongs to another host than the one read, or nothing."""
    from gpudoctor.model import Facts, Unknown
    from gpudoctor.probes.kernel import INSIDE_CONTAINER

    facts = Facts(result.evidence)
    inside = facts[INSIDE_CONTAINER] if facts.ready(INSIDE_CONTAINER) else ""
    if not inside or isinstance(inside, Unknown):
        return ""
    return (
        f"this is inside a container ({inside}), and what gpudoctor changes belongs to its host: "
        "run it there, or name the host with --host"
    )


def _severity(applying: Applying) -> SeverityLevel:
    if applying.refused or applying.state in {State.FAILED, State.UNDO_FAILED}:
        return "error"
    return "warning" if applying.timed_out else "information"
