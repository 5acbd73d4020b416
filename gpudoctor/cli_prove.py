"""The verb that gives each fix a number of its own: prove."""

import argparse
import asyncio
import sys

from gpudoctor.audit import run_audit
from gpudoctor.capture import capture_chosen
from gpudoctor.checks import known_check
from gpudoctor.cli_ask import (
    ask,
    command,
    refuse_blind,
    refuse_read_only,
    refuse_unfinished,
    unreached_is_refused,
)
from gpudoctor.cli_fix import fix_command
from gpudoctor.cli_measure import Meter, wish_of
from gpudoctor.hosts.root_shell import require_root
from gpudoctor.model.error import WrongUsage
from gpudoctor.prove import Arm, provable, prove, seconds_for
from gpudoctor.report_prove import faster, plain, proof_json
from gpudoctor.transaction import transactions

_CUT_SHORT = 3
_LEAST, _MOST = 30, 3600


@unreached_is_refused()
def prove_command(args: argparse.Namespace) -> int:
    """Turn fixes on and off while measuring; 0 done, 1 refused, 3 cut short, 5 an undo failed.

    What is to be kept then is applied as `fix` does, and its exit code is this one's.
    """
    refuse_read_only(args)
    if args.keep and args.json:
        raise WrongUsage("--keep applies fixes, and --json is of the proof alone: give one of them")
    budget = _seconds(args.budget)
    for check in args.checks:
        known_check(check.partition(":")[0])
    result = asyncio.run(run_audit(args.make_target()))
    refuse_blind(result)
    require_root(result.user, "turning fixes on and off")
    refuse_unfinished(args, asyncio.run(transactions(args.make_target())))
    captured = asyncio.run(capture_chosen(args.make_target(), result, args.checks))
    arms = provable(result, captured, args.checks)
    sys.stderr.write(_told(arms, budget))
    ask(args, "Turn them on and off while measuring?")
    proof = asyncio.run(
        prove(args.make_target, result, captured, arms, wish_of(args), budget, Meter().tell)
    )
    sys.stdout.write(proof_json(proof) if args.json else plain(proof, command(args, "fix")))
    if proof.stopped:
        return _CUT_SHORT
    helped = faster(proof)
    return fix_command(_fixing(args, helped)) if args.keep and helped else 0


def _fixing(args: argparse.Namespace, checks: list[str]) -> argparse.Namespace:
    """Return the arguments of `fix` for these checks on the same host."""
    return argparse.Namespace(**{**vars(args), "checks": checks, "confirm_within": None})


def _told(arms: list[Arm], budget: float) -> str:
    lines = [f"  {arm.name}: {'; '.join(arm.titles)}\n" for arm in arms]
    seconds = seconds_for(budget, len(arms))
    return (
        f"for about {seconds:.0f} s each of these is applied and taken back, again and again, "
        f"with a timer on the host (`gpudoctor plan` shows the commands):\n{''.join(lines)}"
    )


def _seconds(text: str) -> float:
    """Return the seconds of `300s` or `5m`. Raises WrongUsage."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdecimal() and unit in {"s", "m"}):
        raise WrongUsage(f"--budget wants a time such as 300s or 5m, not {text!r}")
    seconds = int(number) * (60 if unit == "m" else 1)
    if not _LEAST <= seconds <= _MOST:
        raise WrongUsage(f"--budget wants from {_LEAST}s to {_MOST // 60}m")
    return float(seconds)
