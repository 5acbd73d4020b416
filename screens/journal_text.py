"""A transaction's journal in words: its state, its steps as they go, and what went wrong."""

from collections.abc import Iterator, Sequence

from textual.content import Content

from gpudoctor.model.plan import Item, ItemMoved, State
from gpudoctor.screens.applying import LEFT_BEHIND, Applying
from gpudoctor.screens.words import MUTED, host, host_line, number_of, seconds

_STATES = {
    State.PLANNED: ("…", MUTED, "starting on the target"),
    State.APPLYING: ("…", "$text-primary", "applying"),
    State.APPLIED: ("✓", "$text-success", "applied and read back"),
    State.CONFIRMED: ("✓", "$text-success", "applied, read back and confirmed: it stays"),
    State.UNDOING: ("…", "$text-primary", "undoing, in reverse order"),
    State.UNDONE: ("✓", "$text-success", "undone: the values of before are back"),
    State.FAILED: ("✗", "bold $text-error", "failed; what had been written was undone"),
    State.UNDO_FAILED: ("✗", "bold $text-error", "the undo is incomplete"),
}
_PHASES = {
    "intent": ("…", "$text-primary", "writing"),
    "done": ("✓", "$text-success", "read back"),
    "undone": ("↶", "$text-success", "put back, read back"),
    "skipped": ("○", MUTED, "skipped"),
    "ignored": ("✗", "bold $text-error", "not taken"),
    "drift": ("!", "$text-warning", "moved since it was planned"),
    "stuck": ("✗", "bold $text-error", "not put back"),
    "foreign": ("!", "$text-warning", "left alone, somebody else set it"),
    "held": ("!", "$text-warning", "not put back now"),
    "complaint": ("!", "$text-warning", "it said"),
}
_READ = frozenset({"done", "undone"})
_FOLDED = 6
_TROUBLES = 12
_BAR = 28


def in_words(applying: Applying) -> str:
    """Return how a transaction stands in one sentence of plain text."""
    if applying.refused:
        return f"transaction {applying.id}: {applying.refused}"
    detail = f" ({applying.detail})" if applying.detail else ""
    return f"transaction {applying.id}: {_STATES[applying.state][2]}{detail}"


def state_content(applying: Applying) -> Content:
    """Return the state in words, how long it has taken, and what stopped it short."""
    glyph, style, words = _STATES[applying.state]
    if applying.waits:
        glyph, style, words = "◷", "$text-warning", "applied and read back; not confirmed yet"
    elif applying.lost:
        glyph, style, words = "?", "$text-warning", "no longer watched: h shows how it ended"
    elif applying.untouched:
        glyph, style, words = "✗", "bold $text-error", "refused: nothing was changed"
    elif applying.timed_out:
        words = f"nobody confirmed in time, so the target took it back: {words}"
    took = "" if applying.waits else f"  {seconds(applying.seconds)}"
    parts = [Content.assemble((f"{glyph} {words}", style), (took, MUTED))]
    if applying.left is not None and applying.running:
        timer = f"  its timer has {applying.left:.0f} s left: then the target takes it back"
        parts.append(Content.styled(timer, MUTED))
    if applying.busy and applying.state is State.CONFIRMED:
        parts.append(Content.styled("  keeping a snapshot of the host as it is now …", MUTED))
    if applying.detail and not applying.timed_out:
        parts.append(host(applying.detail, MUTED))
    if applying.refused:
        parts.append(Content.assemble(("✗ ", "bold $text-error"), host(applying.refused)))
    if applying.kept and applying.forms is not None:
        lead = Content.assemble(("m", "bold"), (" makes it last", "$text-success"))
        parts.append(lead + Content.styled(": until then, the next reboot ends it.", MUTED))
    if applying.untouched and applying.chosen:
        parts.append(Content.styled("It is planned again from the values now: 2 shows it.", MUTED))
    return Content("\n").join(parts)


def steps_content(applying: Applying, whole: bool = False) -> Content:
    """Return each step with its items; many items fold into a bar unless `whole`."""
    lines: list[Content] = []
    if applying.plan is None:
        return Content("\n").join(_unplanned(applying))
    first = 1
    for step in applying.plan.steps:
        numbers = range(first, first + len(step.items))
        first += len(step.items)
        lines += [Content(""), *_step(applying, step.title, step.items, numbers, whole)]
    return Content("\n").join(lines)


def _unplanned(applying: Applying) -> Iterator[Content]:
    """Yield what is known of another session's transaction: titles, and items by number."""
    for title in applying.steps:
        yield Content.assemble(("  • ", MUTED), host_line(title, "bold"))
    for number, move in sorted(applying.moves.items()):
        yield _row(f"value {number}", Content(""), move)


