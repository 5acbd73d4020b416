"""The app and the story's changes: applied again, made to last, and told as they are then."""

from dataclasses import replace
from typing import TYPE_CHECKING

from gpudoctor.model.finding import Finding, Status
from gpudoctor.screens.choice import Chosen
from gpudoctor.screens.kept import lastable
from gpudoctor.screens.remembering import Remembering
from gpudoctor.text import one_line

if TYPE_CHECKING:
    from gpudoctor.model.audited import AuditResult
    from gpudoctor.model.story import Told
    from gpudoctor.screens.applying import Applying


class PuttingBack(Remembering):
    """An app that puts back what the story tells of."""

    def _say(self, applying: "Applying") -> None:
        """Tell how a transaction ended, in the story, too."""
        super()._say(applying)
        self._retell()

    def _retell(self) -> None:
        """Let the story know what this session put back, or took back."""
        telling, applying = self.board.telling, self.board.applying
        if telling.story is not None and applying is not None:
            from gpudoctor.screens.recollect import retold

            telling.story = retold(telling.story, applying)
            self.board.touch()

    async def _again(self, last: bool) -> None:
        """Plan what is selected again, as far as it is an issue now, and apply it after asking."""
        from gpudoctor.screens.recollect import lasting_forms

        board, telling = self.board, self.board.telling
        if sentence := self._forbidden():
            return self._said((sentence,))
        story, result = telling.story, board.result
        wanted = [told for told in (story.told if story else ()) if telling.picked(told)]
        kept = [told for told in wanted if lastable(told)]
        chosen, said = self._entries([told for told in wanted if told not in kept])
        if chosen:  # else what is selected in the plan stays so
            board.chosen = chosen
        if not wanted:
            said = ("nothing is selected: space selects",)
        elif kept and not last:
            said = (*said, "what was kept needs no applying again: m makes it last")
        self._said(said)
        forms: AuditResult | None = None
        without: tuple[str, ...] = ()
        if last and kept and result is not None:
            forms, without = await lasting_forms(kept, result)
            said += tuple(f"{title} cannot be made to last from here" for title in without)
            self._said(said)
        if chosen and await self._applied_again(last, said):
            applying = board.applying
            if forms is not None and applying is not None and applying.id in self._last_too:
                applying.forms = _both(applying.forms, forms)
        elif forms is not None:
            await self._last_asked(forms, without)

    async def _applied_again(self, last: bool, said: tuple[str, ...]) -> bool:
        """Plan the selection and apply it after asking; return whether that was begun."""
        board = self.board
        await self._plan()
        plan = board.plan
        if plan is None or not (plan.steps or plan.by_hand):
            why = [f"{check}: {words}" for check, words in plan.refused] if plan else []
            self._said((*said, board.plan_problem or "; ".join(why) or "nothing to do"))
            return False
        refused = (f"{check} is not planned: {why}" for check, why in plan.refused)
        self._said((*said, *refused))
        if last:
            self._last_too.add(plan.id)
        await self._apply_asked(plan)
        return True

    def _entries(self, wanted: "list[Told]") -> tuple[Chosen, tuple[str, ...]]:
        """Return the selection that serves these changes, and what is said of the others."""
        chosen: dict[str, str] = {}
        said = []
        for told in wanted:
            mine = [f for f in self.board.findings if f.id == told.check]
            able = next((f for f in mine if self.board.fixable(f)), None)
            if able is not None:
                there = 1 < told.way <= len(able.verdict.changes)
                chosen.setdefault(told.check, f"{told.check}:{told.way}" if there else told.check)
            else:
                said.append(f"{told.check} is not applied again: {_why(mine)}")
        return tuple(chosen.values()), tuple(dict.fromkeys(said))

    def _said(self, sentences: tuple[str, ...]) -> None:
        """Say it on the story's screen, and as a notice where another is shown."""
        from gpudoctor.screens.story import StoryScreen

        self.board.telling.said = sentences
        self.board.touch()
        if not isinstance(self.screen, StoryScreen):
            for sentence in sentences:
                self.notify(one_line(sentence, 400), severity="warning", markup=False)


def _both(one: "AuditResult | None", other: "AuditResult") -> "AuditResult":
    """Return the findings of both."""
    return other if one is None else replace(one, findings=(*one.findings, *other.findings))


def _why(mine: list[Finding]) -> str:
    """Return why a check has nothing to apply now."""
    if not mine:
        return "it was not judged there"
    verdict = mine[0].verdict
    if verdict.status is Status.ISSUE:
        return "gpudoctor does not change this itself"
    if verdict.status is Status.UNKNOWN:
        return f"it could not be told now: {verdict.summary}"
    return f"it is no longer an issue: {verdict.summary}"
