"""What was set by hand or by gpudoctor: gone at the reboot, kept, or only then in effect."""

import re
from collections.abc import Callable, Iterator, Sequence

from gpudoctor.before_reboot.coming import Coming
from gpudoctor.before_reboot.read import Read, why
from gpudoctor.checks.kernel_version import REBOOT_REQUIRED
from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.model import Unknown
from gpudoctor.model.before_reboot import Line, Outlook, Topic
from gpudoctor.model.pending import Outcome, Pending, PendingTold
from gpudoctor.model.plan import Transaction
from gpudoctor.probes.gpu import GPUS
from gpudoctor.text import one_line

Command = Callable[..., str]
_SHOWN = 6


def transaction_lines(known: Sequence[Transaction] | Unknown, command: Command) -> list[Line]:
    """Say of each transaction that stands whether the reboot takes it back.

    `command` makes a command line of gpudoctor of a verb and its words.
    """
    if isinstance(known, Unknown):
        said = f"Which of gpudoctor's changes will be gone cannot be told: {why(known)}"
        return [Line(Topic.TUNINGS, Outlook.UNKNOWN, said, reason=known.reason)]
    standing = [one for one in known if one.stands]
    kept = {check for one in standing if one.lasting for check in one.checks}
    lines = [_transaction(one, kept, command) for one in standing]
    if lines:
        return lines
    said = "Nothing that gpudoctor applied stands there: the reboot takes nothing of it"
    return [Line(Topic.TUNINGS, Outlook.READY, said, read=f"{len(known)} transactions")]


def _transaction(one: Transaction, kept: set[str], command: Command) -> Line:
    titles = [one_line(step, 120) for step in one.steps]
    named = ", ".join(titles[:_SHOWN])
    named += f" and {len(titles) - _SHOWN} more" if len(titles) > _SHOWN else ""
    seen = f"transaction {one.id}, {one.state}, {one_line(one.started, 40)}"
    undo = command("rollback", one.id)
    if one.interrupted:
        said = f"{one.id} was interrupted, and stands half done: {named}"
        return Line(Topic.TUNINGS, Outlook.LOOK, said, "Take it back first", (undo,), seen)
    if one.timer is not None:
        said = f"{one.id} waits to be confirmed: {named}"
        both = (command("confirm", one.id), undo)
        return Line(Topic.TUNINGS, Outlook.LOOK, said, "Keep it or take it back first", both, seen)
    if one.lasting:
        return Line(
            Topic.TUNINGS, Outlook.READY, f"Made to last, by its journal: {named}", read=seen
        )
    left = [check for check in dict.fromkeys(one.checks) if check not in kept]
    if not left:
        said = f"Set for this boot, and made to last by another transaction: {named}"
        return Line(Topic.TUNINGS, Outlook.READY, said, read=seen)
    said = f"Set until the reboot, and nothing of ours sets it again: {named}"
    todo = "Apply it again after the reboot, or make it last where it has a lasting form"
    again = (undo, command("fix", *left, "--persist"))
    return Line(Topic.TUNINGS, Outlook.LOST, said, todo, again, seen)


def gpu_lines(read: Read) -> list[Line]:
    """Say which GPU settings the reboot resets, and which it brings into effect."""
    gpus = read(GPUS)
    return [] if isinstance(gpus, Unknown) else [*_power(gpus), *_modes(gpus)]


def _power(gpus: Sequence[Gpu]) -> Iterator[Line]:
    """Yield that power limits go back to their default; 0.5 W apart is still the same."""
    moved = [gpu for gpu in gpus if _differs(gpu)]
    if moved:
        some = moved[0].power
        said = (
            f"The power limit of {len(moved)} of {len(gpus)} GPUs goes back to its default: "
            f"{some.requested:g} W now, {some.default:g} W then"
        )
        todo = "Unless a unit sets it at boot, set it again"
        seen = f"on {', '.join(gpu.bdf for gpu in moved[:_SHOWN])}"
        commands = (f"nvidia-smi -pl {some.requested:g}",) if len(moved) == len(gpus) else ()
        yield Line(Topic.TUNINGS, Outlook.LOST, said, todo, commands, seen)


