"""The verb `snapshot prune`: old snapshots go, once asked; what an undo may need stays."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpudoctor.audit import run_audit
from gpudoctor.cli_ask import REFUSED, ask, command, refuse_read_only
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal, WrongUsage
from gpudoctor.model.snapshot import SnapshotHead, Unreadable
from gpudoctor.report_snapshots import count, in_words, kept_text, none_kept, rows
from gpudoctor.snapshots.catalog import all_heads, folders, reached
from gpudoctor.snapshots.clones import own
from gpudoctor.snapshots.prune import (
    Kept,
    ended_by_reboot,
    kept_back,
    prunable,
    remove,
    remove_left_over,
)
from gpudoctor.snapshots.store import machine_folder
from gpudoctor.text import one_line
from gpudoctor.transaction import transactions


@dataclass(slots=True)
class _Pruned:
    """What a prune did; `unfinished` counts files that killed writers left.

    `not_asked` says which hosts were not asked what stands there, and why.
    """

    kept: Sequence[Kept]
    unreadable: Sequence[Unreadable]
    not_asked: str = ""
    removed: list[SnapshotHead] = field(default_factory=list)
    not_removed: list[Unreadable] = field(default_factory=list)
    unfinished: int = 0

    @property
    def code(self) -> int:
        """Return the exit code."""
        return REFUSED if self.not_removed else 0


def prune_command(args: argparse.Namespace) -> int:
    """Remove what is old enough and return 0, or 1 where something could not be removed."""
    refuse_read_only(args)
    _refuse_limits(args)
    known, unreadable = all_heads()
    mine = reached(known, vars(args).get("host"))
    protected, not_asked = _protected(args, mine)
    limits = (args.keep, args.older, protected)
    going = prunable(mine, *limits)
    done = _Pruned(kept_back(mine, *limits), unreadable, not_asked)
    if not args.json:
        _preview(going, done)
        if not mine:
            take = command(args, "snapshot", "take")
            print(none_kept(known, unreadable, vars(args).get("host"), take))
        elif not going:
            print("no snapshot is to go")
    if going:
        size = in_words(sum(head.size for head in going))
        ask(args, f"Remove {count(going)} ({size})?", "nothing was removed")
    _remove(going, done)
    _tell(args, done)
    return done.code


def _refuse_limits(args: argparse.Namespace) -> None:
    if args.keep is None and args.older is None:
        raise WrongUsage("prune wants --keep N, --older DAYS, or both: what may go")
    if args.keep is not None and args.keep < 1:
        raise WrongUsage("--keep wants a number from 1: the newest of a host always stays")
    if args.older is not None and not 0 <= args.older < 1_000_000:
        raise WrongUsage("--older wants a number of days")


def _protected(args: argparse.Namespace, mine: Sequence[SnapshotHead]) -> tuple[set[str], str]:
    """Return the transactions that may still be undone, and which hosts were not asked, and why.

    Only the host that the options name can be asked; of the others every pair stays.
    """
    gone = ended_by_reboot(mine)
    old = [head for head in prunable(mine, args.keep, args.older) if head.transaction]
    doubtful = [head for head in old if head.transaction not in gone]
    if not doubtful:
        return set(), ""
    protected, label = {head.transaction for head in doubtful}, args.make_target().label
    here = reached(mine, label)
    others = ", ".join(dict.fromkeys(head.label for head in doubtful if head not in here))
    note = f"{others} was not asked what stands there: --host names one to ask" if others else ""
    if not any(head in here for head in doubtful):
        return protected, note
    try:
        seen, standing = asyncio.run(_standing(args))
    except Refusal as refusal:
        return protected, f"{label} could not be asked what stands there: {refusal.sentence}"
    folder = machine_folder(seen.identity.machine_id, seen.label)
    there = [head for head in mine if Path(head.path).parent == folder]
    its = own(there, seen.label, seen.identity)
    told = {head.transaction for head in doubtful if head in its}
    return (protected - told) | (protected & standing), note


async def _standing(args: argparse.Namespace) -> tuple[AuditResult, set[str]]:
    """Return who the named host is, and what an undo would still take back there.

    Raises Refusal where it cannot be reached, or does not let us be root.
    """
    known = await transactions(args.make_target())
    seen = await run_audit(args.make_target(), ())
    return seen, {one.id for one in known if one.stands}


def _preview(going: Sequence[SnapshotHead], done: _Pruned) -> None:
    """Print what would go, and what stays although it is old enough, and why."""
    if going:
        print("\n".join(["goes:", *rows(going)]))
    sys.stdout.write(kept_text((kept.head, kept.why) for kept in done.kept))
    if done.not_asked:
        print(done.not_asked)


def _remove(going: Sequence[SnapshotHead], done: _Pruned) -> None:
    for head in going:
        try:
            remove(head)
        except Refusal as refusal:
            done.not_removed.append(Unreadable(head.path, refusal.sentence))
        else:
            done.removed.append(head)
    done.unfinished = remove_left_over(folders())


def _tell(args: argparse.Namespace, done: _Pruned) -> None:
    if args.json:
        from gpudoctor.report_snapshots_json import prune_json

        sys.stdout.write(
            prune_json(
                done.code,
                done.removed,
                [(kept.head, kept.why) for kept in done.kept],
                done.not_removed,
                done.unfinished,
                done.unreadable,
                done.not_asked,
            )
        )
        return
    if done.removed:
        print(f"removed: {count(done.removed)}")
    if done.unfinished:
        print(f"removed: {done.unfinished} files that interrupted writers had left")
    for one in done.not_removed:
        print(f"NOT REMOVED: {one.why}")
    for one in done.unreadable:
        print(f"left alone: {one_line(one.path, 400)}: {one_line(one.why)}")
