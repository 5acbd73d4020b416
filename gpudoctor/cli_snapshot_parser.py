"""The options of `gpudoctor snapshot` and its sub-verbs, and which module answers each."""

import argparse
from collections.abc import Callable
from typing import TypeAlias

from gpudoctor.model.error import WrongUsage

_NAME = "an id, the first digits of one, `last`, or the file of a snapshot or recording"
_DIFF_NAME = f"{_NAME}; or `now`: the host as it is, audited"
_SubVerbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_Where: TypeAlias = Callable[[], argparse.ArgumentParser]


def add_snapshot_verbs(snapshot: argparse.ArgumentParser, where: _Where) -> None:
    """Add the sub-verbs; `where` makes the options that say which host."""
    verbs = snapshot.add_subparsers(title="what to do", metavar="WHAT", dest="what")
    _keeping_verbs(verbs, where)
    _comparing_verbs(verbs, where)


def _keeping_verbs(verbs: _SubVerbs, where: _Where) -> None:
    take = _verb(verbs, where, "take", "audit the host and keep what was read and found")
    take.add_argument("--boot", action="store_true", help="kept as the one taken at boot")
    take.add_argument("--note", metavar="TEXT", default="", help="say why it was taken")
    _verb(verbs, where, "list", "the snapshots kept, newest first; with --host only that host's")
    show = _verb(verbs, where, "show", "what a snapshot holds, judged by today's checks")
    show.add_argument("name", metavar="ID", help=_NAME)
    show.add_argument("--as-found", action="store_true", help="the findings as they were kept")
    show.add_argument("--force", action="store_true", help="also one changed after it was written")
    tag = _verb(verbs, where, "tag", "note something about a snapshot; no NOTE takes it away")
    tag.add_argument("name", metavar="ID", help=_NAME)
    tag.add_argument("note", metavar="NOTE", nargs="?", default="")
    prune = _verb(verbs, where, "prune", "remove old snapshots; what an undo may need stays")
    prune.add_argument("--keep", metavar="N", type=int, help="keep the N newest of each host")
    prune.add_argument("--older", metavar="DAYS", type=float, help="only those older than that")
    prune.add_argument("--yes", action="store_true", help="do not ask")


def _comparing_verbs(verbs: _SubVerbs, where: _Where) -> None:
    differs = "what changed between two snapshots; exit code 1 where something did"
    diff = _verb(verbs, where, "diff", differs, json=False)
    diff.add_argument("old", metavar="A", help=_DIFF_NAME)
    diff.add_argument("new", metavar="B", help="the same")
    form = diff.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--markdown", metavar="FILE", help="as Markdown, into FILE (- for output)")
    diff.add_argument("--force", action="store_true", help="also one changed after it was written")
    lost = "what the last reboot took of what was set, what held; exit code 1 where one was lost"
    story = _verb(verbs, where, "story", lost)
    story.add_argument("--quick", action="store_true", help="no audit of what was not read")
    at_boot = _verb(verbs, where, "at-boot", "have the host take a snapshot at each boot")
    at_boot.add_argument("--yes", action="store_true", help="do not ask")


def _verb(
    verbs: _SubVerbs, where: _Where, name: str, help: str, json: bool = True
) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        name, help=help, description=help, parents=[where()], allow_abbrev=False
    )
    if json:
        verb.add_argument("--json", action="store_true")
    return verb


def run_snapshot(args: argparse.Namespace) -> int:
    """Answer a sub-verb and return its exit code. Raises WrongUsage where none was given."""
    options = vars(args)
    if options.get("what") is None:
        raise WrongUsage(
            "snapshot wants to know what to do: take, list, show, tag, prune, diff, story or "
            "at-boot (`gpudoctor snapshot --help`)"
        )
    if args.what == "diff":
        from gpudoctor.cli_diff import diff_command

        return diff_command(args)
    if args.what == "story":
        from gpudoctor.cli_story import story_command

        return story_command(args)
    if args.what == "at-boot":
        from gpudoctor.cli_at_boot import at_boot_command

        return at_boot_command(args)
    if options.get("demo") or options.get("files"):
        raise WrongUsage(
            f"snapshot {args.what} is about live hosts and the store: a recording is a file "
            "already, and the demo host ends with this command"
        )
    if args.what == "prune":
        from gpudoctor.cli_prune import prune_command

        return prune_command(args)
    from gpudoctor.cli_snapshot import snapshot_command

    return snapshot_command(args)
