"""Plans and transactions as text: the preview, each step as it happens, and what stands."""

from collections.abc import Iterator, Sequence

from gpudoctor.model.finding import Finding, Status
from gpudoctor.model.plan import (
    ByHand,
    Item,
    ItemMoved,
    Move,
    Plan,
    State,
    StateMoved,
    TimerArmed,
    Transaction,
)
from gpudoctor.text import one_line

# How many values of one step are shown before the rest is folded, and how many stay.
_MANY, _SHOWN, _GROUPS = 4, 3, 8
_PHASES = {
    "intent": "writing",
    "done": "done, read back",
    "ignored": "NOT TAKEN, reads back as",
    "complaint": "",
    "drift": "MOVED since the plan, is now",
    "undone": "put back, read back",
    "skipped": "skipped, the kernel does not allow it:",
    "held": "NOT PUT BACK now:",
    "foreign": "LEFT ALONE, somebody else set it to",
    "stuck": "NOT PUT BACK, still reads",
}
STATES = {
    State.PLANNED: "planned, nothing was written",
    State.APPLYING: "applying",
    State.APPLIED: "applied, every value read back",
    State.CONFIRMED: "confirmed: it stays",
    State.UNDOING: "undoing, newest first",
    State.UNDONE: "undone, every value is as before",
    State.FAILED: "failed and undone: every value is as before",
    State.UNDO_FAILED: "the undo is incomplete",
}


