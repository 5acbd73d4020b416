"""Plans and transactions as text and JSON: the preview, and each step as it happens."""

from collections.abc import Iterator
from typing import Any

from gpudoctor.model.plan import Move, Plan, State, StateMoved, Step, TimerArmed, Transaction
from gpudoctor.text import one_line

SCHEMA_VERSION = 1
_PHASES = {
    "intent": "writing",
    "done": "done, read back",
    "ignored": "NOT TAKEN, reads back as",
    "complaint": "",
    "drift": "MOVED since the plan, is now",
    "undone": "put back, read back",
    "skipped": "skipped, the kernel does not allow it:",
    "held": "NOT PUT BACK now:",
    "foreign": "LEFT ALONE, somebody else set it to",
    "stuck": "NOT PUT BACK, still reads",
}
STATES = {
    State.APPLYING: "applying",
    State.APPLIED: "applied, every value read back",
    State.CONFIRMED: "confirmed: it stays",
    State.UNDOING: "undoing, newest first",
    State.UNDONE: "undone, every value is as before",
    State.FAILED: "failed and undone: every value is as before",
    State.UNDO_FAILED: "the undo is incomplete",
}


def preview(plan: Plan) -> str:
    """Return what would run, with its undo, risk and needs; then what would not, and why."""
    return "\n".join([*_heading(plan), *_steps(plan), *_others(plan)]) + "\n"


def _heading(plan: Plan) -> Iterator[str]:
    if plan.steps:
        values = "1 value" if len(plan.items) == 1 else f"{len(plan.items)} values"
        yield f"plan {plan.id} for {plan.label} ({values}, hash {plan.hash})"


def _steps(plan: Plan) -> Iterator[str]:
    for number, step in enumerate(plan.steps, 1):
        yield f"\n{number}. {step.title}   [{step.check}]"
        yield f"   risk {step.risk}, needs {step.needs}, runs as root on the {step.side}"
        if step.caution:
            yield f"   caution: {step.caution}"
        yield from _items(step)


def _items(step: Step) -> Iterator[str]:
    for item in step.items:
        yield f"   {item.name}: {item.before} -> {item.wanted}"
        yield f"     run   {item.write}"
        yield f"     undo  {item.undo}"


def _others(plan: Plan) -> Iterator[str]:
    for check in plan.already:
        yield f"{check}: already so, nothing to do"
    for check, why in plan.refused:
        yield f"{check}: refused: {why}"


def told(plan: Plan | None, move: Move) -> str:
    """Return one line about what happened."""
    if isinstance(move, TimerArmed):
        return f"the target takes everything back in {move.seconds:.0f} s, unless confirmed"
    if isinstance(move, StateMoved):
        return f"{STATES.get(move.state, move.state)}{': ' if move.detail else ''}{move.detail}"
    known = plan is not None and 0 < move.number <= len(plan.items)
    name = plan.items[move.number - 1].name if plan and known else f"value {move.number}"
    words = f"{_PHASES.get(move.phase, move.phase)} {move.detail}".strip()
    return f"  {move.seconds:6.2f} s  {name}: {words}"


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain values."""
    return {
        "id": plan.id,
        "host": plan.label,
        "operator": plan.operator,
        "machine_id": plan.machine_id,
        "boot_id": plan.boot_id,
        "hash": plan.hash,
        "steps": [_step_json(step) for step in plan.steps],
        "already": list(plan.already),
        "refused": [{"check": check, "why": why} for check, why in plan.refused],
        "script": plan.script,
    }


def _step_json(step: Step) -> dict[str, Any]:
    items = [
        {
            "name": item.name,
            "before": item.before,
            "wanted": item.wanted,
            "read": item.read,
            "write": item.write,
            "undo": item.undo,
        }
        for item in step.items
    ]
    return {
        "check": step.check,
        "change": step.title,
        "side": str(step.side),
        "risk": step.risk,
        "needs": str(step.needs),
        "caution": step.caution,
        "items": items,
    }


def move_json(move: Move) -> dict[str, Any]:
    """Return one thing that happened as plain values."""
    if isinstance(move, TimerArmed):
        return {"timer": round(move.seconds, 2)}
    if isinstance(move, StateMoved):
        return {"state": str(move.state), "detail": move.detail}
    return {
        "item": move.number,
        "phase": move.phase,
        "seconds": round(move.seconds, 2),
        "detail": move.detail,
    }


def about(transaction: Transaction) -> str:
    """Return a transaction in one line."""
    steps = "; ".join(transaction.steps) or "no steps"
    who = transaction.operator or "somebody"
    return one_line(
        f"{transaction.id} ({transaction.state}, {transaction.started}, {who}): {steps}", 300
    )
