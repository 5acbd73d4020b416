"""The command line. Every verb imports what it needs inside itself: start-up is a budget."""

import argparse
import io
import os
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpudoctor import __version__
from gpudoctor.cli_bench_parser import add_bench_options, add_prove_options
from gpudoctor.cli_fault import complain, drop_untaken, fault_sentence, traced
from gpudoctor.cli_snapshot_parser import add_snapshot_verbs, run_snapshot
from gpudoctor.cli_verbs import (
    audit_verb,
    bench_verb,
    clean_verb,
    confirm_verb,
    explain_verb,
    fix_verb,
    plan_verb,
    probes_verb,
    prove_verb,
    record_verb,
    rollback_verb,
    status_verb,
)
from gpudoctor.model.error import Refusal, WrongUsage

if TYPE_CHECKING:
    from gpudoctor.hosts.target import Target

_EPILOG = """\
examples:
  gpudoctor                                        the screen, on this host
  gpudoctor --host root@gpu1 --container lxc:101   over SSH, with the container that serves there
  gpudoctor audit --json                           the findings, for programs
  gpudoctor record host.toml                       keep what was read; audit it anywhere:
  gpudoctor audit --from host.toml
  gpudoctor plan kern-numa-balancing               what `fix` would run there, and its undo

exit codes: 0 nothing to act on, or done; 1 issues, or refused (also: not kept, and taken back);
2 wrong usage; 3 incomplete or unreachable; 4 failed and undone (also: nobody confirmed in time);
5 undo incomplete, or not known what stands
"""
_CHECKS = "its best fix, or alternative N of those that `plan` names"
_TIMER = (
    "5s to 60m, or 0: the host takes it back unless kept within that time (default: 60s where a "
    "risk is above low). A terminal is asked: no takes it back at once (exit code 1), no answer "
    "leaves that to the host (4). Elsewhere it returns at once, and `gpudoctor confirm` keeps it"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; an operator never sees a traceback."""
    sys.stdin = sys.stdin or open(os.devnull)  # closed by the caller: `<&-`, `>&-`
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # never die of a sign that the terminal lacks
    args = _parsed(sys.argv[1:] if argv is None else argv)
    try:
        args.make_target = _target_maker(args)
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except Refusal as refusal:
        complain(refusal.sentence)
        return refusal.code
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except BrokenPipeError:
        return 141
    except Exception as error:  # a fault of ours is one sentence too
        if traced() and not isinstance(error, OSError):
            raise
        complain(fault_sentence(error))
        return 3
    finally:
        drop_untaken()


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    parser, verbs = _parser()
    given = _files_last(argv, verbs)
    args, unknown = parser.parse_known_args(given)
    if unknown:
        verb = getattr(args, "verb", None)
        early = verb is None or unknown[0] in given[: given.index(verb)]
        hint = "; a verb's own options come after it: gpudoctor audit --json" if early else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return args


def _files_last(argv: Sequence[str], verbs: Collection[str]) -> list[str]:
    """Move `--from FILE...` behind the verb after it, which would be taken for one more file."""
    given = list(argv)
    start = given.index("--from") if "--from" in given else len(given)
    for at in range(start + 2, len(given)):
        if given[at].startswith("-"):
            break
        if given[at] in verbs and not os.path.isfile(given[at]):
            return given[:start] + given[at:] + given[start:at]
    return given


def _parser() -> tuple[argparse.ArgumentParser, Collection[str]]:
    parser = argparse.ArgumentParser(
        prog="gpudoctor",
        description="Audit, fix and re-measure a GPU inference host from the terminal.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_where()],
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"gpudoctor {__version__}")
    parser.set_defaults(run=_screen)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    _reading_verbs(verbs)
    _measuring_verbs(verbs)
    _writing_verbs(verbs)
    return parser, verbs.choices


def _where() -> argparse.ArgumentParser:
    """Return the options that say which host; a new object a verb, since parents share defaults."""
    where = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = where.add_argument_group("which host")
    group.add_argument("--host", metavar="[USER@]HOST[:PORT]", help="over SSH (default: this one)")
    group.add_argument(
        "--container",
        metavar="KIND:NAME",
        help="lxc:ID, docker:NAME, podman:NAME or ssh:USER@HOST (default: found by itself)",
    )
    group.add_argument("--ssh-config", metavar="FILE", help="instead of ~/.ssh/config")
    group.add_argument("--from", dest="files", metavar="FILE", nargs="+", help="read recordings")
    group.add_argument("--demo", action="store_true", help="the bundled simulated 8-GPU host")
    group.add_argument("--ask-sudo", action="store_true", help="ask once for the sudo password")
    group.add_argument("--read-only", action="store_true", help="refuse every write")
    return where


def _verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[[argparse.Namespace], int],
    help: str,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        name, help=help, description=help, parents=[_where()], allow_abbrev=False
    )
    verb.set_defaults(run=run, verb=name)
    return verb


def _reading_verbs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    audit = _verb(verbs, "audit", audit_verb, "print the findings")
    form = audit.add_mutually_exclusive_group()
    form.add_argument("--plain", action="store_true", help="as text (the default)")
    form.add_argument("--json", action="store_true", help="as JSON; docs/schema/audit.json")
    form.add_argument("--markdown", metavar="FILE", help="as Markdown, into FILE (- for output)")
    audit.add_argument(
        "--before-reboot",
        action="store_true",
        help="what the next reboot brings and takes instead; docs/schema/before-reboot.json",
    )
    audit.add_argument(
        "--panel", action="append", metavar="PANEL", help="only this one; its id or number"
    )
    audit.add_argument(
        "--fail-on", default="medium", choices=("low", "medium", "high"), help="exit 1 from here on"
    )
    demo = _verb(verbs, "demo", _screen, "the screen on the bundled simulated host")
    demo.set_defaults(demo=True)
    record = _verb(verbs, "record", record_verb, "keep what an audit reads, secrets masked")
    record.add_argument("file", metavar="FILE")
    record.add_argument("--json", action="store_true")
    probes = _verb(verbs, "probes", probes_verb, "what an audit runs, word for word")
    listed = probes.add_mutually_exclusive_group()
    listed.add_argument("--shell", action="store_true", help="the scripts themselves")
    listed.add_argument("--json", action="store_true")
    explain = _verb(verbs, "explain", explain_verb, "what a check reads, judges and why")
    explain.add_argument("check", metavar="CHECK")
    explain.add_argument("--json", action="store_true")


def _measuring_verbs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    bench = _verb(verbs, "bench", bench_verb, "measure how fast the engine there decodes")
    add_bench_options(bench)
    prove = _verb(verbs, "prove", prove_verb, "what each fix does to it, by turning it on and off")
    prove.add_argument("checks", nargs="+", metavar="CHECK[:N]", help=_CHECKS)
    add_prove_options(prove)


def _writing_verbs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    plan = _verb(verbs, "plan", plan_verb, "what would run, and its undo")
    plan.add_argument("checks", nargs="*", metavar="CHECK[:N]", help=_CHECKS)
    form = plan.add_mutually_exclusive_group()
    form.add_argument("--shell", action="store_true", help="the very script: sh FILE apply | undo")
    form.add_argument("--json", action="store_true")
    fix = _verb(verbs, "fix", fix_verb, "apply the fixes of these checks, read back")
    fix.add_argument("checks", nargs="+", metavar="CHECK[:N]", help=_CHECKS)
    fix.add_argument("--yes", action="store_true", help="do not ask before applying")
    fix.add_argument("--confirm-within", metavar="TIME", help=_TIMER)
    fix.add_argument("--persist", action="store_true", help="and, once kept, make it last")
    fix.add_argument("--json", action="store_true")
    rollback = _verb(verbs, "rollback", rollback_verb, "undo a transaction (default: the last)")
    rollback.add_argument("transaction", nargs="?", metavar="TRANSACTION")
    rollback.add_argument("--yes", action="store_true", help="do not ask")
    rollback.add_argument("--json", action="store_true")
    confirm = _verb(verbs, "confirm", confirm_verb, "keep what waits to be confirmed")
    confirm.add_argument("transaction", nargs="?", metavar="TRANSACTION")
    confirm.add_argument("--json", action="store_true")
    status = _verb(verbs, "status", status_verb, "what is applied there, waits, or was interrupted")
    status.add_argument("--json", action="store_true")
    clean = _verb(verbs, "clean", clean_verb, "remove what is ours from the host")
    clean.add_argument("--yes", action="store_true", help="do not ask")
    clean.add_argument("--forget", action="store_true", help="also what stands: no undo then")
    clean.add_argument("--json", action="store_true")
    snapshot = _verb(verbs, "snapshot", run_snapshot, "what was: kept, listed, compared, told")
    add_snapshot_verbs(snapshot, _where)


def _target_maker(args: argparse.Namespace) -> "Callable[[], Target]":
    """Return how to make the target that the options name. Raises WrongUsage on a contradiction."""
    options = vars(args)
    chosen = [f"--{name}" for name in ("host", "files", "demo") if options.get(name)]
    if len(chosen) > 1:
        names = " and ".join(chosen).replace("--files", "--from")
        raise WrongUsage(f"{names} contradict each other: choose one host")
    from gpudoctor.cli_target import make_target

    return lambda: make_target(
        host=options.get("host"),
        container=options.get("container"),
        ssh_config=options.get("ssh_config"),
        files=options.get("files"),
        demo=bool(options.get("demo")),
        ask_sudo=bool(options.get("ask_sudo")),
        paced=args.run is _screen and sys.stdout.isatty(),
    )


def _command(args: argparse.Namespace, verb: str, *words: str) -> str:
    """Return the command line of a verb for the host that the options name."""
    from gpudoctor.cli_ask import command

    return command(args, verb, *words)


def _screen(args: argparse.Namespace) -> int:
    """Open the screen; where there is no terminal, print the plain report."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return audit_verb(args)
    if not getattr(args, "demo", False):
        args.make_target()  # a wrong option is a sentence now, not a screen later
    from gpudoctor.app import GpuDoctor

    app = GpuDoctor(args.make_target, read_only=getattr(args, "read_only", False))
    app.board.command = partial(_command, args)
    app.run()
    if app.fault is not None:
        raise app.fault
    return app.return_code or 0
