"""`snapshot story`: what the last reboot, or anything else, took of what was set."""

import argparse
import asyncio
import json
import os
import shutil
import sys
from functools import partial

from gpudoctor.cli_ask import UNREACHED, command
from gpudoctor.cli_fault import complain
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.diff import Diff
from gpudoctor.model.error import Refusal, WrongUsage
from gpudoctor.model.snapshot import SnapshotHead
from gpudoctor.model.story import Fate, Story
from gpudoctor.report_story import plain, some_lost, story_json
from gpudoctor.snapshots.catalog import all_heads, reached
from gpudoctor.story import after_audit, looking


def story_command(args: argparse.Namespace) -> int:
    """Print the story; 0 where nothing was lost, 1 where something was, 3 unreachable."""
    target = args.make_target()
    if not isinstance(target, LiveTarget):
        raise WrongUsage("a story is told of a live host: name it, without --from or --demo")
    _refuse_blind(target.label)
    return asyncio.run(_told(args, target.label))


def _refuse_blind(label: str) -> None:
    """Say what of the store the story is told without; raise where it cannot be read at all."""
    try:
        known, unreadable = all_heads()
    except Refusal as refusal:
        raise Refusal(refusal.sentence, UNREACHED) from refusal
    if unreadable:
        complain(
            f"told without what cannot be read in the store ({len(unreadable)}): "
            "`gpudoctor snapshot list` names it"
        )
    if not reached(known, label):
        complain(f"{label} was not asked: no snapshot of it is kept here")


async def _told(args: argparse.Namespace, label: str) -> int:
    """Print the story, before logging out where no audit is needed; return the exit code."""
    async with looking(args.make_target()) as story:
        asks = story is not None and story.of(Fate.UNKNOWN) and not vars(args).get("quick")
        if story is None or not asks:
            _say(args, label, story, False, None)
            return int(story is not None and some_lost(story))
    story, changes = await _settled(args, story)
    _say(args, label, story, True, changes)
    return int(some_lost(story))


def _say(
    args: argparse.Namespace, label: str, story: Story | None, audited: bool, changes: Diff | None
) -> None:
    typed = partial(command, args)
    if args.json:
        sys.stdout.write(story_json(story, label, typed, audited, _table(changes)))
        return
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    sys.stdout.write(plain(story, label, typed, width, colour))
    if changes is not None:
        from gpudoctor.report_diff import plain as plain_diff

        sys.stdout.write(f"\nWHAT ELSE CHANGED\n{plain_diff(changes, width, colour)}")
    sys.stdout.flush()


def _table(changes: Diff | None) -> object:
    """Return a diff as JSON values, as `snapshot diff --json` prints it."""
    from gpudoctor.report_diff_json import diff_json

    return json.loads(diff_json(changes)) if changes is not None else None


async def _settled(args: argparse.Namespace, story: Story) -> tuple[Story, Diff | None]:
    """Return the story as an audit settles it, and what else the audit finds changed."""
    from gpudoctor.audit import run_audit

    result = await run_audit(args.make_target())
    return after_audit(story, result), await asyncio.to_thread(_changes, story.since, result)


def _changes(since: SnapshotHead | None, result: AuditResult) -> Diff | None:
    """Return what differs from a snapshot to an audit; the story stands without it."""
    if since is None:
        return None
    from gpudoctor.comparing import compared
    from gpudoctor.snapshots.diff import diff

    try:
        return diff(compared(since, verify=False), compared(result))
    except Refusal as refusal:
        complain(f"what else changed is not known: {refusal.sentence}")
        return None
