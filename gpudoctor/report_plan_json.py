"""Plans, moves and transactions as the published models of `answers`."""

from collections.abc import Sequence

from gpudoctor.answers import (
    ByHandModel,
    ItemModel,
    ItemMoveModel,
    MoveModel,
    PendingPlanModel,
    PlanModel,
    RefusedModel,
    StateMoveModel,
    StepModel,
    TimerMoveModel,
    TransactionModel,
    WayModel,
)
from gpudoctor.model.pending import Pending
from gpudoctor.model.plan import ByHand, Item, Move, Plan, StateMoved, Step, TimerArmed, Transaction
from gpudoctor.report_plan import standing


def plan_model(plan: Plan, ways: Sequence[tuple[str, str]] = ()) -> PlanModel:
    """Return a plan as its published model."""
    return PlanModel(
        id=plan.id,
        host=plan.label,
        operator=plan.operator,
        machine_id=plan.machine_id,
        boot_id=plan.boot_id,
        hash=plan.hash,
        confirm_within=plan.confirm_within,
        steps=[_step(step) for step in plan.steps],
        by_hand=[_by_hand(one) for one in plan.by_hand],
        already=list(plan.already),
        refused=[RefusedModel(check=check, why=why) for check, why in plan.refused],
        other_ways=[WayModel(name=name, change=what) for name, what in ways],
        script=plan.script,
    )


def _step(step: Step) -> StepModel:
    return StepModel(
        check=step.check,
        change=step.title,
        side=step.side,
        risk=step.risk,
        needs=step.needs,
        caution=step.caution,
        proof=step.proof,
        unproven=step.unproven,
        items=[_item(item) for item in step.items],
    )


def _item(item: Item) -> ItemModel:
    return ItemModel(
        name=item.name,
        before=item.before,
        wanted=item.wanted,
        read=item.read,
        write=item.write,
        undo=item.undo,
        guard=item.guard,
        lasting=item.lasting,
    )


def _by_hand(one: ByHand) -> ByHandModel:
    return ByHandModel(
        check=one.check,
        change=one.change.title,
        commands=list(one.change.commands),
        undo=list(one.change.undo),
        risk=one.change.risk,
        needs=one.needs,
        caution=one.change.caution,
        observed=one.observed,
        expected=one.expected,
        targets=list(one.targets),
    )


def move_model(move: Move) -> MoveModel:
    """Return one thing that happened as its published model."""
    if isinstance(move, TimerArmed):
        return TimerMoveModel(timer=round(move.seconds, 2))
    if isinstance(move, StateMoved):
        return StateMoveModel(state=move.state, detail=move.detail)
    seconds = round(move.seconds, 2)
    return ItemMoveModel(item=move.number, phase=move.phase, seconds=seconds, detail=move.detail)


def transaction_model(one: Transaction) -> TransactionModel:
    """Return a transaction as its published model."""
    return TransactionModel(
        id=one.id,
        state=one.state,
        standing=standing(one),
        operator=one.operator,
        started=one.started,
        steps=list(one.steps),
        checks=list(one.checks),
        boot_id=one.boot_id,
        stands=one.stands,
        epoch_ended=one.epoch_ended,
        interrupted=one.interrupted,
        written=one.written,
        timer=None if one.timer is None else round(one.timer, 2),
    )


def pending_model(one: Pending) -> PendingPlanModel:
    """Return an accepted plan as its published model."""
    return PendingPlanModel(
        check=one.check,
        change=one.what,
        accepted=one.accepted,
        done=one.done,
        commands=list(one.commands),
        undo=list(one.undo),
    )
