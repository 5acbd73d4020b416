"""`gpudoctor audit --before-reboot`: what the next reboot of a host brings and takes."""

import argparse
import asyncio
import sys
from functools import partial

from gpudoctor.audit import run_audit
from gpudoctor.before_reboot import READERS, page
from gpudoctor.cli_ask import columns, command, write_text
from gpudoctor.model import Panel, Reason, Unknown
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import HostUnreachable, Refusal, WrongUsage
from gpudoctor.model.plan import Transaction
from gpudoctor.report_before_reboot import before_reboot_json, markdown, plain
from gpudoctor.transaction import transactions


def before_reboot_command(args: argparse.Namespace) -> int:
    """Print the page in the form asked for; 1 with something to look at, 3 incomplete, else 0."""
    if args.panel:
        raise WrongUsage("--before-reboot reads all panels: leave --panel out")
    result = asyncio.run(run_audit(args.make_target(), Panel, READERS))
    told = page(result, known_transactions(args, result), partial(command, args))
    if args.json:
        sys.stdout.write(before_reboot_json(told))
    elif args.markdown:
        write_text(args.markdown, markdown(told))
    else:
        sys.stdout.write(plain(told, columns(), sys.stdout.isatty()))
    return told.exit_code


def known_transactions(
    args: argparse.Namespace, result: AuditResult
) -> list[Transaction] | Unknown:
    """Return what of ours the host keeps, or why that is not known; only root can read it."""
    if not result.user:
        why = "a recording does not keep gpudoctor's transactions: ask the host itself"
        return Unknown(Reason.NOT_IN_RECORDING, why)
    if result.user != "root":
        why = f"gpudoctor's transactions are for root to read, and we are only {result.user}"
        return Unknown(Reason.NO_PERMISSION, why)
    try:
        return asyncio.run(transactions(args.make_target()))
    except HostUnreachable as lost:
        return Unknown(Reason.DISCONNECTED, lost.sentence)
    except Refusal as refusal:
        return Unknown(Reason.NO_PERMISSION, refusal.sentence)
