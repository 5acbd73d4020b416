"""The app and what lasts: once a change was kept, its persistent form, as a change of its own."""

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.worker import WorkerCancelled, WorkerFailed

from gpudoctor.model.error import Refusal
from gpudoctor.screens.applying import Applying, applying_plan
from gpudoctor.screens.follow import named
from gpudoctor.screens.keeping import Keeping
from gpudoctor.screens.messages import LastAsked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gpudoctor.capture import Captured
    from gpudoctor.hosts.target import Target
    from gpudoctor.model.audited import AuditResult
    from gpudoctor.model.plan import Plan


class Lasting(Keeping):
    """An app that makes last what it applied, where the operator wants it."""

    def __init__(self, make_target: "Callable[[], Target]", read_only: bool = False) -> None:
        """Take how to make the target, and whether writes are refused."""
        super().__init__(make_target, read_only)
        self._make_target = make_target
        self._last_too: set[str] = set()

    async def _apply_asked(self, plan: "Plan") -> None:
        """Note what the plan was made from, then ask and apply."""
        basis = self._follower.basis
        await super()._apply_asked(plan)
        applying = self.board.applying
        if applying is not None and applying.plan is plan and basis is not None:
            with suppress(Exception):  # a form that cannot be told is not offered
                applying.forms, applying.without = _forms(plan, *basis)

    async def _transact(self, applying: Applying, work: "Callable[[], Awaitable[None]]") -> None:
        await super()._transact(applying, work)
        if applying.id in self._last_too and applying.kept:
            self._last_too.discard(applying.id)
            await self._audit_over()
            self.make_last()

    async def _audit_over(self) -> None:
        """Wait until no audit runs."""
        worker = self._auditing
        if worker is not None:
            try:
                await worker.wait()
            except (WorkerCancelled, WorkerFailed):
                return

    @on(LastAsked)
    def make_last(self) -> None:
        """Ask whether to make last what was applied, and do."""
        applying = self.board.applying
        if sentence := self._forbidden():
            self.notify(sentence, severity="warning", markup=False)
        elif applying is None or not applying.kept:
            self.notify("nothing was applied and kept here", severity="warning", markup=False)
        elif applying.forms is None:
            words = "there is no persistent form of it"
            titles = "; ".join(applying.without)
            self.notify(f"{words}: {titles}" if titles else words, markup=False)
        else:
            self._in_turn(partial(self._last_asked, applying.forms, applying.without))

    async def _last_asked(self, forms: "AuditResult", without: tuple[str, ...]) -> None:
        """Plan the persistent forms from what is so now, show files and undo, ask, and apply."""
        from gpudoctor.screens.questions import last_question

        before = self.board.applying
        await self._audit_over()
        plans: list[Plan] = []

        async def planned() -> None:
            plans.append(await self._persistent_plan(forms))

        try:
            if not await self._with_known_key(planned):
                return
        except Refusal as refusal:
            return self.notify(refusal.sentence, severity="error", markup=False)
        except Exception as error:  # no traceback ever reaches an operator
            words = f"a fault of gpudoctor's own: {named(error)}"
            return self.notify(words, severity="error", markup=False)
        plan = plans[0]
        if not plan.steps:
            return self._not_last(forms, plan)
        question = last_question(plan, without, self.board)
        if not await self._agree("Make it last?", question, "Make it last"):
            return
        if self.board.applying is not before or (before is not None and before.unsettled):
            return self.notify("something else was begun: t shows it", markup=False)
        self._drop(forms)
        made = self.board.applying = applying_plan(plan)
        self._start(made, partial(self._apply, made))

    async def _persistent_plan(self, forms: "AuditResult") -> "Plan":
        """Return the plan of the forms. Raises Refusal, and UnknownHostKey."""
        from gpudoctor.plan import make_plan

        captured = await self._follower.values_of(forms)
        names = [finding.id for finding in forms.findings]
        return make_plan(forms, captured, names, confirm_within=0)

    def _drop(self, forms: "AuditResult") -> None:
        """Offer these forms no more: they are applied, or there already."""
        if self.board.applying is not None and self.board.applying.forms is forms:
            self.board.applying.forms = None

    def _not_last(self, forms: "AuditResult", plan: "Plan") -> None:
        if plan.refused:
            check, why = plan.refused[0]
            words = f"not made to last: {check}: {why}"
            return self.notify(words, severity="warning", markup=False)
        self._drop(forms)
        self.board.touch()
        self.notify("it is made to last already", markup=False)


def _forms(
    plan: "Plan", result: "AuditResult", captured: "Captured"
) -> "tuple[AuditResult | None, tuple[str, ...]]":
    """Return the findings that offer a plan's persistent forms, and titles without one."""
    from gpudoctor.plan import persistent

    forms, without = persistent(result, plan, captured)
    return (forms if forms.findings else None), without
