"""What is asked before a transaction, and before one is taken back."""

from collections.abc import Iterable, Sequence

from textual.content import Content

from gpudoctor.model.plan import Plan, Step, Transaction
from gpudoctor.screens.applying import Applying
from gpudoctor.screens.board import Board
from gpudoctor.screens.preview import RISKS, needed, plan_content, timer_sentence, worst_risk
from gpudoctor.screens.words import MUTED, host_line, number_of

_NAMES = 8
_QUESTION_WIDTH = 68


def apply_question(plan: Plan, board: Board, also: str = "") -> Content:
    """Return the question before the first write: what, where, at what risk, who is served.

    `also` is our own sentence about the third answer.
    """
    parts: list[Content] = []
    if plan.steps:
        parts += [*_steps(plan, board), Content("")]
    if plan.by_hand:
        parts += [*_by_hand(plan), Content("")]
    if also:
        parts += [Content.assemble(("m ", "bold"), (also, MUTED)), Content("")]
    if plan.steps:
        parts.append(
            Content.styled(
                "The values of before and the undo are on the target before the first write; "
                "each write is read back, and a write that does not hold undoes them all.",
                MUTED,
            )
        )
    return Content("\n").join(parts)


def _steps(plan: Plan, board: Board) -> list[Content]:
    risk = worst_risk(plan)
    values = number_of(len(plan.items), "value")
    what = f"{number_of(len(plan.steps), 'change')} ({values})"
    rows = [
        _where(what, board.label or plan.label),
        Content.assemble(("highest risk ", MUTED), (risk, RISKS[risk])),
        Content.assemble(("interrupts   ", MUTED), ", ".join(needed(plan)) or "nothing"),
    ]
    if (running := requests_now(board)) is not None:
        now = number_of(running, "request")
        style = "bold $text-warning" if running else ""
        rows.append(
            Content.assemble(("serving      ", MUTED), (now, style), (" when last read", MUTED))
        )
    if plan.confirm_within:
        rows.append(timer_sentence(plan))
    return [*rows, Content(""), *_names(step.title for step in plan.steps)]


def _by_hand(plan: Plan) -> list[Content]:
    what = f"{number_of(len(plan.by_hand), 'plan')} to carry out by hand"
    return [
        Content.styled(what, "bold"),
        *_names(worked.change.title for worked in plan.by_hand),
        Content.styled(
            "gpudoctor does not run this itself. It keeps it as pending, and the next audit tells "
            "whether it was done.",
            MUTED,
        ),
    ]


def _where(what: str, label: str) -> Content:
    return Content.assemble(host_line(what, "bold"), (" on ", MUTED), host_line(label, "bold"))


def _names(names: Iterable[str]) -> list[Content]:
    """Return a row a name; of many, the first ones and how many more there are."""
    every = list(names)
    shown = every if len(every) <= _NAMES else every[: _NAMES - 1]
    rows = [Content.assemble(("  • ", MUTED), host_line(name)) for name in shown]
    if len(every) > len(shown):
        rows.append(Content.styled(f"  … {len(every) - len(shown)} more", MUTED))
    return rows


def requests_now(board: Board) -> int | None:
    """Return how many requests the engine served when the audit asked it, None where unknown."""
    from gpudoctor.model.fact import Unknown
    from gpudoctor.model.reader import Facts
    from gpudoctor.probes.server_metrics import DECODE_SPEED

    try:
        speed = Facts(board.evidence)[DECODE_SPEED]
    except KeyError:  # no audit has asked it
        return None
    return None if isinstance(speed, Unknown) else speed.running


def unproven_question(steps: Sequence[Step]) -> Content:
    """Return the second question, about steps that were never seen on the real thing."""
    return Content("\n").join(
        [
            Content.styled("Never seen on the real thing", "bold $text-warning"),
            Content(""),
            *_names(f"{step.title}: proved {step.proof}" for step in steps),
            Content(""),
            Content.styled(
                "It is read back and can be undone like every other step, and you may be the "
                "first to run it on such a machine.",
                MUTED,
            ),
        ]
    )


def last_question(plan: Plan, without: Sequence[str], board: Board) -> Content:
    """Return the question before a change is made to last: the files, their undo, and where."""
    values = number_of(len(plan.items), "value")
    left = [f"{title}: there is no persistent form" for title in without]
    rows = [_where(f"Make it last ({values})", board.label or plan.label), Content("")]
    rows.append(plan_content(plan, {}, _QUESTION_WIDTH))
    if left:
        rows += [Content(""), Content.styled("Not made to last:", "bold"), *_names(left)]
    words = "It is a transaction of its own, with an undo of its own; what was applied stays."
    return Content("\n").join([*rows, Content(""), Content.styled(words, MUTED)])


def undo_question(applying: Applying, told: Transaction | None, board: Board) -> Content:
    """Return the question before an undo: which values come back, and whose they were."""
    if applying.plan is not None:
        names = [f"{item.name} back to {item.before}" for item in applying.plan.items]
    else:
        names = list(applying.steps)
    rows = [_where(f"Undo {applying.id}", board.label), Content("")]
    if told is not None:
        rows = [rows[0], by_whom(told), Content("")]
    tail = "\nA value that somebody else changed since is left as it is, and said."
    return Content("\n").join([*rows, *_names(names), Content.styled(tail, MUTED)])


def by_whom(told: Transaction) -> Content:
    """Return who made a transaction, and when."""
    who = told.operator or "somebody"
    return Content.assemble(
        ("by ", MUTED), host_line(who, limit=80), (" at ", MUTED), host_line(when(told), limit=40)
    )


def when(told: Transaction) -> str:
    """Return when a transaction began, in UTC."""
    return told.started.replace("T", " ").replace("Z", " UTC") or "an unknown time"
