"""The loop: a plan applied between two snapshots, for the command line and the screen alike."""

import asyncio
from collections.abc import AsyncIterator, Callable

from gpudoctor.audit import run_audit
from gpudoctor.hosts.target import Target
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import ItemMoved, Plan, State, StateMoved
from gpudoctor.recording import Kind
from gpudoctor.snapshots.store import save
from gpudoctor.transaction import apply


async def apply_between_snapshots(
    make_target: Callable[[], Target], plan: Plan, before: AuditResult
) -> AsyncIterator[ItemMoved | StateMoved]:
    """Keep the audit that the plan came from, apply, audit again, keep that; yield the journal.

    Raises Refusal before anything is written. Where the second snapshot fails the fix stands, and
    the last StateMoved says so. The demo host leaves none: its machine ends with the process.
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
    if state is State.APPLIED and not before.simulated:
        try:
            after = await run_audit(make_target())
            await asyncio.to_thread(save, after, Kind.AFTER, plan.id)
        except Refusal as refusal:
            yield StateMoved(state, f"there is no snapshot after it: {refusal.sentence}")
