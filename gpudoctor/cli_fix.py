"""The verbs that plan and apply: plan shows, fix applies, reads back and keeps or undoes."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from gpudoctor.audit import run_audit
from gpudoctor.capture import capture_chosen
from gpudoctor.checks import by_id, known_check
from gpudoctor.cli_ask import (
    FAILED,
    INTERRUPTED,
    REFUSED,
    UNREACHED,
    ask,
    at_terminal,
    confirm_seconds,
    refuse_blind,
    refuse_read_only,
    refuse_unfinished,
    unreached_is_refused,
)
from gpudoctor.cli_fault import fault_sentence, nothing_changed, traced
from gpudoctor.cli_fix_told import Fix, show, tell, tell_refused
from gpudoctor.cli_follow import Following, run_followed, say_all
from gpudoctor.cli_keep import Answer, apply_and_ask
from gpudoctor.cli_persist import left_out, refuse_passing
from gpudoctor.hosts.root_shell import require_root
from gpudoctor.loop import apply_between_snapshots
from gpudoctor.model import Facts, Panel, Status, Unknown
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import INCOMPLETE, Refusal, WrongUsage
from gpudoctor.model.plan import Plan, State, Transaction
from gpudoctor.plan import make_plan, persistent
from gpudoctor.probes.server_metrics import DECODE_SPEED
from gpudoctor.report_plan import other_ways, preview
from gpudoctor.transaction import transactions


def plan_command(args: argparse.Namespace) -> int:
    """Print what would run, and its undo: all that can be fixed, or the checks named."""
    checks = _known(args.checks)
    result = asyncio.run(run_audit(args.make_target(), _panels(checks)))
    chosen = checks or _fixable(result)
    captured = asyncio.run(capture_chosen(args.make_target(), result, chosen))
    plan = make_plan(result, captured, chosen)
    ways = other_ways(plan, result.findings, chosen)
    if args.shell:
        sys.stdout.write(plan.script)
        _tell_unplanned(plan)
    elif args.json:
        from gpudoctor.answers import PlanAnswer
        from gpudoctor.report_plan_json import plan_model

        print(PlanAnswer(plan=plan_model(plan, ways)).model_dump_json(indent=2))
    else:
        some = plan.steps or plan.by_hand or checks
        sys.stdout.write(preview(plan, ways) if some else "nothing here can be fixed\n")
    return REFUSED if plan.refused else 0


def _tell_unplanned(plan: Plan) -> None:
    """Say on stderr what the script does not hold."""
    for one in plan.by_hand:
        sys.stderr.write(f"{one.check}: by hand: `gpudoctor plan {one.check}` prints it\n")
    sys.stderr.write("".join(f"{check}: refused: {why}\n" for check, why in plan.refused))


@unreached_is_refused()
def fix_command(args: argparse.Namespace) -> int:
    """Apply the fixes of the checks named; 0 when all read back, or were so already."""
    with nothing_changed():
        fix, known = _looked(args)
        show(fix)
    try:
        refuse_passing(args, fix.plan, fix.result, known)
        _carry_out(fix)
    except Refusal as refusal:
        tell_refused(fix, refusal)
        raise
    _tell(fix)
    return fix.code


def _looked(args: argparse.Namespace) -> tuple[Fix, list[Transaction]]:
    """Return what is planned, and the transactions that the target keeps. Raises Refusal."""
    checks = _known(args.checks)
    refuse_read_only(args)
    seconds = confirm_seconds(vars(args).get("confirm_within"))
    result = asyncio.run(run_audit(args.make_target()))
    refuse_blind(result)
    fix = _prepared(args, result, checks, seconds)
    if not (fix.plan.steps or fix.plan.already) or result.user != "root":
        return fix, []
    known = asyncio.run(transactions(args.make_target()))
    refuse_unfinished(args, known)
    return fix, known


def _carry_out(fix: Fix) -> None:
    """Apply what was planned, and accept what is by hand. Raises Refusal."""
    if fix.plan.refused:
        fix.code = REFUSED
    elif fix.plan.steps:
        require_root(fix.result.user, "applying a fix")
        _apply(fix)
    if not fix.code and fix.plan.by_hand:
        _accept(fix)
    if fix.following is not None and fix.code == 0 and not fix.error:
        fix.error = left_out(fix.lasting, fix.without)
        fix.code = REFUSED if fix.error else 0


def _tell(fix: Fix) -> None:
    if fix.following is None:
        tell(fix)
    else:
        say_all(fix.args, fix.plan.id, fix.following, lambda: tell(fix))


def _prepared(
    args: argparse.Namespace, result: AuditResult, checks: list[str], seconds: int | None
) -> Fix:
    """Plan the checks and, with --persist, what makes them outlast a reboot."""
    captured = asyncio.run(capture_chosen(args.make_target(), result, checks))
    plan = make_plan(result, captured, checks, confirm_within=seconds)
    fix = Fix(args, result, plan, other_ways(plan, result.findings, checks))
    if not (vars(args).get("persist") and plan.steps and not plan.refused):
        return fix
    if plan.confirm_within and not at_terminal():
        raise Refusal(
            "nothing was changed: --persist writes only what was confirmed, and nobody can be "
            "asked here: give --confirm-within 0 with it, or persist at a terminal",
            REFUSED,
        )
    offers, fix.without = persistent(result, plan, captured)
    names = [finding.id for finding in offers.findings]
    if names:
        captured = asyncio.run(capture_chosen(args.make_target(), offers, names))
        fix.lasting = make_plan(offers, captured, names, confirm_within=0)
    return fix


def _apply(fix: Fix) -> None:
    """Ask, apply and follow to the end; then what makes it last."""
    args, plan = fix.args, fix.plan
    ask(args, _question(fix))
    for step in plan.steps:
        if step.unproven:
            ask(args, f"{step.title}: seen working {step.proof}. Apply it all the same?")
    fix.following = Following(args, plan)
    answer = _followed(fix, plan, fix.following, plan.confirm_within > 0 and at_terminal())
    fix.code = _code(fix.following.state, answer)
    if fix.lasting is not None and fix.lasting.steps and fix.code == 0 and not fix.waits:
        _make_last(fix, fix.lasting)


def _make_last(fix: Fix, plan: Plan) -> None:
    """Apply what makes it outlast a reboot; where that is refused, what was applied stays."""
    fix.lasting_following = Following(fix.args, plan)
    try:
        fix.result = asyncio.run(run_audit(fix.args.make_target()))
        _followed(fix, plan, fix.lasting_following, False)
        fix.code = _code(fix.lasting_following.state, None)
    except KeyboardInterrupt:
        _not_last(fix, "interrupted", INTERRUPTED)
    except Refusal as refusal:
        _not_last(fix, refusal.sentence, refusal.code)
    except Exception as fault:  # of the audit before it: nothing of it has begun
        if traced():
            raise
        _not_last(fix, fault_sentence(fault), REFUSED)


def _not_last(fix: Fix, sentence: str, code: int) -> None:
    fix.error = f"not made to last: {sentence}"
    fix.code = REFUSED if code == UNREACHED else code


def _followed(fix: Fix, plan: Plan, following: Following, asked: bool) -> Answer | None:
    answers: list[Answer] = []

    async def work() -> None:
        make, before = fix.args.make_target, fix.result
        if asked:
            answers.append(await apply_and_ask(make, plan, before, following))
        else:
            await following.all_of(apply_between_snapshots(make, plan, before))

    run_followed(fix.args, plan.id, following, work())
    return answers[0] if answers else None


def _question(fix: Fix) -> str:
    number = len(fix.plan.items) + (len(fix.lasting.items) if fix.lasting else 0)
    what = "1 change" if number == 1 else f"{number} changes"
    return f"Apply {what} to {fix.plan.label}{_served(fix.result)}?"


def _served(result: AuditResult) -> str:
    """Return how many requests the engine serves now, where it says so."""
    facts = Facts(result.evidence)
    speed = facts[DECODE_SPEED] if facts.ready(DECODE_SPEED) else None
    if speed is None or isinstance(speed, Unknown):
        return ""
    number = {0: "no request", 1: "1 request"}.get(speed.running, f"{speed.running} requests")
    return f" (its engine serves {number} now)"


def _code(state: State | None, answer: Answer | None) -> int:
    """Return the exit code of a transaction that ended so."""
    if state is State.UNDONE:
        return REFUSED if answer is Answer.TAKE_BACK else FAILED
    return {State.APPLIED: 0, State.CONFIRMED: 0, State.FAILED: FAILED}.get(
        state or State.PLANNED, INCOMPLETE
    )


def _accept(fix: Fix) -> None:
    """Ask whether the plans by hand are pending from now on; nothing is run for them."""
    from gpudoctor.snapshots.pending import accept

    plan = fix.plan
    if fix.following is None:
        fix.code = REFUSED  # nothing was done by us
    if fix.result.simulated:
        return
    try:
        ask(fix.args, "Accept it as pending? The next audit tells whether it was done.", "no")
    except Refusal as refusal:
        if refusal.code == INTERRUPTED:
            raise
        sys.stderr.write("gpudoctor: the plan by hand is not pending: nobody accepted it\n")
        return
    accept(plan.machine_id, plan.label, plan.by_hand, plan.boot_id)
    fix.pending = True


def _known(names: Sequence[str]) -> list[str]:
    """Return the names, `CHECK` or `CHECK:N`, of checks that exist. Raises WrongUsage."""
    return list(dict.fromkeys(_known_one(name) for name in names))


def _known_one(name: str) -> str:
    check, colon, number = name.partition(":")
    known = known_check(check).id
    if colon and not (number.isascii() and number.isdecimal() and 0 < int(number) < 100):
        raise WrongUsage(f"{name}: an alternative is named by its number, such as {known}:2")
    return f"{known}:{int(number)}" if colon else known


def _panels(checks: Sequence[str]) -> tuple[Panel, ...]:
    names = [check.partition(":")[0] for check in checks]
    return tuple(dict.fromkeys(by_id()[name][0] for name in names)) or tuple(Panel)


def _fixable(result: AuditResult) -> list[str]:
    issues = result.of(Status.ISSUE)
    return list(dict.fromkeys(f.id for f in issues if f.verdict.changes))
