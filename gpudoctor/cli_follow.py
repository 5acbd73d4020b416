"""A transaction followed to its end: its lines as they come, and what is said when cut off."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

from gpudoctor.cli_ask import INTERRUPTED, UNREACHED, command, undoing
from gpudoctor.cli_fault import fault_sentence, traced
from gpudoctor.model.error import INCOMPLETE, Refusal
from gpudoctor.model.plan import ItemMoved, Move, Plan, State, StateMoved, TimerArmed
from gpudoctor.report_plan import STATES, told

_LONG, _EACH = 24, 25
_OVER = {State.UNDONE, State.FAILED}
_COUNTED = {"done": "written and read back", "undone": "put back and read back"}


class Following:
    """The moves of one command: kept for --json, else printed; of a long plan only a count.

    `deadline` is when the target takes everything back, by the event loop's clock; `waits` is set
    once all is applied and only that is to come.
    """

    def __init__(self, args: argparse.Namespace, plan: Plan | None = None) -> None:
        """Take the options, and the plan where this command made it."""
        self.moves: list[Move] = []
        self.state: State | None = None
        self.deadline: float | None = None
        self.waits = asyncio.Event()
        self._quiet = bool(args.json)
        self.plan = plan
        self._counts = dict.fromkeys(_COUNTED, 0)

    def take(self, move: Move) -> None:
        """Keep a move and print it."""
        self.moves.append(move)
        if isinstance(move, StateMoved):
            self.state = move.state
        if isinstance(move, TimerArmed):
            self.deadline = asyncio.get_running_loop().time() + move.seconds
        if self.state is State.APPLIED and self.deadline is not None:
            self.waits.set()
        line = self._line(move)
        if line and not self._quiet:
            print(line, flush=True)

    def _line(self, move: Move) -> str:
        total = len(self.plan.items) if self.plan else 0
        if not isinstance(move, ItemMoved) or total <= _LONG:
            return told(self.plan, move)
        if move.phase == "intent":
            return ""
        if move.phase not in self._counts:
            return told(self.plan, move)
        self._counts[move.phase] += 1
        count = self._counts[move.phase]
        if count % _EACH and count != total:
            return ""
        return f"  {move.seconds:6.2f} s  {count} of {total} values {_COUNTED[move.phase]}"

    async def all_of(self, moves: AsyncIterator[Move]) -> None:
        """Follow moves to their end."""
        async for move in moves:
            self.take(move)


def run_followed(
    args: argparse.Namespace, transaction: str, following: Following, work: Awaitable[None]
) -> None:
    """Run what follows a transaction; where that is cut off, say how to go on."""

    async def run() -> None:
        await work

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        raise Refusal(_cut_off(args, transaction, following), INTERRUPTED) from None
    except Refusal as refusal:
        if refusal.code != UNREACHED or not following.moves:
            raise
        # something may have been written: no mere refusal
        how = _cut_off(args, transaction, following)
        raise Refusal(f"{refusal.sentence}; {how}", INCOMPLETE) from refusal
    except Exception as fault:  # the target does not stop for it
        raise broken(args, transaction, following, fault) from fault


def say_all(
    args: argparse.Namespace, transaction: str, following: Following, say: Callable[[], None]
) -> None:
    """Say the last words. Raises Refusal where nobody takes them: it tells what stands."""
    try:
        say()
        sys.stdout.flush()
    except OSError as fault:
        raise broken(args, transaction, following, fault) from fault


def broken(
    args: argparse.Namespace, transaction: str, following: Following, fault: Exception
) -> Refusal:
    """Return what to say of a fault that came while a transaction was followed, or after it.

    Raises the fault itself where its traceback is wanted.
    """
    if traced():
        raise fault
    how = f"whether {transaction} began is not known: `{command(args, 'status')}` tells"
    if following.moves:
        how = _cut_off(args, transaction, following)
    return Refusal(f"{fault_sentence(fault)}; {how}", INCOMPLETE)


def _cut_off(args: argparse.Namespace, transaction: str, following: Following) -> str:
    if following.state in _OVER:
        return f"transaction {transaction} is {STATES[following.state]}"
    if following.plan is None:
        return (
            f"no longer watching; the undo of {transaction} goes on there; "
            f"`{command(args, 'status')}` tells how it stands"
        )
    if following.deadline is not None and following.state is State.APPLIED:
        return (
            f"no longer watching; the target takes transaction {transaction} back, unless "
            f"`{command(args, 'confirm', transaction)}` comes in time"
        )
    stands = following.state in {State.APPLIED, State.CONFIRMED}
    how = f"is {STATES[following.state]}" if following.state and stands else "goes on there"
    return f"no longer watching; transaction {transaction} {how}; {undoing(args, transaction)}"
