"""The loop: a plan applied between two snapshots, for the command line and the screen alike."""

import asyncio
from collections.abc import AsyncIterator, Callable

from gpudoctor.audit import run_audit
from gpudoctor.hosts.target import Target
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Move, Plan, State, StateMoved
from gpudoctor.recording import Kind
from gpudoctor.snapshots.store import save
from gpudoctor.transaction import apply, confirm, watch


async def apply_between_snapshots(
    make_target: Callable[[], Target],
    plan: Plan,
    before: AuditResult,
    confirmed: asyncio.Event | None = None,
) -> AsyncIterator[Move]:
    """Keep the audit that the plan came from, apply, audit again, keep that; yield the journal.

    A plan with a timer waits for the event `confirmed`, then confirms over a new login; without
    it the target takes everything back. Raises Refusal before anything is written. Where the
    second snapshot fails the fix stands, and the last StateMoved says so. The demo host leaves
    none: its machine ends with the process.
    """
    if not before.simulated:
        try:
            await asyncio.to_thread(save, before, Kind.BEFORE, plan.id)
        except Refusal as refusal:
            raise Refusal(f"nothing was changed: {refusal.sentence}", refusal.code) from refusal
    state = State.PLANNED
    async for move in apply(make_target(), plan):
        state = move.state if isinstance(move, StateMoved) else state
        yield move
    if state is State.APPLIED and plan.confirm_within and confirmed is not None:
        async for move in _confirmed(make_target, plan, confirmed):
            state = move.state if isinstance(move, StateMoved) else state
            yield move
    if state in {State.APPLIED, State.CONFIRMED} and not before.simulated:
        try:
            after = await run_audit(make_target())
            await asyncio.to_thread(save, after, Kind.AFTER, plan.id)
        except Refusal as refusal:
            yield StateMoved(state, f"there is no snapshot after it: {refusal.sentence}")


async def _confirmed(
    make_target: Callable[[], Target], plan: Plan, confirmed: asyncio.Event
) -> AsyncIterator[Move]:
    """Wait for the operator or the timer, whichever comes first; yield how it ends."""
    word = asyncio.ensure_future(confirmed.wait())
    moves = watch(make_target(), plan.id)
    coming = asyncio.ensure_future(anext(moves, None))
    try:
        while True:
            await asyncio.wait({word, coming}, return_when=asyncio.FIRST_COMPLETED)
            if word.done() and not coming.done():
                yield await confirm(make_target(), plan.id)
                return
            move = coming.result()
            if move is None:
                return
            yield move
            coming = asyncio.ensure_future(anext(moves, None))
    finally:
        word.cancel()
        coming.cancel()
        await asyncio.gather(word, coming, return_exceptions=True)
        await moves.aclose()
