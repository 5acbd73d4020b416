"""What --persist must know: whether a fix lasts that was there before, and what was left out."""

import argparse
from collections.abc import Sequence

from gpudoctor.checks import known_check
from gpudoctor.cli_ask import REFUSED, command
from gpudoctor.hosts.root_shell import require_root
from gpudoctor.model import OwnFile
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Plan, State, Transaction


def refuse_passing(
    args: argparse.Namespace, plan: Plan, result: AuditResult, known: Sequence[Transaction]
) -> None:
    """Raise a Refusal where --persist finds a check so already, and nothing that makes it last.

    `known` are the target's transactions, oldest first; only root can read them.
    """
    if not vars(args).get("persist"):
        return
    boot_id = result.identity.boot_id
    passing = [check for check in plan.already if not _lasts(check, known, boot_id)]
    if passing:
        require_root(result.user, f"telling whether {passing[0]}, which holds now, is made to last")
        raise Refusal(f"nothing was changed: {_how(args, passing[0], known)}", REFUSED)


def _how(args: argparse.Namespace, check: str, known: Sequence[Transaction]) -> str:
    mine = _standing(check, known)
    if not mine:
        return (
            f"{check} holds now, though by nothing of ours that stands there, and --persist makes "
            "only that last which it applies: make it last where it was set, or leave it out"
        )
    one = mine[-1]
    return (
        f"{check} holds now, by transaction {one.id}, but nothing of ours makes it last: "
        f"`{command(args, 'rollback', one.id)}`, then "
        f"`{command(args, 'fix', *one.checks, '--persist')}`"
    )


def _standing(check: str, known: Sequence[Transaction]) -> list[Transaction]:
    return [one for one in known if one.stands and check in one.checks]


def _lasts(check: str, known: Sequence[Transaction], boot_id: str) -> bool:
    """Return whether it lasts by its nature, or by the last transaction of ours that serves it.

    A transaction that lasts in part must be one that --persist made, or have outlived a boot.
    """
    if all(kind.by_hand or kind is OwnFile for kind in known_check(check).changes):
        return True
    mine = _standing(check, known)
    if not mine or not mine[-1].lasting:
        return False
    *before, last = mine
    whole = last.checks == (check,) and len(last.steps) == 1
    second = any(set(last.checks) <= set(one.checks) for one in before)
    kept = last.state in {State.APPLIED, State.CONFIRMED}
    return kept and (whole or second or last.boot_id != boot_id)


def left_out(lasting: Plan | None, without: Sequence[str]) -> str:
    """Return what --persist did not make last and why, or an empty string."""
    why = [f"{check}: {sentence}" for check, sentence in (lasting.refused if lasting else ())]
    why += [f"{title}: there is no persistent form" for title in without]
    return f"not made to last: {'; '.join(why)}" if why else ""
