"""The verb `snapshot diff`: what differs between two snapshots or recordings, or one and now."""

import argparse
import asyncio
import sys

from gpudoctor.audit import run_audit
from gpudoctor.cli_ask import UNREACHED, columns, write_text
from gpudoctor.cli_fault import complain
from gpudoctor.comparing import compared, differing
from gpudoctor.model.diff import Compared
from gpudoctor.model.error import Refusal, WrongUsage
from gpudoctor.report_diff import markdown, plain
from gpudoctor.snapshots.catalog import named

NOW = "now"
_SAME, _DIFFERS = 0, 1


def diff_command(args: argparse.Namespace) -> int:
    """Print the diff in the form asked for; return 0 where nothing differs, else 1.

    Raises Refusal (3) where a side cannot be read.
    """
    if args.old == args.new == NOW:
        raise WrongUsage("`now` can be compared with a snapshot or a recording, not with itself")
    try:
        found = differing(_side(args, args.old), _side(args, args.new))
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


def _side(args: argparse.Namespace, name: str) -> Compared:
    if name == NOW:
        result = asyncio.run(run_audit(args.make_target()))
        for problem in result.problems:
            complain(f"incomplete: {problem}")
        return compared(result)
    return compared(named(name, vars(args).get("host")), verify=not args.force)
