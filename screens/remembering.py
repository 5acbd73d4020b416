"""The app and the store: snapshots listed, taken and noted, diffs, and the page before a reboot."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.worker import Worker, WorkerCancelled, WorkerFailed

from gpudoctor.screens.lasting import Lasting
from gpudoctor.screens.messages import (
    DiffAsked,
    KeptAsked,
    NoteAsked,
    PageAsked,
    SnapshotsAsked,
    TakeAsked,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gpudoctor.model.snapshot import SnapshotHead
    from gpudoctor.screens.archive import Archive

_READING = frozenset({"story", "page", "bench"})
_END_SECONDS = 4.0


class Remembering(Lasting):
    """An app that lists, takes and compares snapshots."""

    _kept_in: "Archive | None" = None

    def _aside(
        self, work: "Callable[[], Awaitable[object]]", group: str, exclusive: bool = True
    ) -> None:
        """Do work beside the screens; exclusive work ends what its group was at."""
        _: Worker[object] = self.run_worker(
            work, group=group, exclusive=exclusive, exit_on_error=False
        )

    @property
    def _archive(self) -> "Archive":
        """Return what works on the store, made when first used."""
        if self._kept_in is None:
            from gpudoctor.screens.archive import Archive

            self._kept_in = Archive(self.board, self._make_target)
        return self._kept_in

    def _audited(self) -> None:
        """List the snapshots anew where the operator has them open: now the machine is known."""
        super()._audited()
        if self.current_mode == "snapshots":
            self.list_snapshots()

    @on(SnapshotsAsked)
    def list_snapshots(self) -> None:
        """List this machine's snapshots."""
        self._aside(self._archive.look, "shelf")

    @on(KeptAsked)
    async def read_snapshot(self, event: KeptAsked) -> None:
        """Read what a snapshot keeps; open its page where wanted."""
        read = partial(self._archive.read, event.head)
        self._aside(read, "kept")
        if event.open and not self._leaving:
            from gpudoctor.screens.snapshot import SnapshotScreen

            self._aside(partial(self._archive.judge, event.head), "judge")
            await self.push_screen(SnapshotScreen(self.board, event.head))

    @on(TakeAsked)
    def action_take_snapshot(self) -> None:
        """Keep the audit on the board as a snapshot."""
        if sentence := self._untakeable():
            self.notify(sentence, severity="warning", markup=False)
        else:
            self._aside(self._take, "take")

    def _untakeable(self) -> str:
        """Return why no snapshot can be taken now, or nothing."""
        board = self.board
        if board.simulated:
            return "the simulated host ends with this screen: it leaves no snapshots"
        if board.recorded:
            return "this is a recording: a snapshot is taken of a host that is read now"
        if board.shelf.saving:
            return "one is being kept"
        if board.refusal:
            return f"the host was not read: {board.refusal}"
        if board.running or board.result is None:
            return "the host has not been read whole yet: wait for the audit"
        return ""

    async def _take(self) -> None:
        problem = await self._archive.take()
        if problem:
            self.notify(f"no snapshot was kept: {problem}", severity="error", markup=False)
        else:
            self.notify("a snapshot of the host as it was read is kept", markup=False)

    @on(NoteAsked)
    def note_snapshot(self, event: NoteAsked) -> None:
        """Keep the operator's note of a snapshot."""
        note = partial(self._note, event.head, event.note)
        self._aside(note, "note", exclusive=False)

    async def _note(self, head: "SnapshotHead", text: str) -> None:
        if problem := await self._archive.note(head, text):
            self.notify(f"the note was not kept: {problem}", severity="error", markup=False)

    @on(DiffAsked)
    async def show_diff(self, event: DiffAsked) -> None:
        """Show what differs between two snapshots, or one and now."""
        from gpudoctor.screens.diff import DiffScreen
        from gpudoctor.screens.diff_text import when
        from gpudoctor.screens.kept import Comparison

        if event.new is None and (self.board.running or self.board.result is None):
            words = "what is so now is not known yet: wait for the audit"
            self.notify(words, severity="warning", markup=False)
            return
        new = "now" if event.new is None else when(event.new)
        shown = Comparison(f"{when(event.old)} and {new}")
        if self._leaving:
            return
        await self.push_screen(DiffScreen(self.board, shown, self.current_mode))
        compare = partial(self._archive.compare, shown, event.old, event.new)
        self._aside(compare, "diff", exclusive=False)

    async def action_before_reboot(self) -> None:
        """Show what is to be known before this host is rebooted."""
        from gpudoctor.screens.before_reboot import BeforeRebootScreen

        if not isinstance(self.screen, BeforeRebootScreen) and not self._leaving:
            await self.push_screen(BeforeRebootScreen(self.board, self.current_mode))

    @on(PageAsked)
    def read_page(self) -> None:
        """Work out the page anew."""
        work = partial(self._with_known_key, self._before_reboot)
        self._aside(work, "page")

    async def _end_aside(self) -> None:
        """End what reads the target for us beside the audit, within a limit."""
        mine = [w for w in self.workers if w.group in _READING and not w.is_finished]
        for worker in mine:
            worker.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                for worker in mine:
                    with suppress(WorkerCancelled, WorkerFailed):
                        await worker.wait()

    async def _before_reboot(self) -> None:
        await self._archive.before_reboot()
