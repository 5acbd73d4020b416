"""Follow an audit, a plan and a transaction onto the board; the engine is imported when used."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.model.error import Refusal, UnknownHostKey
from gpudoctor.model.finding import Panel
from gpudoctor.model.plan import Move, Plan
from gpudoctor.screens.board import Board
from gpudoctor.text import one_line

if TYPE_CHECKING:
    from gpudoctor.audit import Audit
    from gpudoctor.hosts.target import Target

_CLOSE_SECONDS = 4.0
_KNOWN_HOSTS = Path.home() / ".ssh" / "known_hosts"


class Follower:
    """What works beside the screens; it writes the board and touches no widget."""

    def __init__(self, board: Board, make_target: "Callable[[], Target]") -> None:
        """Take the board, and how to make a target for each audit and transaction."""
        self._board = board
        self._make_target = make_target
        self._audit: Audit | None = None
        self._target: Target | None = None

    async def audit(self, panels: Iterable[Panel] = Panel) -> None:
        """Audit these panels to the end. Raises UnknownHostKey: the operator must decide."""
        board, panels = self._board, tuple(panels)
        board.begin(panels)
        try:
            self._audit = audit = await asyncio.to_thread(self._new_audit, panels)
            async for event in audit.run():
                board.take(event)
        except UnknownHostKey as error:
            board.end(error.sentence)
            raise
        except Refusal as refusal:
            board.end(refusal.sentence)
        except Exception as error:  # no traceback ever reaches an operator
            board.end(f"a fault of gpudoctor's own ended the audit: {_named(error)}")
        finally:
            await self.close()
            if board.running:
                board.end()

    def _new_audit(self, panels: Sequence[Panel]) -> "Audit":
        from gpudoctor.audit import Audit

        self._target = target = self._make_target()
        self._board.label, self._board.simulated = target.label, target.simulated
        return Audit(target, panels)

    async def close(self) -> None:
        """End what the audit runs on the target, within a limit."""
        audit, self._audit = self._audit, None
        if audit is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await audit.close()
        except (TimeoutError, Refusal, OSError):
            return

    async def trust(self, error: UnknownHostKey) -> str:
        """Add the server's key to the operator's known hosts; return why not, where it fails."""
        transport = getattr(self._target, "transport", None)
        file = getattr(transport, "known_hosts_file", None)
        try:
            from gpudoctor.hosts.known_hosts import trust

            await asyncio.to_thread(trust, error, file or _KNOWN_HOSTS)
        except Refusal as refusal:
            return refusal.sentence
        except OSError as failure:
            return f"the key could not be kept: {failure.strerror}"
        return ""

    async def plan(self) -> None:
        """Plan the board's selection; a newer selection wins."""
        board = self._board
        chosen, result = board.chosen, board.result
        board.plan, board.plan_problem = None, ""
        board.touch()
        if not chosen or result is None:
            return
        plan, problem = None, ""
        try:
            from gpudoctor.capture import capture_chosen
            from gpudoctor.plan import make_plan

            captured = await capture_chosen(self._make_target(), result, chosen)
            plan = make_plan(result, captured, chosen)
        except Refusal as refusal:
            problem = refusal.sentence
        except Exception as error:  # no traceback ever reaches an operator
            problem = f"a fault of gpudoctor's own: {_named(error)}"
        if board.chosen == chosen:
            board.plan, board.plan_problem = plan, problem
            board.touch()

    async def apply(self, plan: Plan) -> None:
        """Apply a plan; its journal goes to the board."""
        await self._transact(lambda: self._applied(plan))

    async def undo(self) -> None:
        """Undo the transaction on the board."""
        applying = self._board.applying
        if applying is None:
            return
        applying.busy = True
        number = applying.plan.id
        await self._transact(lambda: self._undone(number))

    def _applied(self, plan: Plan) -> AsyncIterator[Move]:
        from gpudoctor.loop import apply_between_snapshots

        assert self._board.result is not None
        return apply_between_snapshots(self._make_target, plan, self._board.result)

    def _undone(self, transaction: str) -> AsyncIterator[Move]:
        from gpudoctor.transaction import undo

        return undo(self._make_target(), transaction)

    async def _transact(self, run: Callable[[], AsyncIterator[Move]]) -> None:
        board = self._board
        applying = board.applying
        assert applying is not None
        board.touch()
        try:
            async for move in run():
                applying.take(move)
                board.touch()
        except Refusal as refusal:
            applying.refused = refusal.sentence
        except Exception as error:  # no traceback ever reaches an operator
            applying.refused = f"a fault of gpudoctor's own: {_named(error)}"
        finally:
            applying.busy = False
            board.touch()


def _named(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}", 240)
