"""The plan of the selection in words: commands, undo, risk and needs, as they will run."""

from textual.content import Content

from gpudoctor.model.finding import Needs
from gpudoctor.model.plan import Item, Plan, Step
from gpudoctor.screens.board import Board
from gpudoctor.screens.words import MUTED, host, host_line

_ITEMS = 4
_RISKS = {"low": "$text-success", "medium": "$text-warning", "high": "bold $text-error"}


def preview(board: Board) -> Content:
    """Return what the selection would do."""
    if not board.chosen:
        return _nothing(board)
    if board.plan_problem:
        return Content.assemble(("✗ ", "bold $text-error"), host(board.plan_problem))
    if board.plan is None:
        return Content.styled("planning …", MUTED)
    return plan_content(board.plan)


def plan_content(plan: Plan) -> Content:
    """Return the plan's steps, then what is already so and what cannot be planned."""
    parts: list[Content] = []
    for number, step in enumerate(plan.steps, 1):
        parts += [_step(number, step), Content("")]
    parts += [
        Content.assemble(("✓ ", "$text-success"), host_line(check), (" is already so", MUTED))
        for check in plan.already
    ]
    parts += [
        Content.assemble(("✗ ", "bold $text-error"), host_line(check), ": ", host(reason))
        for check, reason in plan.refused
    ]
    return Content("\n").join(parts)


def _nothing(board: Board) -> Content:
    number = sum(board.fixable(finding) for finding in board.findings)
    if not number:
        return Content.styled("No finding here has a fix that gpudoctor applies by itself.", MUTED)
    return Content.assemble(
        ("Nothing is selected.\n\n", "bold"),
        (f"gpudoctor can fix {number} of the issues itself, marked with a box. ", MUTED),
        ("space", "bold"),
        (" selects one, and its commands and undo appear here before anything runs.", MUTED),
    )


def _step(number: int, step: Step) -> Content:
    lines = [
        Content.assemble((f"{number} ", MUTED), host_line(step.title, "bold")),
        Content.assemble(
            ("  risk ", MUTED),
            host_line(step.risk, _RISKS.get(step.risk, "bold")),
            (" · needs ", MUTED),
            str(step.needs),
            (f" · on the {step.side} · for ", MUTED),
            host_line(step.check, MUTED),
        ),
    ]
    if step.caution:
        lines.append(Content.assemble(("  ! ", "$text-warning"), host(step.caution)))
    for item in step.items[:_ITEMS]:
        lines += _item(item)
    if len(step.items) > _ITEMS:
        lines.append(
            Content.styled(f"  … {len(step.items) - _ITEMS} more items: v shows all", MUTED)
        )
    return Content("\n").join(lines)


def _item(item: Item) -> list[Content]:
    return [
        Content.assemble(
            "  ",
            host_line(item.name, MUTED),
            "  ",
            host_line(item.before),
            (" → ", MUTED),
            host_line(item.wanted, "bold"),
        ),
        Content.assemble(("  do   ", "$text-primary"), host(item.write)),
        Content.assemble(("  undo ", "$text-primary"), host(item.undo)),
    ]


def in_one_line(plan: Plan) -> str:
    """Return how many changes, their highest risk, and what they interrupt."""
    risks = [step.risk for step in plan.steps]
    worst = next((risk for risk in ("high", "medium", "low") if risk in risks), "low")
    needs = sorted({str(step.needs) for step in plan.steps if step.needs is not Needs.NOTHING})
    what = f"interrupts: {', '.join(needs)}" if needs else "interrupts nothing"
    number = len(plan.steps)
    return f"{number} change{'s' if number != 1 else ''}, risk {worst}, {what}"


def _question(plan: Plan, label: str, what: str, names: list[str]) -> Content:
    """Return what is asked, where, and the names it is about."""
    rows = [Content.assemble(("  • ", MUTED), host_line(name)) for name in names]
    where = host_line(label or plan.label, "bold")
    return Content.assemble(
        host_line(what, "bold"), (" on ", MUTED), where, "\n\n", Content("\n").join(rows)
    )


def apply_question(plan: Plan, label: str) -> Content:
    """Return the question before the first write: what, where, at what risk."""
    return Content.assemble(
        _question(plan, label, in_one_line(plan), [step.title for step in plan.steps]),
        (
            "\n\nThe values of before and the undo are on the target before the first write; each "
            "write is read back, and a write that does not hold undoes them all.",
            MUTED,
        ),
    )


def undo_question(plan: Plan, label: str) -> Content:
    """Return the question before an undo: which values come back."""
    values = [f"{item.name} back to {item.before}" for item in plan.items]
    return Content.assemble(
        _question(plan, label, f"Undo {plan.id}", values),
        ("\n\nA value that somebody else changed since is left as it is, and said.", MUTED),
    )
