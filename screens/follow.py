"""Follow an audit and a plan onto the board; the engine is imported when used."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal, UnknownHostKey
from gpudoctor.model.finding import Panel
from gpudoctor.screens.board import Board
from gpudoctor.text import one_line

if TYPE_CHECKING:
    from gpudoctor.audit import Audit
    from gpudoctor.capture import Captured
    from gpudoctor.hosts.target import Target

_CLOSE_SECONDS = 4.0


class Follower:
    """What works beside the screens; it writes the board and touches no widget."""

    def __init__(self, board: Board, make_target: "Callable[[], Target]") -> None:
        """Take the board, and how to make a target for each audit and capture."""
        self._board = board
        self._make_target = make_target
        self._audit: Audit | None = None
        self._target: Target | None = None
        self._captured: tuple[AuditResult, asyncio.Task[Captured]] | None = None

    async def audit(self, panels: Iterable[Panel] = Panel) -> None:
        """Audit these panels to the end. Raises UnknownHostKey: the operator must decide."""
        board, panels = self._board, tuple(panels)
        await self.forget()
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
            board.end(f"a fault of gpudoctor's own ended the audit: {named(error)}")
        finally:
            await self._close_audit()
            if board.running:
                board.end()

    def _new_audit(self, panels: Sequence[Panel]) -> "Audit":
        from gpudoctor.audit import Audit
        from gpudoctor.hosts.recorded import RecordedTarget

        self._target = target = self._make_target()
        self._board.label, self._board.simulated = target.label, target.simulated
        self._board.recorded = isinstance(target, RecordedTarget)
        return Audit(target, panels)

    async def close(self) -> None:
        """End what an audit or a capture runs on the target, within a limit."""
        await self.forget()
        await self._close_audit()

    async def _close_audit(self) -> None:
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

            await asyncio.to_thread(trust, error, file or _known_hosts())
        except Refusal as refusal:
            return refusal.sentence
        except OSError as failure:
            return f"the key could not be kept: {failure.strerror}"
        return ""

    async def plan(self) -> None:
        """Plan the board's selection; a newer selection wins. Raises UnknownHostKey.

        All that the findings offer to change is captured once; every selection plans from that.
        """
        board = self._board
        board.plan, board.plan_problem = None, ""
        board.touch()
        chosen, result = board.chosen, board.result
        if not chosen or result is None or board.hold:
            return
        try:
            from gpudoctor.plan import make_plan

            captured = await self._values(result)
            if board.chosen == chosen:
                board.plan = make_plan(result, captured, chosen)
        except UnknownHostKey as error:
            board.plan_problem = error.sentence
            raise
        except Refusal as refusal:
            board.plan_problem = refusal.sentence
        except Exception as error:  # no traceback ever reaches an operator
            board.plan_problem = f"a fault of gpudoctor's own: {named(error)}"
        finally:
            board.touch()

    async def _values(self, result: AuditResult) -> "Captured":
        """Return the values now of all that can be changed, read once for one audit's result."""
        if self._captured is None or self._captured[0] is not result:
            await self.forget()
            task = asyncio.ensure_future(self._capture(result))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._captured = (result, task)
        task = self._captured[1]
        await asyncio.wait([task])  # a newer selection ends this wait, not the task
        if task.exception() is not None:
            self._captured = None
        return task.result()

    async def _capture(self, result: AuditResult) -> "Captured":
        self._board.capturing = True
        self._board.touch()
        try:
            return await self.values_of(result)
        finally:
            self._board.capturing = False
            self._board.touch()

    async def values_of(self, result: AuditResult) -> "Captured":
        """Read the values now of all that an audit's findings can change. Raises Refusal."""
        from gpudoctor.capture import capture, changes_of
        from gpudoctor.hosts.target import LiveTarget

        target = await asyncio.to_thread(self._make_target)
        work = capture(target, changes_of(result.findings))
        if isinstance(target, LiveTarget):
            return await work
        return await asyncio.to_thread(asyncio.run, work)  # it computes, and would block

    @property
    def basis(self) -> "tuple[AuditResult, Captured] | None":
        """Return the audit and the values that a plan now comes from, once they are there."""
        if self._captured is None or not self._captured[1].done():
            return None
        result, task = self._captured
        return None if task.cancelled() or task.exception() else (result, task.result())

    async def forget(self) -> None:
        """Drop the captured values, ending a capture under way, within a limit."""
        kept, self._captured = self._captured, None
        if kept is not None and not kept[1].done():
            kept[1].cancel()
            await asyncio.wait([kept[1]], timeout=_CLOSE_SECONDS)


def named(error: Exception) -> str:
    """Return a fault of ours in one line."""
    return one_line(f"{type(error).__name__}: {error}", 240)


def _known_hosts() -> Path:
    """Return the operator's own; asked for only when needed: a user may have no home."""
    return Path("~/.ssh/known_hosts").expanduser()
