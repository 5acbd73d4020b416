"""`snapshot at-boot`: a unit on this very host that takes a snapshot at each boot, as a fix.

Nothing is installed on targets: it is for the host that gpudoctor is installed on.
"""

import argparse
import asyncio
import os
import pwd
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution

from gpudoctor.audit import run_audit
from gpudoctor.capture import capture
from gpudoctor.cli_ask import (
    FAILED,
    REFUSED,
    ask,
    command,
    refuse_blind,
    refuse_read_only,
    refuse_unfinished,
    unreached_is_refused,
)
from gpudoctor.cli_fault import nothing_changed
from gpudoctor.cli_fix_told import Fix, show, tell, tell_refused
from gpudoctor.cli_follow import Following, run_followed, say_all
from gpudoctor.fixes.file import HEADER
from gpudoctor.hosts.root_shell import require_root
from gpudoctor.loop import apply_between_snapshots
from gpudoctor.model import Class, Finding, Impact, OwnFile, Panel, issue
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import INCOMPLETE, Refusal, WrongUsage
from gpudoctor.model.plan import Plan, State, Transaction
from gpudoctor.plan import make_plan
from gpudoctor.snapshots.store import state_home
from gpudoctor.transaction import transactions

# What its transaction is known by; no check has this name.
NAME = "snapshot-at-boot"
UNIT = "gpudoctor-snapshot.service"
_PATH = f"/etc/systemd/system/{UNIT}"
_SYSTEMD = "/run/systemd/system"
_SECONDS = 300
_CODES = {State.APPLIED: 0, State.CONFIRMED: 0, State.UNDONE: FAILED, State.FAILED: FAILED}


@unreached_is_refused()
def at_boot_command(args: argparse.Namespace) -> int:
    """Install and enable the unit, once agreed to; 0 where it is so already. Raises Refusal."""
    _refuse_elsewhere(args)
    refuse_read_only(args)
    change = unit(sys.executable, dict(os.environ))
    with nothing_changed():
        fix, known = _prepared(args, change)
    if fix.plan.already:
        return _tell_there(fix, known)
    _show(fix, change)
    try:
        _apply(fix)
    except Refusal as refusal:
        tell_refused(fix, refusal)
        raise
    assert fix.following is not None
    say_all(args, fix.plan.id, fix.following, lambda: tell(fix))
    return fix.code


def unit(python: str, environment: dict[str, str]) -> OwnFile:
    """Return the unit that runs gpudoctor as it runs now, for this user's store."""
    user = pwd.getpwuid(os.getuid()).pw_name
    lines = [
        f"{HEADER}: a snapshot of this host, at every boot.",
        f"# To take it back by hand: systemctl disable {UNIT}; rm {_PATH}",
        "[Unit]",
        "Description=gpudoctor: a snapshot of this host",
        "After=multi-user.target nvidia-persistenced.service",
        "",
        "[Service]",
        "Type=oneshot",
        f"ExecStart={_quoted(python)} -m gpudoctor snapshot take --boot",
        f"Environment={_quoted(f'XDG_STATE_HOME={state_home().parent}')}",
        *(f"Environment={_quoted(f'PYTHONPATH={path}')}" for path in _python_path(environment)),
        *([] if os.getuid() == 0 else [f"User={user}"]),
        "WorkingDirectory=/",
        "Nice=19",
        "IOSchedulingClass=idle",
        f"TimeoutStartSec={_SECONDS}",
        "SuccessExitStatus=3",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    told = f"a snapshot at every boot ({_PATH})"
    return OwnFile(_PATH, "".join(f"{line}\n" for line in lines), told=told)


def _python_path(environment: dict[str, str]) -> list[str]:
    """Return where Python finds gpudoctor, where that must be told. Raises Refusal."""
    told = environment.get("PYTHONPATH", "")
    if told:
        return [":".join(os.path.abspath(path) for path in told.split(":") if path)]
    try:
        distribution("gpudoctor")
    except PackageNotFoundError:
        raise Refusal(
            f"gpudoctor is not installed for {sys.executable}, which would start it at boot: "
            "install it, or set PYTHONPATH",
            REFUSED,
        ) from None
    return []


def _quoted(word: str) -> str:
    """Return a word as a unit's file takes it, whole and with nothing expanded. Raises Refusal."""
    if not word.isprintable() or "$" in word:
        raise Refusal(f"nothing was changed: {word!r} cannot be written into a unit", REFUSED)
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _refuse_elsewhere(args: argparse.Namespace) -> None:
    """Raise where it is for another host than this one, or no systemd runs here."""
    options = vars(args)
    if options.get("demo") or options.get("files"):
        raise WrongUsage("snapshot at-boot is about this host, not --from or --demo")
    if options.get("host"):
        raise Refusal(
            "nothing is installed on targets: run `gpudoctor snapshot at-boot` on the host itself, "
            "or take its snapshots from here",
            REFUSED,
        )
    if options.get("container"):
        raise WrongUsage("the container is found by itself at boot: leave --container out")
    if not os.path.isdir(_SYSTEMD):
        raise Refusal("nothing was changed: no systemd runs here that could start it", REFUSED)


def _prepared(args: argparse.Namespace, change: OwnFile) -> tuple[Fix, list[Transaction]]:
    """Return what is planned, and the transactions that are kept here. Raises Refusal."""
    result = asyncio.run(run_audit(args.make_target()))
    refuse_blind(result)
    require_root(result.user, "installing a unit")
    known = asyncio.run(transactions(args.make_target()))
    refuse_unfinished(args, known)
    return Fix(args, result, _plan(args, result, change)), known


def _plan(args: argparse.Namespace, result: AuditResult, change: OwnFile) -> Plan:
    verdict = issue("no snapshot is taken at boot", Class.P2, Impact.NONE, changes=((change,),))
    finding = Finding(NAME, Panel.KERNEL_VERSION, "", "host", verdict, "", "")
    captured = asyncio.run(capture(args.make_target(), [change]))
    offers = replace(result, findings=(finding,))
    return make_plan(offers, captured, [NAME], confirm_within=0)


def _show(fix: Fix, change: OwnFile) -> None:
    """Print the unit word for word, then the preview of what installs it."""
    if not fix.args.json:
        told = "".join(f"  {line}\n" for line in change.text.splitlines())
        print(f"{_PATH}:\n{told}it needs {sys.executable} to be there at boot\n")
    show(fix)


def _apply(fix: Fix) -> None:
    """Ask, apply and follow to the end. Raises Refusal."""
    plan = fix.plan
    if plan.refused:
        raise Refusal(f"nothing was changed: {plan.refused[0][1]}", REFUSED)
    ask(fix.args, "Have this host take a snapshot at each boot?")
    fix.following = Following(fix.args, plan)
    moves = apply_between_snapshots(fix.args.make_target, plan, fix.result)
    run_followed(fix.args, plan.id, fix.following, fix.following.all_of(moves))
    fix.code = _CODES.get(fix.following.state or State.PLANNED, INCOMPLETE)


def _tell_there(fix: Fix, known: list[Transaction]) -> int:
    """Say that it is there, and how it is taken back."""
    mine = [one.id for one in known if one.stands and NAME in one.checks]
    if fix.args.json:
        tell(fix)
        return 0
    how = f"systemctl disable {UNIT}; rm {_PATH}"
    if mine:
        how = command(fix.args, "rollback", mine[-1])
    print(f"{UNIT} is there and enabled: nothing was written; to take it back: {how}")
    return 0
