"""What `fix` shows before it asks, and what it says in the end: as text, or as JSON."""

import argparse
import contextlib
import sys
from dataclasses import dataclass, field

from gpudoctor.cli_ask import REFUSED, UNREACHED, at_terminal, command, undoing
from gpudoctor.cli_fault import complain
from gpudoctor.cli_follow import Following
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Plan, State
from gpudoctor.report_plan import preview

KEPT = frozenset({State.APPLIED, State.CONFIRMED})


@dataclass(slots=True)
class Fix:
    """One run of `fix`: the plan, the one that makes it last, and what became of both."""

    args: argparse.Namespace
    result: AuditResult
    plan: Plan
    ways: list[tuple[str, str]] = field(default_factory=list)
    lasting: Plan | None = None
    without: tuple[str, ...] = ()
    code: int = 0
    following: Following | None = None
    lasting_following: Following | None = None
    pending: bool = False
    error: str = ""

    @property
    def waits(self) -> bool:
        """Return whether it is applied, and the target's timer runs on without us."""
        state = self.following.state if self.following else None
        return state is State.APPLIED and self.plan.confirm_within > 0


def show(fix: Fix) -> None:
    """Print the preview; with --json only where somebody is asked, beside the JSON."""
    if fix.args.json and (fix.args.yes or not at_terminal()):
        return
    out = sys.stderr if fix.args.json else sys.stdout
    out.write(preview(fix.plan, fix.ways))
    if fix.lasting is not None:
        out.write("\nthen, to outlast a reboot, once that is kept:\n")
        out.write(preview(fix.lasting, timer=False))
    for title in fix.without:
        out.write(f"does not outlast a reboot, there is no persistent form: {title}\n")
    out.flush()


def tell(fix: Fix) -> None:
    """Say what stands now, and how to go on."""
    if fix.error:
        complain(fix.error)
    if fix.args.json:
        _print_json(fix)
        return
    if fix.plan.by_hand and fix.result.simulated:
        print("the simulated host ends with this command: nothing by hand is pending")
    if fix.pending:
        print("pending: do it by hand; the next audit tells whether it was done")
    if fix.waits and not fix.result.simulated:
        print(f"NOT KEPT YET: the target takes everything back {fix.plan.confirm_within} s after")
        print(f"it began, unless you confirm: {command(fix.args, 'confirm', fix.plan.id)}")
    if fix.following is None or fix.following.state not in KEPT:
        return
    if fix.lasting_following is not None and fix.lasting is not None:
        _tell_lasting(fix, fix.lasting.id, fix.lasting_following.state)
    print(undoing(fix.args, fix.plan.id))


def _tell_lasting(fix: Fix, transaction: str, state: State | None) -> None:
    if state not in KEPT:
        print("what it does until the next reboot stays; only what makes it last did not go well")
    if state not in {None, State.UNDONE, State.FAILED}:
        print(f"what makes it last: {undoing(fix.args, transaction)}")


def tell_refused(fix: Fix, refusal: Refusal) -> None:
    """With --json, say all that is known of a run that a refusal ends; main says its sentence."""
    if not fix.args.json:
        return
    fix.code = REFUSED if refusal.code == UNREACHED else refusal.code
    fix.error = refusal.sentence
    with contextlib.suppress(OSError):  # nobody takes it; the sentence still comes on stderr
        _print_json(fix)


def _may_stand(fix: Fix) -> bool:
    """Return whether something was written that is not known to be taken back."""
    following = fix.following
    if following is None or following.state in {State.UNDONE, State.FAILED}:
        return False
    return following.state is not None or (bool(following.moves) and fix.code != REFUSED)


def _print_json(fix: Fix) -> None:
    from gpudoctor.answers import FixAnswer, LastingModel
    from gpudoctor.report_plan_json import move_model, plan_model

    moves = fix.following.moves if fix.following else []
    later = fix.lasting_following.moves if fix.lasting_following else []
    lasting = None
    if fix.lasting is not None:
        lasting = LastingModel(
            plan=plan_model(fix.lasting),
            moves=[move_model(move) for move in later],
        )
    answer = FixAnswer(
        exit_code=fix.code,
        plan=plan_model(fix.plan, fix.ways),
        moves=[move_model(move) for move in moves],
        persist=lasting,
        not_lasting=list(fix.without),
        confirm=command(fix.args, "confirm", fix.plan.id) if fix.waits else "",
        undo=command(fix.args, "rollback", fix.plan.id) if _may_stand(fix) else "",
        pending=fix.pending,
        error=fix.error,
    )
    print(answer.model_dump_json(indent=2))
