"""A transaction on the simulated machine: what the target does there, timer and all."""

import asyncio
import time
from collections.abc import AsyncIterator

from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.journal import FINAL, moves, parse, since_applied, tell
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Move, Plan, State, StateMoved, Transaction
from gpudoctor.text import one_line
from gpudoctor.transaction_script import Places
from gpudoctor.transaction_simulated_run import (
    ARMED,
    BOOT_ID,
    PLANS,
    SimulatedRun,
    entry,
    journal,
    names,
    utc,
)

_LOOK_SECONDS = 0.1


async def apply_simulated(
    machine: SimulatedMachine, plan: Plan, places: Places
) -> AsyncIterator[Move]:
    """Yield what the script would journal while applying. Raises Refusal as it would."""
    _expire(machine, places)
    PLANS[plan.id] = plan
    machine.files[places.script(plan.id)] = plan.script.encode()
    run = SimulatedRun(machine, plan, places)
    for move in run.watch(run.apply()):
        yield move


async def undo_simulated(
    machine: SimulatedMachine, transaction: str, places: Places
) -> AsyncIterator[Move]:
    """Yield what the script would journal while undoing. Raises Refusal as it would."""
    run = SimulatedRun(machine, PLANS[transaction], places)
    for move in run.watch(run.undo()):
        yield move


async def watch_simulated(
    machine: SimulatedMachine, transaction: str, places: Places
) -> AsyncIterator[Move]:
    """Yield what comes after `applied` until a transaction is over, looking now and then."""
    seen = 0
    while True:
        _expire(machine, places)
        lines = since_applied(parse(journal(machine, transaction, places)))
        for move in moves(lines[seen:], 0.0):
            yield move
            if isinstance(move, StateMoved) and move.state in FINAL - {State.APPLIED}:
                return
        seen = len(lines)
        await asyncio.sleep(_LOOK_SECONDS)


def confirm_simulated(machine: SimulatedMachine, transaction: str, places: Places) -> StateMoved:
    """Keep a transaction, as the script does. Raises Refusal."""
    known = {t.id: t.state for t in told_simulated(machine, places)}
    if transaction not in known:
        raise Refusal(f"there is no transaction {one_line(transaction, 60)} there", 1)
    if known[transaction] is State.CONFIRMED:
        return StateMoved(State.CONFIRMED)
    if known[transaction] is State.PLANNED:
        raise Refusal("nothing was applied", 1)
    if known[transaction] is not State.APPLIED:
        raise Refusal(
            f"this transaction is {known[transaction]}, not applied: there is nothing to confirm", 1
        )
    ARMED.pop(transaction, None)
    run = SimulatedRun(machine, PLANS[transaction], places)
    list(run.watch(iter([entry(f"state {State.CONFIRMED} {utc()}")])))
    return StateMoved(State.CONFIRMED)


def clean_simulated(machine: SimulatedMachine, transactions: list[str], places: Places) -> None:
    """Remove the folders of these transactions."""
    for transaction in transactions:
        folder = f"{places.folder(transaction)}/"
        for path in [path for path in machine.files if path.startswith(folder)]:
            del machine.files[path]
        PLANS.pop(transaction, None)


def told_simulated(machine: SimulatedMachine, places: Places) -> list[Transaction]:
    """Return the transactions that the machine keeps."""
    _expire(machine, places)
    return [
        tell(
            name,
            parse(journal(machine, name, places)),
            machine.text(BOOT_ID) or "",
            time.monotonic(),
            alive=False,
            waits=name in ARMED,
        )
        for name in names(machine, places)
    ]


def _expire(machine: SimulatedMachine, places: Places) -> None:
    """Do what a timer on a real target does, once its time has come."""
    for transaction, end in list(ARMED.items()):
        if time.monotonic() >= end and places.journal(transaction) in machine.files:
            run = SimulatedRun(machine, PLANS[transaction], places)
            list(run.watch(run.fire()))
