"""The verbs about what was applied: rollback undoes, confirm keeps, status tells, clean removes."""

import argparse
import asyncio
import contextlib
from collections.abc import Sequence

from gpudoctor.audit import run_audit
from gpudoctor.cli_ask import (
    FAILED,
    INTERRUPTED,
    REFUSED,
    UNREACHED,
    ask,
    command,
    refuse_read_only,
    unreached_is_refused,
    waiting,
)
from gpudoctor.cli_follow import Following, run_followed, say_all
from gpudoctor.model.error import INCOMPLETE, HostUnreachable, Refusal
from gpudoctor.model.pending import Pending
from gpudoctor.model.plan import State, StateMoved, Transaction
from gpudoctor.report_plan import STATES, about
from gpudoctor.snapshots.pending import pending
from gpudoctor.transaction import clean, confirm, transactions, undo


@unreached_is_refused()
def rollback_command(args: argparse.Namespace) -> int:
    """Undo a transaction, the last one that stands by default; 0 when every value is as before."""
    refuse_read_only(args)
    known = asyncio.run(transactions(args.make_target()))
    chosen = _chosen(known, args.transaction)
    if not args.json:
        print(about(chosen))
    following = Following(args)
    try:
        ask(args, "Put back what this transaction changed?")
        moves = undo(args.make_target(), chosen.id)
        run_followed(args, chosen.id, following, following.all_of(moves))
    except Refusal as refusal:
        code = REFUSED if refusal.code == UNREACHED else refusal.code
        with contextlib.suppress(OSError):  # nobody takes it; the sentence still comes on stderr
            _tell_rollback(args, chosen.id, following, code, refusal.sentence)
        raise
    ends = {State.UNDONE: 0, State.FAILED: FAILED}
    code = ends.get(following.state or State.PLANNED, INCOMPLETE)
    say_all(
        args, chosen.id, following, lambda: _tell_rollback(args, chosen.id, following, code, "")
    )
    return code


def _tell_rollback(
    args: argparse.Namespace, transaction: str, following: Following, code: int, error: str
) -> None:
    """With --json, say what was seen of an undo, also of one that a refusal ended."""
    if not args.json:
        return
    from gpudoctor.answers import RollbackAnswer
    from gpudoctor.report_plan_json import move_model

    told = [move_model(move) for move in following.moves]
    answer = RollbackAnswer(exit_code=code, transaction=transaction, moves=told, error=error)
    print(answer.model_dump_json(indent=2))


def _chosen(known: Sequence[Transaction], name: str | None) -> Transaction:
    """Return the transaction named, or the last that still stands. Raises Refusal."""
    if name is not None:
        return _named(known, name)
    standing = [one for one in known if one.stands]
    if not standing:
        raise Refusal("nothing of ours is applied there", REFUSED)
    return standing[-1]


def _named(known: Sequence[Transaction], name: str) -> Transaction:
    found = next((one for one in known if one.id == name), None)
    if found is None:
        there = ", ".join(one.id for one in known[-5:]) or "none"
        raise Refusal(f"no transaction {name!r} there; the last are: {there}", REFUSED)
    return found


@unreached_is_refused()
def confirm_command(args: argparse.Namespace) -> int:
    """Keep what was applied, the transaction that waits by default; the timer is disarmed."""
    refuse_read_only(args)
    try:
        chosen = _to_confirm(asyncio.run(transactions(args.make_target())), args.transaction)
        moved = _confirmed(args, chosen.id)
    except KeyboardInterrupt:
        tells = command(args, "status")
        raise Refusal(f"interrupted: `{tells}` tells how it stands", INTERRUPTED) from None
    if args.json:
        from gpudoctor.answers import ConfirmAnswer

        answer = ConfirmAnswer(transaction=chosen.id, state=moved.state)
        print(answer.model_dump_json(indent=2))
    else:
        print(f"{chosen.id}: {STATES[moved.state]}")
    return 0


def _confirmed(args: argparse.Namespace, transaction: str) -> StateMoved:
    """Confirm. Raises Refusal; a line lost on the way leaves unknown what stands."""
    try:
        return asyncio.run(confirm(args.make_target(), transaction))
    except HostUnreachable as lost:
        raise Refusal(lost.sentence, INCOMPLETE) from lost


def _to_confirm(known: list[Transaction], name: str | None) -> Transaction:
    chosen = waiting(known) if name is None else _named(known, name)
    if chosen is None:
        over = [one.state for one in known[-1:] if one.state is State.UNDONE]
        why = "; the last one was undone" if over else ""
        raise Refusal(f"nothing waits to be confirmed there{why}", REFUSED)
    return chosen


