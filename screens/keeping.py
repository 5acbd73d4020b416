"""The app and what the target keeps: confirming, the history, and what was left behind."""

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.screen import ModalScreen
from textual.widgets import Input

from gpudoctor.model.plan import State, Transaction
from gpudoctor.screens.applying import Applying
from gpudoctor.screens.messages import ConfirmAsked, HistoryAsked
from gpudoctor.screens.transacting import Transacting

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpudoctor.hosts.target import Target


class Keeping(Transacting):
    """An app that tells what the target keeps of its changes, and settles it."""

    def __init__(self, make_target: "Callable[[], Target]", read_only: bool = False) -> None:
        """Take how to make the target, and whether writes are refused."""
        super().__init__(make_target, read_only)
        self._looked = False

    @on(ConfirmAsked)
    def confirm(self, event: ConfirmAsked) -> None:
        """Keep what waits for a word."""
        applying = self.board.applying
        if self.board.read_only:
            self.notify("read-only: nothing is written", severity="warning", markup=False)
            return
        if event.told is not None and (applying is None or applying.id != event.told.id):
            applying = self._known(event.told)
        if applying is None:
            return
        if applying.confirmed.is_set():  # it is being confirmed, or was
            return
        if applying.waits and applying.hears:
            applying.confirmed.set()
        else:
            self._start_beside(partial(self._confirm, applying))

    async def _confirm(self, applying: Applying) -> None:
        await self._transactor.confirm(applying)
        if applying.refused:
            self.notify(applying.refused, severity="error", markup=False)
        await self._keep_by_hand(applying)
        await self._look_again()

    @on(HistoryAsked)
    def look(self) -> None:
        """Read anew what transactions the target keeps."""
        look = self._with_known_key(self._transactor.look)
        self.run_worker(look, group="look", exclusive=True, exit_on_error=False)

    async def _look_again(self) -> None:
        """Read the history anew where the operator has it open."""
        from gpudoctor.screens.history import HistoryScreen

        if any(isinstance(screen, HistoryScreen) for screen in self.screen_stack):
            await self._transactor.look()

    async def action_history(self) -> None:
        """Show the transactions that the target keeps."""
        from gpudoctor.screens.history import HistoryScreen

        if not isinstance(self.screen, HistoryScreen):
            await self.push_screen(HistoryScreen(self.board))

    def _audited(self) -> None:
        """After the first audit as root, look for what another session left behind."""
        result = self.board.result
        if self._looked or result is None or result.user != "root" or self.board.refusal:
            return
        self._looked = True
        self.run_worker(self._look_for_leftovers(), group="leftovers", exit_on_error=False)

    async def _look_for_leftovers(self) -> None:
        """Offer what an interrupted session left on the target; never undo by itself."""
        told: list[Transaction] = []
        with suppress(Exception):  # the audit stands, whatever becomes of this look
            told = await self._transactor.transactions()
        unseen = self._unseen(told)
        left = [t for t in reversed(told) if is_leftover(t) or t.id in unseen]
        if left and self.board.applying is None and not self._leaving:
            await self._offer(left)

    def _unseen(self, told: list[Transaction]) -> set[str]:
        """Return those that went on after the session here that began them had ended.

        The notes of what is over, or was confirmed since, have had their use.
        """
        from gpudoctor.snapshots.store import unseen

        assert self.board.result is not None
        names: set[str] = set()
        with suppress(OSError):
            names = unseen(self.board.result.identity.machine_id, self.board.result.label)
        mine = [one for one in told if one.id in names]
        for one in mine:
            if not one.stands or one.state is State.CONFIRMED:
                self._forget(one)
        return {one.id for one in mine if went_on(one)}

    def _forget(self, told: Transaction) -> None:
        """Take the note away: it is told once, to one who could undo it; the history keeps it."""
        from gpudoctor.snapshots.store import forget_unseen

        if self.board.result is not None and not self.board.read_only:
            result = self.board.result
            with suppress(OSError):
                forget_unseen(result.identity.machine_id, result.label, told.id)

    async def _offer(self, left: list[Transaction]) -> None:
        from gpudoctor.screens.recovery import RecoveryScreen, in_words

        if isinstance(self.screen, ModalScreen) or isinstance(self.focused, Input):
            self.notify(f"{in_words(left[0])}: h shows it", severity="warning", markup=False)
            return self._forget(left[0])
        for number, told in enumerate(left, 1):
            rest = len(left) - number
            ask = RecoveryScreen(told, self.board.label, rest, self.board.read_only)
            answer = await self._answer(ask)
            self._forget(told)
            if answer == "undo":
                return self._undo(self._known(told))
            if answer == "keep":
                self.confirm(ConfirmAsked(told))


def went_on(told: Transaction) -> bool:
    """Return whether it is applied, and nothing waits for a word about it."""
    return told.stands and told.state is State.APPLIED and told.timer is None


def is_leftover(told: Transaction) -> bool:
    """Return whether a transaction needs a word: interrupted, half undone, or waiting for one."""
    waits = told.state is State.APPLIED and told.timer is not None
    return told.stands and (told.interrupted or told.state is State.UNDO_FAILED or waits)