def _differs(gpu: Gpu) -> bool:
    now, default = gpu.power.requested, gpu.power.default
    if isinstance(now, Unknown) or isinstance(default, Unknown):
        return False
    return abs(now - default) > 0.5


def _modes(gpus: Sequence[Gpu]) -> Iterator[Line]:
    kinds: tuple[tuple[str, Callable[[Gpu], object], Callable[[Gpu], object]], ...] = (
        ("ECC", lambda gpu: gpu.ecc.current, lambda gpu: gpu.ecc.pending),
        ("MIG", lambda gpu: gpu.mig.current, lambda gpu: gpu.mig.pending),
    )
    for name, current, pending in kinds:
        moved = [g for g in gpus if isinstance(pending(g), str) and isinstance(current(g), str)]
        moved = [gpu for gpu in moved if pending(gpu) != current(gpu)]
        if moved:
            then = ", ".join(sorted({str(pending(gpu)) for gpu in moved}))
            said = f"{name} of {len(moved)} of {len(gpus)} GPUs changes at the reboot: {then}"
            seen = f"on {', '.join(gpu.bdf for gpu in moved[:_SHOWN])}"
            yield Line(
                Topic.TUNINGS, Outlook.LOOK, one_line(said), "See that this is wanted", read=seen
            )


def by_hand_lines(told: Sequence[PendingTold], now: Coming) -> list[Line]:
    """Say of each plan that was accepted and is not done yet what the reboot makes of it."""
    return [_by_hand(one, now) for one in told if one.outcome is not Outcome.DONE]


def _by_hand(told: PendingTold, now: Coming) -> Line:
    one = told.pending
    what = f"{one_line(one.what, 160)} ({one_line(one.check, 60)})"
    seen = f"accepted {one_line(one.accepted, 40)}: {one_line(told.sentence)}"
    if told.outcome is Outcome.UNKNOWN:
        said = f"Accepted to be done by hand, and whether it was done cannot be told: {what}"
        return Line(Topic.BY_HAND, Outlook.LOOK, said, read=seen)
    if one.needs != "reboot":
        said = f"Accepted to be done by hand, and not done: {what}"
        return Line(Topic.BY_HAND, Outlook.LOOK, said, "It needs no reboot", one.commands, seen)
    if _in_coming(one, now):
        said = f"Done by hand, and in effect after this reboot: {what}"
        return Line(Topic.BY_HAND, Outlook.READY, said, read=seen)
    said = f"Accepted to be done by hand: it takes effect at this reboot if it was done: {what}"
    todo = "See that its commands, all but the reboot, were run"
    return Line(Topic.BY_HAND, Outlook.LOOK, said, todo, one.commands, seen)


_WORD = re.compile(r"(?P<sign>[+-])(?P<word>\S+)")


def _in_coming(one: Pending, now: Coming) -> bool:
    """Return whether every coming command line is as a plan for the command line wants it."""
    words = [m for m in map(_WORD.fullmatch, one.what.split()) if m]
    if not one.what.startswith("kernel command line ") or not words or not now.lines:
        return False
    return all(
        (m["word"] in line.split()) == (m["sign"] == "+") for m in words for line in now.lines
    )


def update_lines(read: Read) -> list[Line]:
    """Name the packages that ask for this reboot."""
    asked = read(REBOOT_REQUIRED)
    if isinstance(asked, Unknown):
        said = f"Whether packages ask for the reboot cannot be told: {why(asked)}"
        return [Line(Topic.UPDATES, Outlook.UNKNOWN, said, reason=asked.reason)]
    if not asked:
        return []
    named = ", ".join(one_line(name, 60) for name in asked[:_SHOWN] if name) or "no package named"
    more = f" and {len(asked) - _SHOWN} more" if len(asked) > _SHOWN else ""
    said = f"Updates ask for this reboot: {named}{more}"
    return [Line(Topic.UPDATES, Outlook.READY, said, read="/run/reboot-required")]
