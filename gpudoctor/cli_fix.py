"""The verbs that change a host: plan (shows), fix (applies and reads back), rollback (undoes)."""

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpudoctor.audit import run_audit
from gpudoctor.capture import capture_chosen
from gpudoctor.checks import by_id, known_check
from gpudoctor.hosts.root_shell import require_root
from gpudoctor.loop import apply_between_snapshots
from gpudoctor.model import Panel, Status
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Move, Plan, State, StateMoved, Transaction
from gpudoctor.plan import make_plan
from gpudoctor.report_plan import SCHEMA_VERSION, about, move_json, plan_json, preview, told
from gpudoctor.transaction import transactions, undo

REFUSED, UNREACHED, FAILED, INCOMPLETE = 1, 3, 4, 5
_CODES = {
    State.APPLIED: 0,
    State.UNDONE: 0,
    State.FAILED: FAILED,
    State.UNDO_FAILED: INCOMPLETE,
}
_OVER = {State.UNDONE, State.FAILED, State.PLANNED}


@contextmanager
def _unreached_is_refused() -> Iterator[None]:
    """Turn a host or file that cannot be read into a refusal: nothing was changed there."""
    try:
        yield
    except Refusal as refusal:
        if refusal.code == UNREACHED:
            refusal.code = REFUSED
        raise


def plan_command(args: argparse.Namespace) -> int:
    """Print what would run, and its undo: all that can be fixed, or the checks named."""
    checks = _known(args.checks)
    result = asyncio.run(run_audit(args.make_target(), _panels(checks)))
    plan = _planned(args, result, checks or _fixable(result))
    if args.shell:
        sys.stdout.write(plan.script)
        sys.stderr.write("".join(f"{check}: refused: {why}\n" for check, why in plan.refused))
    elif args.json:
        _print_json(plan=plan_json(plan))
    else:
        sys.stdout.write(preview(plan) if plan.steps or checks else "nothing here can be fixed\n")
    return REFUSED if plan.refused else 0


@_unreached_is_refused()
def fix_command(args: argparse.Namespace) -> int:
    """Apply the fixes of the checks named; 0 when all read back, or were so already."""
    checks = _known(args.checks)
    _writable(args)
    result = asyncio.run(run_audit(args.make_target()))
    if result.problems:
        raise Refusal(f"nothing was changed: {result.problems[0]}", REFUSED)
    plan = _planned(args, result, checks)
    if not args.json:
        sys.stdout.write(preview(plan))
    if plan.refused or not plan.steps:
        if args.json:
            _print_json(plan=plan_json(plan), moves=[])
        return REFUSED if plan.refused else 0
    require_root(result.user, "applying a fix")
    number = len(plan.items)
    _ask(args, f"Apply {number} {'change' if number == 1 else 'changes'} to {plan.label}?")
    code, moves = _follow(
        args, plan.id, plan, lambda: apply_between_snapshots(args.make_target, plan, result)
    )
    if args.json:
        _print_json(plan=plan_json(plan), moves=moves)
    elif code == 0:
        print(_undoing(args, plan.id))
    return code


def _planned(args: argparse.Namespace, result: AuditResult, checks: list[str]) -> Plan:
    captured = asyncio.run(capture_chosen(args.make_target(), result, checks))
    return make_plan(result, captured, checks)


def _undoing(args: argparse.Namespace, transaction: str) -> str:
    """Return how to take a transaction back from another command line."""
    options = vars(args)
    if options.get("demo"):
        return "the simulated host ends with this command: nothing is left to take back"
    words = ["gpudoctor"]
    for name in ("host", "ssh_config"):
        if options.get(name):
            words += [f"--{name.replace('_', '-')}", options[name]]
    words += ["--ask-sudo"] if options.get("ask_sudo") else []
    return f"to take it back: {shlex.join([*words, 'rollback', transaction])}"


@_unreached_is_refused()
def rollback_command(args: argparse.Namespace) -> int:
    """Undo a transaction, the last one applied by default; 0 when every value is as before."""
    _writable(args)
    known = asyncio.run(transactions(args.make_target()))
    chosen = _chosen(known, args.transaction)
    if not args.json:
        print(about(chosen))
    _ask(args, "Put back what this transaction changed?")
    code, moves = _follow(args, chosen.id, None, lambda: undo(args.make_target(), chosen.id))
    if args.json:
        _print_json(transaction=chosen.id, moves=moves)
    return code


def _known(checks: list[str]) -> list[str]:
    """Return the ids of checks that exist. Raises WrongUsage."""
    return list(dict.fromkeys(known_check(name).id for name in checks))


def _panels(checks: list[str]) -> tuple[Panel, ...]:
    return tuple(dict.fromkeys(by_id()[check][0] for check in checks)) or tuple(Panel)


def _fixable(result: AuditResult) -> list[str]:
    issues = result.of(Status.ISSUE)
    return list(dict.fromkeys(f.id for f in issues if f.verdict.changes))


def _writable(args: argparse.Namespace) -> None:
    if getattr(args, "read_only", False):
        raise Refusal("--read-only refuses every write", REFUSED)


def _ask(args: argparse.Namespace, question: str) -> None:
    """Ask once at a terminal. Raises Refusal elsewhere without --yes, and on anything but yes."""
    if args.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refusal("nobody can be asked here: give --yes to apply without asking", REFUSED)
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise Refusal("nothing was changed", REFUSED)


def _follow(
    args: argparse.Namespace,
    transaction: str,
    plan: Plan | None,
    run: Callable[[], AsyncIterator[Move]],
) -> tuple[int, list[dict[str, Any]]]:
    """Print each move as it comes; return the exit code and the moves as JSON values."""
    moves: list[dict[str, Any]] = []

    async def watch() -> State | None:
        state = None
        async for move in run():
            moves.append(move_json(move))
            if not args.json:
                print(told(plan, move), flush=True)
            state = move.state if isinstance(move, StateMoved) else state
        return state

    try:
        state = asyncio.run(watch())
    except KeyboardInterrupt:
        raise Refusal(
            f"no longer watching; transaction {transaction} goes on there; "
            f"{_undoing(args, transaction)}",
            130,
        ) from None
    return (_CODES[state] if state in _CODES else INCOMPLETE), moves


def _chosen(known: list[Transaction], name: str | None) -> Transaction:
    """Return the transaction named, or the last that still stands. Raises Refusal."""
    standing = [t for t in known if t.state not in _OVER and not t.epoch_ended]
    if name is None and standing:
        return standing[-1]
    found = next((t for t in known if t.id == name), None)
    if found is not None:
        return found
    if name is None:
        raise Refusal("nothing of ours is applied there", REFUSED)
    there = ", ".join(t.id for t in known[-5:]) or "none"
    raise Refusal(f"no transaction {name!r} there; the last are: {there}", REFUSED)


def _print_json(**values: object) -> None:
    print(json.dumps({"version": SCHEMA_VERSION, **values}, indent=2))
