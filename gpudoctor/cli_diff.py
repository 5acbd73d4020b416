"""The verb `snapshot diff`: what differs between two snapshots or recordings, or one and now."""

import argparse
import asyncio
import sys

from gpudoctor.audit import run_audit
from gpudoctor.cli_ask import UNREACHED, columns, write_text
from gpudoctor.cli_fault import complain
from gpudoctor.comparing import compared, differing
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.diff import Compared, Diff
from gpudoctor.model.error import Refusal, WrongUsage
from gpudoctor.model.snapshot import SnapshotHead
from gpudoctor.report_diff import markdown, plain
from gpudoctor.snapshots.catalog import LAST, last_of, named

NOW = "now"
_SAME, _DIFFERS = 0, 1


def diff_command(args: argparse.Namespace) -> int:
    """Print the diff in the form asked for; return 0 where nothing differs, else 1.

    Raises Refusal (3) where a side cannot be read.
    """
    if args.old == args.new == NOW:
        raise WrongUsage("`now` can be compared with a snapshot or a recording, not with itself")
    try:
        found = _differing(args)
    except Refusal as refusal:
        if refusal.code == _DIFFERS:  # the store's code for what cannot be read or written
            refusal.code = UNREACHED
        raise
    if args.json:
        from gpudoctor.report_diff_json import diff_json

        sys.stdout.write(diff_json(found))
    elif args.markdown:
        write_text(args.markdown, markdown(found))
    else:
        sys.stdout.write(plain(found, columns(), sys.stdout.isatty()))
    return _SAME if found.empty else _DIFFERS


def _differing(args: argparse.Namespace) -> Diff:
    """Return the diff; `last` beside `now` is the last of the very machine that answers."""
    names = (args.old, args.new)
    by_now = {NOW, LAST} if NOW in names else set()
    heads = {name: named(name, vars(args).get("host")) for name in names if name not in by_now}
    if NOW not in names:
        return differing(*(_kept(args, heads[name]) for name in names))
    now = _audited(args)
    if LAST in names:
        heads[LAST] = last_of(now)
    live = compared(now)
    return differing(*(live if name == NOW else _kept(args, heads[name]) for name in names))


def _audited(args: argparse.Namespace) -> AuditResult:
    result = asyncio.run(run_audit(args.make_target()))
    for problem in result.problems:
        complain(f"incomplete: {problem}")
    return result


def _kept(args: argparse.Namespace, head: SnapshotHead) -> Compared:
    return compared(head, verify=not args.force)
