"""The loop: a plan applied between two snapshots, for the command line and the screen alike."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from gpudoctor.audit import run_audit
from gpudoctor.comparing import compared
from gpudoctor.hosts.target import Target
from gpudoctor.journal import FINAL
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.diff import Moved
from gpudoctor.model.error import INCOMPLETE, Refusal
from gpudoctor.model.plan import Move, Plan, State, StateMoved
from gpudoctor.model.snapshot import Kind
from gpudoctor.report_diff import sentence
from gpudoctor.snapshots.diff import diff
from gpudoctor.snapshots.plans import drop as drop_plan
from gpudoctor.snapshots.plans import keep as keep_plan
from gpudoctor.snapshots.store import note_begun, note_ended, save
from gpudoctor.transaction import apply, confirm, watch


async def apply_between_snapshots(
    make_target: Callable[[], Target],
    plan: Plan,
    before: AuditResult,
    confirmed: asyncio.Event | None = None,
) -> AsyncGenerator[Move, None]:
    """Keep the audit that the plan came from, apply, audit again, keep that; yield the journal.

    A plan with a timer waits for the event `confirmed`, then confirms over a new login; without
    it the target takes everything back. Raises Refusal before anything is written. Where the
    second snapshot fails the fix stands, and the last StateMoved says so. The demo host leaves
    none: its machine ends with the process.
    """
    if not before.simulated:
        try:
            await asyncio.to_thread(save, before, Kind.BEFORE, plan.id)
            await asyncio.to_thread(keep_plan, plan)
        except Refusal as refusal:
            raise Refusal(f"nothing was changed: {refusal.sentence}", refusal.code) from refusal
        await asyncio.to_thread(note_begun, plan)
    state = State.PLANNED
    try:
        async with aclosing(apply(make_target(), plan)) as moves:
            async for move in moves:
                state = move.state if isinstance(move, StateMoved) else state
                yield move
        if state is State.APPLIED and plan.confirm_within and confirmed is not None:
            async with aclosing(_confirmed(make_target, plan, confirmed)) as moves:
                async for move in moves:
                    state = move.state if isinstance(move, StateMoved) else state
                    yield move
    except Refusal as refusal:
        if refusal.code != INCOMPLETE:
            note_ended(plan)
        if refusal.code == 1 and state is State.PLANNED:  # nothing was written
            drop_plan(plan.id)
        raise
    note_ended(plan)
    if state in {State.UNDONE, State.FAILED}:
        drop_plan(plan.id)
    if state in {State.APPLIED, State.CONFIRMED} and not before.simulated:
        if said := await _looked_after(make_target, plan, before):
            yield StateMoved(state, said)


async def _looked_after(make_target: Callable[[], Target], plan: Plan, before: AuditResult) -> str:
    """Keep the audit of after the writes; return what the operator must know of it, or nothing."""
    try:
        after = await run_audit(make_target())
        await asyncio.to_thread(save, after, Kind.AFTER, plan.id)
    except Refusal as refusal:
        return f"there is no snapshot after it: {refusal.sentence}"
    grew = await asyncio.to_thread(_grown, before, after)
    return f"error counters grew meanwhile: {grew}" if grew else ""


def _grown(before: AuditResult, after: AuditResult) -> str:
    """Return which error counters (AER, ECC, Xid) grew from before the writes to after them."""
    found = diff(compared(before), compared(after)).counters
    return "; ".join(sentence(one) for one in found if one.moved is Moved.GREW)


async def _confirmed(
    make_target: Callable[[], Target], plan: Plan, confirmed: asyncio.Event
) -> AsyncGenerator[Move, None]:
    """Wait for the operator or the timer, whichever comes first; yield how it ends.

    Raises Refusal (code 1) where the word comes too late.
    """
    word = asyncio.ensure_future(confirmed.wait())
    moves = watch(make_target(), plan.id)
    coming = asyncio.ensure_future(anext(moves, None))
    try:
        while True:
            await asyncio.wait({word, coming}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                yield await confirm(make_target(), plan.id)
                return
            move = coming.result()
            if move is None:
                return
            yield move
            if isinstance(move, StateMoved) and move.state in FINAL - {State.APPLIED}:
                return
            coming = asyncio.ensure_future(anext(moves, None))
    finally:
        word.cancel()
        coming.cancel()
        await asyncio.gather(word, coming, return_exceptions=True)
        await moves.aclose()
