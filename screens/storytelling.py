"""The app and the story: a look back before the first audit, and what is done about it."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.widgets import Input

from gpudoctor.model.finding import Finding, Panel, Status
from gpudoctor.screens.audit import AuditScreen
from gpudoctor.screens.choice import Chosen
from gpudoctor.screens.messages import DiffAsked, StoryAsked
from gpudoctor.screens.remembering import Remembering
from gpudoctor.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpudoctor.hosts.target import Target
    from gpudoctor.model.story import Story, Told


# How long the first audit waits for the look back: together they would slow each other down, and
# the story comes first. A host that the store does not know is not looked at.
_LOOK_SECONDS = 4.0


class Storytelling(Remembering):
    """An app that opens on the story where there is one."""

    _looked_twice = False

    def __init__(self, make_target: "Callable[[], Target]", read_only: bool = False) -> None:
        """Take how to make the target, and whether writes are refused."""
        super().__init__(make_target, read_only)
        self._look_over = asyncio.Event()

    def _look_back(self) -> None:
        """Look at what became of earlier changes, over a login of its own."""
        self._aside(self._look, "story", exclusive=False)

    async def _look(self) -> None:
        from gpudoctor.screens.recollect import looked_back

        telling = self.board.telling
        async with looked_back(self._make_target) as told:
            telling.story, telling.problem, telling.again = told
            self._look_over.set()
            self.board.touch()
            if telling.story is not None:
                await self._open_story(telling.story)
                self._grant()
            elif telling.again and self.board.result is not None:
                self._look_again_once()

    async def _open_story(self, story: "Story") -> None:
        """Open the story, unless the operator is at something already."""
        if self._leaving:
            return
        if isinstance(self.screen, AuditScreen) and not isinstance(self.focused, Input):
            return await self.action_story()
        words = f"{one_line(story.happened)}: w tells"
        self.notify(words, severity="warning", markup=False)

    async def action_story(self) -> None:
        """Show the story, where there is one."""
        from gpudoctor.screens.story import StoryScreen

        if self.board.telling.story is not None and not isinstance(self.screen, StoryScreen):
            await self.push_screen(StoryScreen(self.board, self.current_mode))

    async def _audit(self, panels: tuple[Panel, ...]) -> None:
        """Audit, after a quick look back; then settle what that could not tell, and do the wish."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._look_over.wait()
        await super()._audit(panels)
        if self.board.telling.again:
            self._look_again_once()
        self._grant()

    def _look_again_once(self) -> None:
        """Look again after a look that met a key: the operator has trusted it since."""
        self.board.telling.again = False
        if not self._looked_twice:
            self._looked_twice = True
            self._look_back()

    def _grant(self) -> None:
        """Settle the story once there is an audit too, and grant the wish that waited for it."""
        board, telling = self.board, self.board.telling
        if telling.story is None or board.running or self._leaving:
            return
        if board.result is None:
            return self._forget_wish(f"the audit did not end well: {board.refusal}")
        self._aside(self._settle, "settle")
        wish, telling.wish = telling.wish, ""
        if wish:
            self._do(wish)

    def _forget_wish(self, why: str) -> None:
        if self.board.telling.wish:
            self.board.telling.wish = ""
            self.board.telling.said = (why,)
            self.board.touch()

    async def _settle(self) -> None:
        """Let the audit say what could not be read by value, and what else has changed."""
        from gpudoctor.screens.kept import Comparison
        from gpudoctor.screens.recollect import settled

        board, telling = self.board, self.board.telling
        if telling.story is None or board.result is None:
            return
        telling.story = await settled(telling.story, board.result)
        board.touch()
        since = telling.story.since
        if since is not None:
            made = Comparison("what else has changed")
            await self._archive.compare(made, since, None)
            telling.since = made
            board.touch()

    @on(StoryAsked)
    def wish(self, event: StoryAsked) -> None:
        """Do it now, or as soon as the audit is through."""
        board, telling = self.board, self.board.telling
        telling.said = ()
        if board.running or board.result is None:
            telling.wish = event.wish
            if not board.running:
                self._forget_wish(f"the audit did not end well: {board.refusal}")
        else:
            self._do(event.wish)
        board.touch()

    def _do(self, wish: str) -> None:
        story = self.board.telling.story
        assert story is not None
        if wish == "snapshot":
            self.action_take_snapshot()
        elif wish == "diff" and story.since is not None:
            self.post_message(DiffAsked(story.since))
        elif wish in {"apply", "last"}:
            self._in_turn(partial(self._again, wish == "last"))

    async def _again(self, last: bool) -> None:
        """Plan what is selected again, as far as it is an issue now, and apply it after asking."""
        board, telling = self.board, self.board.telling
        if sentence := self._forbidden():
            return self._said((sentence,))
        story = telling.story
        wanted = [told for told in (story.told if story else ()) if telling.picked(told)]
        board.chosen, said = self._entries(wanted)
        if not wanted:
            said = ("nothing is selected: space selects",)
        self._said(said)
        if not board.chosen:
            return
        await self._plan()
        plan = board.plan
        if plan is None or not (plan.steps or plan.by_hand):
            why = [f"{check}: {words}" for check, words in plan.refused] if plan else []
            return self._said((*said, board.plan_problem or "; ".join(why) or "nothing to do"))
        refused = (f"{check} is not planned: {why}" for check, why in plan.refused)
        self._said((*said, *refused))
        if last:
            self._last_too.add(plan.id)
        await self._apply_asked(plan)

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
