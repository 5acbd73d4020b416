"""The verbs about the store: take, list, show and tag a snapshot."""

import argparse
import sys
from dataclasses import replace

from gpudoctor.cli_ask import columns, command
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal
from gpudoctor.model.snapshot import KeptFinding, Kind, Otherwise, SnapshotHead
from gpudoctor.recording import RecordedAudit
from gpudoctor.report import verdict_line
from gpudoctor.report_snapshots import as_found_text, listing, none_kept, rejudged_text
from gpudoctor.rules import digest
from gpudoctor.snapshots.catalog import all_heads, find, load_head, named, reached
from gpudoctor.snapshots.notes import set_note
from gpudoctor.snapshots.store import save


def snapshot_command(args: argparse.Namespace) -> int:
    """Answer one of the sub-verbs about the store and return its exit code. Raises Refusal."""
    verbs = {"take": _take, "list": _list, "show": _show, "tag": _tag}
    return verbs[args.what](args)


def _take(args: argparse.Namespace) -> int:
    """Audit the host and keep it; 3 where something did not answer, or the note was not kept."""
    result = _audited(args)
    path = save(result, Kind.BOOT if args.boot else Kind.MANUAL)
    head, without = _noted(find(str(path), ()), args.note)
    code = 3 if result.incomplete or without else 0
    blank = [f"nothing could be read for {panel.heading}" for panel in result.blank_panels]
    problems = [*result.problems, *blank]
    if args.json:
        from gpudoctor.report_snapshots_json import take_json

        sys.stdout.write(take_json(head, code, problems, without))
        return code
    print(f"{head.id}: snapshot of {head.label}, {verdict_line(result)}")
    print(head.path)
    for problem in problems:
        print(f"INCOMPLETE: {problem}")
    if without:
        print(f"WITHOUT ITS NOTE: {without}")
    return code


def _noted(head: SnapshotHead, note: str) -> tuple[SnapshotHead, str]:
    """Keep the note of a snapshot that is kept; return it with its note, or why it has none."""
    try:
        return replace(head, note=set_note(head, note)) if note else head, ""
    except Refusal as refusal:
        again = f"gpudoctor snapshot tag {head.id} NOTE"
        return head, f"the note was not kept: {refusal.sentence}; `{again}` tries again"


def _list(args: argparse.Namespace) -> int:
    """Print the snapshots, newest first, and what in the store is none."""
    known, unreadable = all_heads()
    mine = reached(known, vars(args).get("host"))
    if args.json:
        from gpudoctor.report_snapshots_json import list_json

        sys.stdout.write(list_json(mine, unreadable))
        return 0
    if not mine:
        take = command(args, "snapshot", "take")
        print(none_kept(known, unreadable, vars(args).get("host"), take))
    sys.stdout.write(listing(mine, unreadable, columns()))
    return 0


def _show(args: argparse.Namespace) -> int:
    """Print what a snapshot holds, judged by today's checks or as it was found."""
    head = _named(args)
    kept = load_head(head, verify=not args.force)
    same = kept.rules == digest()
    told: tuple[Otherwise, ...] = ()
    if args.as_found:
        found = kept.findings
        text = as_found_text(head, found, kept.problems, columns())
    else:
        result, found, told = _rejudged(kept)
        text = rejudged_text(head, result, told, same, columns(), sys.stdout.isatty())
    if args.json:
        from gpudoctor.report_snapshots_json import show_json

        text = show_json(head, args.as_found, same, kept.problems, found, told)
    sys.stdout.write(text)
    return 0


# To list a thousand snapshots is a budget: what audits and judges is imported where it is needed.
def _audited(args: argparse.Namespace) -> AuditResult:
    import asyncio

    from gpudoctor.audit import run_audit

    return asyncio.run(run_audit(args.make_target()))


def _rejudged(
    kept: RecordedAudit,
) -> tuple[AuditResult, tuple[KeptFinding, ...], tuple[Otherwise, ...]]:
    import asyncio

    from gpudoctor.rejudged import as_kept, otherwise, rejudged

    result = asyncio.run(rejudged(kept))
    found = tuple(map(as_kept, result.findings))
    return result, found, otherwise(kept.findings, found)


def _tag(args: argparse.Namespace) -> int:
    """Keep a note about a snapshot, or take it away."""
    head = _named(args)
    head = replace(head, note=set_note(head, args.note))
    if args.json:
        from gpudoctor.report_snapshots_json import tag_json

        sys.stdout.write(tag_json(head))
    else:
        print(f"{head.id}: {f'note: {head.note}' if head.note else 'no note'}")
    return 0


def _named(args: argparse.Namespace) -> SnapshotHead:
    """Return the snapshot that was named, among those of the host named if one is."""
    return named(args.name, vars(args).get("host"))
