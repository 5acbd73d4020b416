"""A transaction that the target keeps, in words."""

from math import ceil

from textual.content import Content

from gpudoctor.model.plan import State, Transaction
from gpudoctor.screens.questions import by_whom, when
from gpudoctor.screens.words import MUTED, host_line, number_of

_WIDEST = 24
_STATES = {
    State.PLANNED: ("·", MUTED, "never begun"),
    State.APPLYING: ("…", "$text-primary", "applying"),
    State.APPLIED: ("✓", "$text-success", "applied; it stands"),
    State.CONFIRMED: ("✓", "$text-success", "confirmed; it stands"),
    State.UNDOING: ("…", "$text-primary", "undoing"),
    State.UNDONE: ("↶", MUTED, "undone"),
    State.FAILED: ("✗", "$text-error", "failed, and undone"),
    State.UNDO_FAILED: ("✗", "bold $text-error", "its undo is incomplete"),
}


def waits(told: Transaction) -> bool:
    """Return whether its timer runs on the target."""
    return told.timer is not None and told.stands


def standing(told: Transaction, age: float = 0.0) -> tuple[str, str, str]:
    """Return glyph, style and words for where it stands, told `age` seconds ago."""
    if told.epoch_ended:
        return "○", MUTED, "ended with the boot it was made in"
    if told.interrupted:
        left = f", {number_of(told.written, 'value')} not taken back" if told.written else ""
        return "!", "bold $text-error", f"interrupted{left}"
    if waits(told) and told.timer is not None and told.state is State.APPLIED:
        left_seconds = ceil(max(0.0, told.timer - age))
        return "◷", "$text-warning", f"not confirmed, {left_seconds} s left"
    return _STATES[told.state]


def told_row(told: Transaction, age: float) -> Content:
    """Return one line: when, where it stands, what it changed."""
    glyph, style, words = standing(told, age)
    return Content.assemble(
        (f"{glyph} ", style),
        host_line(when(told), limit=24),
        "  ",
        (f"{words:<{_WIDEST}}", style),
        "  ",
        host_line(steps_in_short(told), limit=200),
    )


def steps_in_short(told: Transaction) -> str:
    """Return the first step, and how many more there are."""
    if not told.steps:
        return "no steps"
    more = f" and {number_of(len(told.steps) - 1, 'more step')}" if len(told.steps) > 1 else ""
    return f"{told.steps[0]}{more}"


def told_content(told: Transaction, age: float = 0.0) -> Content:
    """Return a transaction in full: id, where it stands, who and when, its steps."""
    glyph, style, words = standing(told, age)
    lines = [
        Content.assemble(host_line(told.id, "bold"), "  ", (f"{glyph} {words}", style)),
        by_whom(told),
    ]
    if told.written and not told.epoch_ended:
        lines.append(Content.styled(f"{number_of(told.written, 'value')} written", MUTED))
    lines += [Content.assemble(("  • ", MUTED), host_line(title)) for title in told.steps]
    return Content("\n").join(lines)
