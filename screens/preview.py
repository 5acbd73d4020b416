"""The plan of the selection in words: commands, undo, risk and needs, as they will run."""

from collections.abc import Mapping, Sequence

from textual.content import Content

from gpudoctor.model.finding import Finding, Needs
from gpudoctor.model.plan import ByHand, Item, Plan, Step
from gpudoctor.report_plan import folded
from gpudoctor.screens.board import Board
from gpudoctor.screens.words import MUTED, hanging, host, host_line, number_of

RISKS = {"low": "$text-success", "medium": "$text-warning", "high": "bold $text-error"}


def preview(board: Board, width: int = 80) -> Content:
    """Return what the selection would do, in lines of at most `width` cells."""
    if not board.chosen:
        return _nothing(board)
    if board.plan_problem:
        return Content.assemble(("✗ ", "bold $text-error"), host(board.plan_problem))
    if board.plan is not None:
        return plan_content(board.plan, _ways(board), width)
    if board.hold:
        return Content.styled(f"planned once {board.hold}", MUTED)
    return Content.styled("reading the values now …", MUTED)


def plan_content(plan: Plan, ways: Mapping[str, str], width: int = 80) -> Content:
    """Return the timer, the steps, what is done by hand, what is so and what cannot be planned."""
    parts: list[Content] = []
    if plan.confirm_within and plan.steps:
        parts += [timer_sentence(plan), Content("")]
    for number, step in enumerate(plan.steps, 1):
        parts += [_step(number, step, _way(step.check, ways), width), Content("")]
    for worked in plan.by_hand:
        parts += [_worked(worked, _way(worked.check, ways), width), Content("")]
    parts += [
        Content.assemble(("✓ ", "$text-success"), host_line(check), (" is already so", MUTED))
        for check in plan.already
    ]
    parts += [
        Content.assemble(("✗ ", "bold $text-error"), host_line(check), ": ", host(reason))
        for check, reason in plan.refused
    ]
    return Content("\n").join(parts)


def timer_sentence(plan: Plan) -> Content:
    """Return what the target does by itself where nobody confirms."""
    return Content.assemble(
        ("◷ ", "$text-warning"),
        "The target takes it back by itself unless you confirm within ",
        (f"{plan.confirm_within}\u00a0s", "bold"),
        ".",
    )


def _nothing(board: Board) -> Content:
    number = sum(board.fixable(finding) for finding in board.findings)
    if not number:
        return Content.styled("No finding here has a fix that gpudoctor applies by itself.", MUTED)
    return Content.assemble(
        ("Nothing is selected.\n\n", "bold"),
        (f"gpudoctor has a plan for {number} of the issues, marked with a box. ", MUTED),
        ("space", "bold"),
        (" selects one, and its commands and undo appear here before anything runs.", MUTED),
    )


def way_shown(board: Board, finding: Finding) -> int:
    """Return which way of a finding the plan takes, from 1: the best may not be the first."""
    asked = board.way(finding)
    if asked or board.plan is None:
        return asked or 1
    planned = [step.change for step in board.plan.steps if step.check == finding.id]
    worked = any(entry.check == finding.id for entry in board.plan.by_hand)
    for number, way in enumerate(finding.verdict.changes, 1):
        if any(change in planned or (worked and change.by_hand) for change in way):
            return number
    return 1


def _ways(board: Board) -> Mapping[str, str]:
    """Return the words for the way taken, by check, where a check has several."""
    return {
        finding.id: f"way {way_shown(board, finding)} of {len(finding.verdict.changes)}"
        for finding in board.findings
        if len(finding.verdict.changes) > 1
    }


def _way(check: str, ways: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(ways[check], "bold"), (": ", MUTED)] if check in ways else []


def _step(number: int, step: Step, way: list[tuple[str, str]], width: int) -> Content:
    lines = [
        Content.assemble((f"{number} ", MUTED), *way, host_line(step.title, "bold")),
        Content.assemble(
            ("  risk ", MUTED),
            host_line(step.risk, RISKS.get(step.risk, "bold")),
            (" · needs ", MUTED),
            str(step.needs),
            (f" · on the {step.side} · for ", MUTED),
            host_line(step.check, MUTED),
        ),
    ]
    if step.caution:
        lines.append(_caution(step.caution, width))
    if step.proof:
        style = "$text-warning" if step.unproven else MUTED
        lines.append(Content.assemble(("  proved ", MUTED), host_line(step.proof, style)))
    for shown, more in folded(step.items):
        for item in shown:
            lines += _item(item, width)
        if more:
            said = Content.assemble(host(more, MUTED), ("; v shows all", MUTED))
            lines.append(hanging(Content.styled("  … ", MUTED), said, width))
    return Content("\n").join(lines)


def _caution(text: str, width: int) -> Content:
    return hanging(Content.styled("  ! ", "$text-warning"), host(text), width)


def _item(item: Item, width: int) -> list[Content]:
    return [
        Content.assemble(
            "  ",
            host_line(item.name, MUTED),
            "  ",
            host_line(item.before),
            (" → ", MUTED),
            host_line(item.wanted, "bold"),
        ),
        hanging(Content.styled("  do   ", "$text-primary"), host(item.write), width),
        hanging(Content.styled("  undo ", "$text-primary"), host(item.undo), width),
    ]


def _worked(worked: ByHand, way: list[tuple[str, str]], width: int) -> Content:
    """Return a worked plan: numbered commands, their undo, and who runs them."""
    change = worked.change
    lines = [
        Content.assemble(
            ("By hand: ", "bold $text-primary"), *way, host_line(change.title, "bold")
        ),
        Content.assemble(
            ("  risk ", MUTED),
            host_line(change.risk, RISKS.get(change.risk, "bold")),
            (" · needs ", MUTED),
            str(worked.needs),
            (" · for ", MUTED),
            host_line(worked.check, MUTED),
        ),
    ]
    if change.caution:
        lines.append(_caution(change.caution, width))
    lines += _numbered(change.commands, width)
    if change.undo:
        lines += [Content.styled("  to take it back", MUTED), *_numbered(change.undo, width)]
    lines.append(Content.styled("  gpudoctor does not run this itself.", "$text-warning"))
    return Content("\n").join(lines)


def _numbered(commands: Sequence[str], width: int) -> list[Content]:
    return [
        hanging(Content.styled(f"  {number} ", "$text-primary"), host(command), width)
        for number, command in enumerate(commands, 1)
    ]


def worst_risk(plan: Plan) -> str:
    """Return the highest risk of the plan's steps."""
    risks = [step.risk for step in plan.steps]
    return next((risk for risk in ("high", "medium", "low") if risk in risks), "low")


def needed(plan: Plan) -> list[str]:
    """Return what applying the steps interrupts."""
    return sorted({str(step.needs) for step in plan.steps if step.needs is not Needs.NOTHING})


def in_one_line(plan: Plan) -> str:
    """Return how many changes, their highest risk, and what they interrupt."""
    by_hand = f"{number_of(len(plan.by_hand), 'plan')} by hand" if plan.by_hand else ""
    if not plan.steps:
        return by_hand
    needs = needed(plan)
    what = f"interrupts: {', '.join(needs)}" if needs else "interrupts nothing"
    number = number_of(len(plan.steps), "change")
    return ", ".join(part for part in (number, f"risk {worst_risk(plan)}", what, by_hand) if part)