def other_ways(
    plan: Plan, findings: Sequence[Finding], chosen: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Return the alternatives that the plan did not take: how to name one, and what it changes.

    `chosen` are the names that the plan was made for, of which some may name an alternative.
    """
    ways: dict[tuple[str, str], None] = {}
    for finding in findings:
        options = finding.verdict.changes
        if finding.status is not Status.ISSUE or len(options) < 2:
            continue
        taken = _taken(plan, finding, chosen)
        for number, option in enumerate(options, 1) if taken else ():
            if number not in taken:
                titles = " + ".join(change.title for change in option)
                ways[f"{finding.id}:{number}", one_line(titles)] = None
    return list(ways)


def _taken(plan: Plan, finding: Finding, chosen: Sequence[str]) -> set[int]:
    """Return the numbers of the alternatives that the plan was made of; empty for none."""
    mine = [name.partition(":")[2] for name in chosen if name.partition(":")[0] == finding.id]
    if any(mine):
        return {int(number) for number in mine if number}
    changes = [step.change for step in plan.steps if step.check == finding.id]
    by_hand = any(one.check == finding.id for one in plan.by_hand)
    for number, option in enumerate(finding.verdict.changes, 1):
        if any(change in changes or (by_hand and change.by_hand) for change in option):
            return {number}
    return set()


def preview(plan: Plan, ways: Sequence[tuple[str, str]] = (), timer: bool = True) -> str:
    """Return what would run, with its undo, risk and needs; then what would not, and why.

    `timer` leaves in whether the target takes it back by itself.
    """
    lines = [*_heading(plan), *_steps(plan), *(_timer(plan) if timer else ())]
    lines += [*_worked(plan), *_others(plan)]
    lines += [f"other ways: {name} = {what}" for name, what in ways]
    return "\n".join(lines).lstrip("\n") + "\n"


def _heading(plan: Plan) -> Iterator[str]:
    if plan.steps:
        values = "1 value" if len(plan.items) == 1 else f"{len(plan.items)} values"
        yield f"plan {plan.id} for {plan.label} ({values}, hash {plan.hash})"


def _steps(plan: Plan) -> Iterator[str]:
    for number, step in enumerate(plan.steps, 1):
        yield f"\n{number}. {step.title}   [{step.check}]"
        yield f"   risk {step.risk}, needs {step.needs}, runs as root on the {step.side}"
        if step.caution:
            yield f"   caution: {step.caution}"
        if step.proof:
            yield f"   proof: seen working {step.proof}"
        yield from _values(step.items)


def _values(items: Sequence[Item]) -> Iterator[str]:
    for shown, more in folded(items):
        for item in shown:
            yield f"   {item.name}: {item.before or '(empty)'} -> {item.wanted or '(empty)'}"
            yield f"     run   {item.write}"
            yield f"     undo  {item.undo}"
        if more:
            yield f"   … and {more} (--shell shows all)"


def folded(items: Sequence[Item]) -> Iterator[tuple[Sequence[Item], str]]:
    """Yield the values that change alike together: those to show, and in words how many more."""
    groups: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        groups.setdefault((item.before, item.wanted), []).append(item)
    if len(items) > _MANY and len(groups) > _GROUPS:
        yield _folded(items, ", each with its own value from before")
        return
    for group in groups.values():
        values = f": {one_line(group[0].before)} -> {one_line(group[0].wanted)}"
        yield _folded(group, values)


def _folded(items: Sequence[Item], alike: str) -> tuple[Sequence[Item], str]:
    if len(items) <= _MANY:
        return items, ""
    return items[:_SHOWN], f"{len(items) - _SHOWN} more like it{alike}"


def _timer(plan: Plan) -> Iterator[str]:
    if plan.confirm_within:
        yield f"\nUnless it is confirmed within {plan.confirm_within} s, the target takes all of it"
        yield "back by itself, whatever becomes of this client or of the network."
    elif any(step.risk != "low" for step in plan.steps):
        yield "\nThere is no timer: nothing takes this back unless somebody does."


def _worked(plan: Plan) -> Iterator[str]:
    for one in plan.by_hand:
        yield f"\nby hand: {one.change.title}   [{one.check}]"
        yield "   gpudoctor does not run this itself"
        yield from _terms(one)
        for number, command in enumerate(one.change.commands, 1):
            yield f"   {number}. {command}"
        if one.change.undo:
            yield "   to take it back:"
            for number, command in enumerate(one.change.undo, 1):
                yield f"   {number}. {command}"


def _terms(one: ByHand) -> Iterator[str]:
    where = f" of {one_line(', '.join(one.targets), 120)}" if one.targets else ""
    yield f"   risk {one.change.risk}, needs {one.needs}"
    if one.change.caution:
        yield f"   caution: {one.change.caution}"
    if one.observed or one.expected:
        yield f"   now{where}: {one.observed or 'not told'}; then: {one.expected or 'not told'}"


def _others(plan: Plan) -> Iterator[str]:
    for check in plan.already:
        yield f"{check}: already so, nothing to do"
    for check, why in plan.refused:
        yield f"{check}: refused: {why}"


def told(plan: Plan | None, move: Move) -> str:
    """Return one line about what happened."""
    if isinstance(move, TimerArmed):
        return f"the target takes everything back in {move.seconds:.0f} s, unless confirmed"
    if isinstance(move, StateMoved):
        return f"{STATES.get(move.state, move.state)}{': ' if move.detail else ''}{move.detail}"
    words = f"{_PHASES.get(move.phase, move.phase)} {move.detail}".strip()
    return f"  {move.seconds:6.2f} s  {_name(plan, move)}: {words}"


def _name(plan: Plan | None, move: ItemMoved) -> str:
    known = plan is not None and 0 < move.number <= len(plan.items)
    return plan.items[move.number - 1].name if plan and known else f"value {move.number}"


def standing(one: Transaction) -> str:
    """Return how a transaction stands, in a few words."""
    if one.timer is not None and one.state is State.APPLIED:
        return f"waits to be confirmed: taken back in {one.timer:.0f} s"
    if one.interrupted:
        values = "1 value" if one.written == 1 else f"{one.written} values"
        return f"interrupted while {one.state}, {values} still written"
    if one.epoch_ended:
        return "undone by the reboot since then"
    return STATES.get(one.state, str(one.state))


def about(one: Transaction) -> str:
    """Return a transaction in one line."""
    steps = "; ".join(one.steps) or "no steps"
    who = one.operator or "somebody"
    return one_line(f"{one.id} ({standing(one)}; {one.started}, {who}): {steps}", 300)
