"""What verbs have in common: widths, refusals, questions at a terminal, commands to type."""

import argparse
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpudoctor.model import Facts, Unknown
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal, WrongUsage
from gpudoctor.model.plan import State, Transaction
from gpudoctor.probes.kernel import INSIDE_CONTAINER

REFUSED, UNREACHED, FAILED, INTERRUPTED = 1, 3, 4, 130
_SHORTEST, _LONGEST = 5, 3600
_DURATION = re.compile(r"0|(\d{1,5})([sm])")


def columns() -> int:
    """Return how wide a report may be: the terminal's columns, 120 at most."""
    return min(shutil.get_terminal_size((100, 24)).columns, 120)


def write_text(path: str, text: str) -> None:
    """Write a report to a file, or to the output for `-`. Raises WrongUsage."""
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise WrongUsage(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def unreached_is_refused() -> Iterator[None]:
    """Turn a host or file that cannot be read into a refusal: nothing was changed there."""
    try:
        yield
    except Refusal as refusal:
        if refusal.code == UNREACHED:
            refusal.code = REFUSED
        raise


def refuse_read_only(args: argparse.Namespace) -> None:
    """Raise a Refusal where --read-only was given."""
    if vars(args).get("read_only"):
        raise Refusal("--read-only refuses every write", REFUSED)


def confirm_seconds(text: str | None) -> int | None:
    """Return the seconds of `60s`, `2m` or `0` (no timer); None for none given.

    Raises WrongUsage, also below 5 s and above 1 h.
    """
    if text is None:
        return None
    found = _DURATION.fullmatch(text)
    if found is None:
        raise WrongUsage(f"--confirm-within wants a time such as 60s, 2m or 0, not {text!r}")
    seconds = int(found[1] or 0) * (60 if found[2] == "m" else 1)
    if seconds and not _SHORTEST <= seconds <= _LONGEST:
        raise WrongUsage("--confirm-within wants 5s to 60m, or 0 for no timer")
    return seconds


def at_terminal() -> bool:
    """Return whether somebody can be asked here."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(args: argparse.Namespace, question: str, otherwise: str = "nothing was changed") -> None:
    """Ask once at a terminal. Raises Refusal elsewhere without --yes, and on anything but yes."""
    if args.yes:
        return
    if not at_terminal():
        raise Refusal("nobody can be asked here: give --yes to go on without asking", REFUSED)
    try:
        agreed = said_yes(question)
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        raise Refusal(otherwise, INTERRUPTED) from None
    if not agreed:
        raise Refusal(otherwise, REFUSED)


def said_yes(question: str) -> bool:
    """Ask at the terminal and return whether the answer is yes."""
    sys.stdout.flush()
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return is_yes(sys.stdin.readline())


def is_yes(answer: str) -> bool:
    """Return whether an answer is yes; nothing is no."""
    return answer.strip().lower() in {"y", "yes"}


def command(args: argparse.Namespace, verb: str, *words: str) -> str:
    """Return the command line to type for this host."""
    options = vars(args)
    line = ["gpudoctor"]
    for name in ("host", "container", "ssh_config"):
        if options.get(name):
            line += [f"--{name.replace('_', '-')}", options[name]]
    line += ["--ask-sudo"] if options.get("ask_sudo") else []
    return shlex.join([*line, verb, *words])


def undoing(args: argparse.Namespace, transaction: str) -> str:
    """Return how to take a transaction back from another command line."""
    if vars(args).get("demo"):
        return "the simulated host ends with this command: nothing is left to take back"
    return f"to take it back: {command(args, 'rollback', transaction)}"


def waiting(known: list[Transaction]) -> Transaction | None:
    """Return the transaction that waits to be confirmed, if one does."""
    return next((t for t in known if t.timer is not None and t.state is State.APPLIED), None)


def refuse_blind(result: AuditResult) -> None:
    """Raise a Refusal where the host was not read whole, or is not the host."""
    if result.problems:
        raise Refusal(f"nothing was changed: {result.problems[0]}", REFUSED)
    facts = Facts(result.evidence)
    inside = facts[INSIDE_CONTAINER] if facts.ready(INSIDE_CONTAINER) else ""
    if inside and not isinstance(inside, Unknown):
        raise Refusal(
            f"nothing was changed: this is inside a container ({inside}), and what gpudoctor "
            "changes belongs to its host: run it there, or name the host with --host",
            REFUSED,
        )


def refuse_unfinished(args: argparse.Namespace, known: list[Transaction]) -> None:
    """Raise a Refusal where a transaction was interrupted there, or waits to be confirmed."""
    torn = next((t for t in known if t.interrupted), None)
    if torn is not None:
        itself = "" if torn.timer is None else f" (the target does it in {torn.timer:.0f} s)"
        raise Refusal(
            f"nothing was changed: transaction {torn.id} was interrupted there while "
            f"{torn.state}: `{command(args, 'rollback', torn.id)}` first{itself}",
            REFUSED,
        )
    waits = waiting(known)
    if waits is not None:
        raise Refusal(
            f"nothing was changed: transaction {waits.id} still waits to be confirmed "
            f"({waits.timer:.0f} s left): `{command(args, 'confirm', waits.id)}` keeps it, "
            f"`{command(args, 'rollback', waits.id)}` takes it back",
            REFUSED,
        )
