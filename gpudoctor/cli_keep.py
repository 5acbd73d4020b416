"""Keep it or not: the question while the target counts, and what follows from the answer."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from enum import Enum

from gpudoctor.cli_ask import REFUSED, is_yes
from gpudoctor.cli_follow import Following
from gpudoctor.hosts.target import Target
from gpudoctor.loop import apply_between_snapshots
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import INCOMPLETE, Refusal
from gpudoctor.model.plan import Plan
from gpudoctor.transaction import undo, watch

# How long a timer may take to put everything back, in seconds.
_LATE_SECONDS = 180.0


class Answer(Enum):
    """What the operator said of a transaction that waits to be confirmed."""

    KEEP = "keep"
    TAKE_BACK = "take back"
    NONE = "none"


async def apply_and_ask(
    make_target: Callable[[], Target], plan: Plan, before: AuditResult, following: Following
) -> Answer:
    """Apply a plan with a timer, ask whether to keep it, and follow it to its end.

    A no takes everything back at once; without an answer the target does. Raises Refusal.
    """
    confirmed = asyncio.Event()
    moves = apply_between_snapshots(make_target, plan, before, confirmed)
    coming = asyncio.ensure_future(following.all_of(moves))
    asked = asyncio.ensure_future(_asked(following))
    try:
        await asyncio.wait({coming, asked}, return_when=asyncio.FIRST_COMPLETED)
        answer = Answer.NONE if coming.done() else asked.result()
        if answer is Answer.TAKE_BACK:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
            await following.all_of(undo(make_target(), plan.id))
        elif answer is Answer.KEEP:
            confirmed.set()
            await _kept(make_target, plan, coming, following)
        else:
            await _in_time(coming, plan)
        return answer
    finally:
        coming.cancel()
        asked.cancel()
        await asyncio.gather(coming, asked, return_exceptions=True)


async def _kept(
    make_target: Callable[[], Target],
    plan: Plan,
    coming: "asyncio.Future[None]",
    following: Following,
) -> None:
    """Wait until it is confirmed; where that came too late, follow how the target undoes it."""
    try:
        await coming
    except Refusal as late:
        if late.code != REFUSED:
            raise
        _say(f"not confirmed: {late.sentence}\n")
        await _in_time(asyncio.ensure_future(following.all_of(watch(make_target(), plan.id))), plan)


async def _in_time(coming: "asyncio.Future[None]", plan: Plan) -> None:
    """Wait for the end of a timer's undo. Raises Refusal where it does not come."""
    try:
        async with asyncio.timeout(plan.confirm_within + _LATE_SECONDS):
            await coming
    except TimeoutError:
        raise Refusal(
            f"nothing was heard of the timer of {plan.id}: `gpudoctor status` tells how it stands, "
            f"`gpudoctor rollback {plan.id}` takes it back",
            INCOMPLETE,
        ) from None


async def _asked(following: Following) -> Answer:
    """Ask once all is applied."""
    await following.waits.wait()
    assert following.deadline is not None
    return await ask_to_keep(following.deadline)


async def ask_to_keep(deadline: float) -> Answer:
    """Ask at the terminal, telling the seconds left until `deadline` (the event loop's clock).

    NONE where the time is over, the terminal has gone, or its input has ended.
    """
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()
    handle = sys.stdin.fileno()
    _forget_typed(handle)
    _say(f"{_question(deadline)} ")
    loop.add_reader(handle, _read_into, line, handle)
    try:
        while not line.done() and loop.time() < deadline:
            await asyncio.wait({line}, timeout=min(1.0, max(0.0, deadline - loop.time())))
            if not line.done() and os.environ.get("TERM", "dumb") != "dumb":
                _say(f"\x1b7\r{_question(deadline)}\x1b8")  # beside what is being typed
    finally:
        loop.remove_reader(handle)
        if not line.done() or not line.result():
            _say("\n")
    raw = line.result() if line.done() else b""
    if not raw:
        _say("no answer: the target takes everything back\n")
        return Answer.NONE
    return Answer.KEEP if is_yes(raw.decode("utf-8", "replace")) else Answer.TAKE_BACK


def _question(deadline: float) -> str:
    left = max(0.0, deadline - asyncio.get_running_loop().time())
    return f"Keep it? [y/N] (the target takes everything back in {left:4.0f} s)"


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # a terminal that has gone: the timer decides
        sys.stderr.write(text)
        sys.stderr.flush()


def _read_into(line: "asyncio.Future[bytes]", handle: int) -> None:
    """Take the line that the terminal has; an end of input is an empty one."""
    try:
        raw = os.read(handle, 1024)
    except OSError:
        raw = b""
    if not line.done():
        line.set_result(raw)


def _forget_typed(handle: int) -> None:
    """Drop what was typed before the question: it cannot be its answer."""
    import termios

    with contextlib.suppress(termios.error):
        termios.tcflush(handle, termios.TCIFLUSH)