def status_command(args: argparse.Namespace) -> int:
    """Print what is applied, waits to be confirmed, was interrupted or is pending by hand."""
    known = asyncio.run(transactions(args.make_target()))
    seen = asyncio.run(run_audit(args.make_target(), ()))
    plans = pending(seen.identity.machine_id, seen.label)
    if args.json:
        from gpudoctor.answers import StatusAnswer
        from gpudoctor.report_plan_json import pending_model, transaction_model

        answer = StatusAnswer(
            host=seen.label,
            machine_id=seen.identity.machine_id,
            transactions=[transaction_model(one) for one in known],
            pending=[pending_model(one) for one in plans],
        )
        print(answer.model_dump_json(indent=2))
    else:
        print("\n".join(_status(args, seen.label, known, plans)))
    return 0


def _status(
    args: argparse.Namespace, label: str, known: list[Transaction], plans: Sequence[Pending]
) -> list[str]:
    lines = [f"{label}: {_number(known)}"]
    for one in known:
        lines.append(f"  {about(one)}")
        if one is waiting(known):
            lines.append(f"    to keep it: {command(args, 'confirm', one.id)}")
        if one.stands and (one.state is not State.UNDOING or one.interrupted):
            lines.append(f"    to take it back: {command(args, 'rollback', one.id)}")
    over = sum(not one.stands for one in known)
    if over:
        lines.append(f"{over} over and done with: {command(args, 'clean')}")
    for plan in plans:
        how = f"found done {plan.done}" if plan.done else "pending: the next audit tells"
        lines.append(f"  by hand: {plan.what} [{plan.check}], accepted {plan.accepted}; {how}")
    return lines


def _number(known: Sequence[Transaction]) -> str:
    if not known:
        return "nothing of ours is there"
    return "1 transaction" if len(known) == 1 else f"{len(known)} transactions"


@unreached_is_refused()
def clean_command(args: argparse.Namespace) -> int:
    """Remove what is ours from the target; 1 where something stands and stays for its undo."""
    refuse_read_only(args)
    known = asyncio.run(transactions(args.make_target()))
    stays = [one for one in known if one.stands]
    _refuse_waiting(args, known)
    if not args.json:
        _tell_clean(args, known, stays)
    gone: list[str] = []
    if args.forget or len(known) > len(stays):
        gone, stays = _cleaned(args, known, stays)
    code = REFUSED if stays else 0
    if args.json:
        from gpudoctor.answers import CleanAnswer
        from gpudoctor.report_plan_json import transaction_model

        left = [transaction_model(one) for one in stays]
        print(CleanAnswer(exit_code=code, removed=gone, stays=left).model_dump_json(indent=2))
    elif gone:
        print(f"removed: {', '.join(gone)}")
    return code


def _refuse_waiting(args: argparse.Namespace, known: list[Transaction]) -> None:
    """Raise a Refusal where forgetting would take its undo from a transaction with a timer."""
    waits = waiting(known)
    if args.forget and waits is not None:
        raise Refusal(
            f"nothing was removed: {waits.id} waits to be confirmed: "
            f"`{command(args, 'confirm', waits.id)}` or `{command(args, 'rollback', waits.id)}`",
            REFUSED,
        )


def _tell_clean(
    args: argparse.Namespace, known: Sequence[Transaction], stays: Sequence[Transaction]
) -> None:
    if not known:
        print("nothing of ours is there")
    for one in known:
        if one not in stays:
            print(f"goes: {about(one)}")
        elif args.forget:
            print(f"FORGOTTEN, its changes stay and cannot be undone any more: {about(one)}")
        else:
            print(f"stays, for its undo: {about(one)}")
            print(f"  {command(args, 'rollback', one.id)} takes it back")


def _cleaned(
    args: argparse.Namespace, known: Sequence[Transaction], stays: Sequence[Transaction]
) -> tuple[list[str], list[Transaction]]:
    """Ask, and remove. Raises Refusal."""
    number = len(known) if args.forget else len(known) - len(stays)
    what = "1 transaction" if number == 1 else f"{number} transactions"
    lost = f", {len(stays)} of which stand and could not be undone any more" if args.forget else ""
    ask(args, f"Remove {what} from there{lost if stays else ''}?", "nothing was removed")
    try:
        return asyncio.run(clean(args.make_target(), args.forget))
    except KeyboardInterrupt:
        tells = command(args, "status")
        raise Refusal(f"interrupted: `{tells}` tells what is left", INTERRUPTED) from None