def _step(
    applying: Applying, title: str, items: Sequence[Item], numbers: range, whole: bool
) -> Iterator[Content]:
    moves = [applying.moves.get(number) for number in numbers]
    goal = "undone" if applying.undoing else "done"
    reached = sum(move is not None and move.phase in {goal, "skipped"} for move in moves)
    style = "$text-success" if reached == len(items) else MUTED
    glyph = "✓" if reached == len(items) else "…" if any(moves) else "·"
    word = "put back" if applying.undoing else "done"
    yield Content.assemble(
        (f"{glyph} ", style),
        host_line(title, "bold"),
        (f"  {reached} of {len(items)} {word}", MUTED),
    )
    if whole or len(items) <= _FOLDED:
        for item, move in zip(items, moves, strict=True):
            yield _item(item, move)
        return
    yield Content.assemble("  ", bar(reached, len(items)))
    if applying.latest in numbers:
        at = numbers.index(applying.latest)
        yield _item(items[at], moves[at])


def bar(reached: int, number: int) -> Content:
    """Return a bar of how many of a number are reached."""
    full = _BAR * reached // max(1, number)
    return Content.assemble(("━" * full, "$primary"), ("─" * (_BAR - full), MUTED))


def _item(item: Item, move: ItemMoved | None) -> Content:
    old, new = item.before, item.wanted
    if move is not None and move.phase == "undone":
        old, new = new, old
    values = Content.assemble(
        "  ", host_line(old, MUTED, 60), (" → ", MUTED), host_line(new, "bold", 60)
    )
    return _row(item.name, values, move)


def _row(name: str, values: Content, move: ItemMoved | None) -> Content:
    glyph, style, word = _phase(move)
    parts: list[Content | str | tuple[str, str]] = [
        (f"  {glyph} ", style),
        host_line(name),
        values,
    ]
    if move is not None:
        parts += ["  ", host_line(word, style), (f" {move.seconds:.2f} s", MUTED)]
        # "done" and "undone" are journalled only once the value read back is the one written
        if move.detail and move.phase not in _READ:
            parts += [("  ", MUTED), host_line(move.detail)]
    return Content.assemble(*parts)


def _phase(move: ItemMoved | None) -> tuple[str, str, str]:
    if move is None:
        return "·", MUTED, ""
    return _PHASES.get(move.phase, ("!", "$text-warning", move.phase))


def trouble_content(applying: Applying) -> Content:
    """Return what went wrong, item by item, and what is left to run by hand."""
    lines = [_trouble(applying, move) for move in applying.troubles[:_TROUBLES]]
    if len(applying.troubles) > _TROUBLES:
        more = number_of(len(applying.troubles) - _TROUBLES, "more line")
        lines.append(Content.styled(f"  … {more}", MUTED))
    if applying.state is State.UNDO_FAILED:
        lines += [Content(""), *_by_hand(applying)]
    return Content("\n").join(lines)


def _name(applying: Applying, number: int) -> str:
    item = item_of(applying, number)
    return item.name if item is not None else f"value {number}"


def item_of(applying: Applying, number: int) -> Item | None:
    """Return the item that the journal counts so, where the plan is known."""
    items = applying.plan.items if applying.plan is not None else ()
    return items[number - 1] if 0 < number <= len(items) else None


def _trouble(applying: Applying, move: ItemMoved) -> Content:
    glyph, style, word = _phase(move)
    return Content.assemble(
        (f"{glyph} ", style),
        host_line(_name(applying, move.number)),
        (f"  {word}: ", style),
        host_line(move.detail or "nothing more was said"),
    )


def _by_hand(applying: Applying) -> Iterator[Content]:
    """Yield what an operator runs there, as root, where an undo is incomplete."""
    from gpudoctor.transaction_script import PLACES

    yield Content.styled("To finish it by hand, as root on the target:", "bold")
    yield Content.assemble(("  $ ", "$text-primary"), host(f"sh {PLACES.script(applying.id)} undo"))
    left = [n for n, move in sorted(applying.moves.items()) if move.phase in LEFT_BEHIND]
    for number in left[:_TROUBLES]:
        item = item_of(applying, number)
        if item is not None:
            yield Content.assemble(("  or only ", MUTED), host_line(item.name), (":", MUTED))
            yield Content.assemble(("  $ ", "$text-primary"), host(item.undo))
    if len(left) > _TROUBLES:
        yield Content.styled(f"  … {len(left) - _TROUBLES} more: the script holds them", MUTED)
