"""The app and the story: a look back before the first audit, and what is done about it."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.widgets import Input

from gpudoctor.model.finding import Panel
from gpudoctor.screens.audit import AuditScreen
from gpudoctor.screens.messages import DiffAsked, StoryAsked
from gpudoctor.screens.putting_back import PuttingBack
from gpudoctor.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpudoctor.hosts.target import Target
    from gpudoctor.model.story import Story


# How long the first audit waits for the look back: together they would slow each other down, and
# the story comes first. A host that the store does not know is not looked at.
_LOOK_SECONDS = 4.0
_ALOUD_SECONDS = 30.0


class Storytelling(PuttingBack):
    """An app that opens on the story where there is one."""

    _looked_twice = False

    def __init__(self, make_target: "Callable[[], Target]", read_only: bool = False) -> None:
        """Take how to make the target, and whether writes are refused."""
        super().__init__(make_target, read_only)
        self._look_over = asyncio.Event()

    def _look_back(self) -> None:
        """Look at what became of earlier changes, over a login of its own."""
        self._aside(self._tell, "story", exclusive=False)

    async def _tell(self) -> None:
        from gpudoctor.screens.recollect import looked_back

        telling = self.board.telling
        async with looked_back(self._make_target) as told:
            telling.story, telling.problem, telling.again = told.story, told.problem, told.again
            self._look_over.set()
            self.board.touch()
            if told.aloud:
                self.notify(told.problem, severity="warning", markup=False, timeout=_ALOUD_SECONDS)
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
        self._retell()
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
        story = telling.story
        done = await settled(story, board.result)
        if telling.story is story:  # else a transaction ended meanwhile, and an audit follows
            telling.story = done
        board.touch()
        since = story.since
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
