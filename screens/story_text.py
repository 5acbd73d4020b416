"""The story in words: what happened, each change with what became of it, and what else changed."""

from collections.abc import Iterable, Sequence

from textual.content import Content

from gpudoctor.model.diff import Diff
from gpudoctor.model.finding import Finding, Status
from gpudoctor.model.story import Story, Told
from gpudoctor.report_story import HEADINGS, ORDER, alike, ordered
from gpudoctor.screens.board import Board
from gpudoctor.screens.diff_text import difference_lines, remark_line
from gpudoctor.screens.kept import Comparison, Telling, lastable, pickable
from gpudoctor.screens.signs import FATES
from gpudoctor.screens.words import MUTED, hanging, host, host_line, number_of
from gpudoctor.text import one_line

_VALUES = 12
_BACK = "put back"
_WISHES = {
    "apply": "What is selected is planned as soon as the audit is through.",
    "last": "What is selected is planned, and then made to last, as soon as the audit is through.",
    "snapshot": "A snapshot is taken as soon as the audit is through.",
    "diff": "The diff is shown as soon as the audit is through.",
}


def opening(story: Story, board: Board, width: int) -> Content:
    """Return what happened, how many changes met which fate, and what was said or waits."""
    telling = board.telling
    words = host(f"{one_line(story.label, 80)}: {one_line(story.happened)}", "bold")
    lines = [hanging(Content(""), words, width), _fates(story)]
    lines += _machine(telling.since, width)
    if telling.wish:
        lines.append(Content.styled(f"… {_WISHES[telling.wish]}", "$text-primary"))
    for sentence in telling.said:
        lines.append(hanging(Content.styled("! ", "$text-warning"), host(sentence), width))
    return Content("\n").join(lines)


def _machine(made: Comparison | None, width: int) -> list[Content]:
    """Return the first thing of the machine itself that is not as it was: it may be a GPU."""
    parts = made.diff.inventory if made is not None and made.diff is not None else ()
    if not parts:
        return []
    first = next(difference_lines(parts[:1], width))
    more = f"  and {number_of(len(parts) - 1, 'more part')} not as before" if parts[1:] else ""
    return [first + Content.styled(more, MUTED)]


def _fates(story: Story) -> Content:
    parts = []
    for fate in ORDER:
        sign, style = FATES[fate]
        if number := len(story.of(fate)):
            parts.append(Content.assemble((sign, style), f" {number} ", (str(fate), MUTED)))
    return Content("  ").join(parts) if parts else Content.styled("no change of ours", MUTED)


def told_rows(
    story: Story, telling: Telling, findings: Sequence[Finding], wide: bool
) -> list[Content]:
    """Return a line a change: the box, its fate, what it is, its check; where wide, also whose."""
    told = ordered(story)
    title = max((min(len(one.title), 60 if wide else 36) for one in told), default=1)
    check = max((min(len(one.check), 40) for one in told), default=1)
    return [_told_row(one, telling, good_now(one, findings), wide, title, check) for one in told]


def _told_row(
    told: Told, telling: Telling, good: bool, wide: bool, title: int, check: int
) -> Content:
    sign, style = FATES[told.fate]
    picked = telling.picked(told)
    box = f"[{'x' if picked else ' '}] " if pickable(told) or lastable(told) else "    "
    fate = _BACK if told.again else str(told.fate)
    parts: list[Content | str | tuple[str, str]] = [
        (box, "bold $text-primary" if picked else MUTED),
        (f"{sign} {fate:<10} ", style),
        f"{one_line(told.title, title):<{title}}  ",
    ]
    if wide:
        parts.append((f"{one_line(told.check, check):<{check}}  ", MUTED))
        parts.append((f"{one_line(told.transaction, 22):<22}  {day(told.when):<16}  ", MUTED))
        parts.append((one_line(told.operator, 40), MUTED))
    if pickable(told) and good:
        parts.append(("  ✓ good now" if wide else "✓ good now", "$text-success"))
    elif not wide:
        parts.append((one_line(told.check, check), MUTED))
    return Content.assemble(*parts)


def good_now(told: Told, findings: Iterable[Finding]) -> bool:
    """Return whether the audit found the change's check at no fault, whatever became of it."""
    mine = [finding.status for finding in findings if finding.id == told.check]
    return bool(mine) and not {*mine} & {Status.ISSUE, Status.UNKNOWN}


def day(when: str) -> str:
    """Return a time in UTC to the minute."""
    return one_line(when, 40).replace("T", " ")[:16]


def told_content(told: Told, good: bool, width: int) -> Content:
    """Return one change in full: what became of it and why, its values, whose it was."""
    sign, style = FATES[told.fate]
    lines = [
        host_line(told.title, "bold"),
        Content.styled(
            f"{sign} {f'{_BACK} just now' if told.again else HEADINGS[told.fate]}", style
        ),
        hanging(Content(""), host(told.why), width),
        _good(told, good),
        _field("by", told.by, width),
        *_values(told, width),
        _field("check", told.check, width),
        _field("set by", f"{told.operator or 'somebody'} at {day(told.when)} UTC", width),
        _field("change", told.transaction, width),
        _lasts(told),
    ]
    return Content("\n").join([line for line in lines if line.plain])


def _good(told: Told, good: bool) -> Content:
    if not (good and pickable(told)):
        return Content("")
    return Content.styled("✓ the audit finds its check good now", "$text-success")


def _field(name: str, value: str, width: int) -> Content:
    if not value:
        return Content("")
    return hanging(Content.styled(f"{name:<8}", MUTED), host_line(value), width)


def _values(told: Told, width: int) -> list[Content]:
    """Return the values, those that are alike on one line: a setting may be that of 256 CPUs."""
    rows, groups = [], alike(told)
    for (wanted, now), names in groups[:_VALUES]:
        more = f" and {len(names) - 1} more" if names[1:] else ""
        value = Content.assemble(
            host_line(names[0], limit=120),
            (f"{more}  wanted ", MUTED),
            host_line(wanted, "bold", 120),
            (", now ", MUTED),
            host_line(now or "nothing", "bold", 120),
        )
        rows.append(hanging(Content("  "), value, width))
    if left := sum(len(names) for _, names in groups[_VALUES:]):
        rows.append(Content.styled(f"  … {number_of(left, 'more value')}", MUTED))
    return rows


def _lasts(told: Told) -> Content:
    if told.lasts:
        return Content.styled("Its persistent form is in place.", MUTED)
    if lastable(told):
        words = "No file of ours makes it last: select it, and "
        return Content.assemble((words, MUTED), ("m", "bold"), (" writes one.", MUTED))
    if told.can_last:
        return Content.assemble(("m", "bold"), (" applies it again and makes it last.", MUTED))
    return Content.styled("It has no persistent form.", MUTED)


def others_content(made: Comparison | None, story: Story, running: bool, width: int) -> Content:
    """Return what else has changed since: what the story itself tells is left out."""
    heading = Content.styled("What else has changed", "bold")
    if story.since is None:
        words = Content.styled("no snapshot of then is kept to compare with", MUTED)
    elif made is not None and made.problem:
        words = Content.assemble(("✗ ", "bold $text-error"), host(made.problem))
    elif made is None or made.diff is None:
        words = Content.styled("told when the audit is through …" if running else "…", MUTED)
    else:
        words = _others(made.diff, width)
    return Content("\n").join([heading, words])


def _others(diff: Diff, width: int) -> Content:
    rows = (*diff.inventory, *diff.counters)
    lines = [remark_line(remark, width) for remark in diff.remarks]
    lines += difference_lines(rows, width)
    if not rows:
        lines.append(Content.styled("  no part of the machine, and no counter, differs", MUTED))
    more = [(len(diff.settings), "setting"), (len(diff.findings), "finding")]
    words = " and ".join(number_of(number, thing) for number, thing in more if number)
    if words:
        lines.append(
            Content.assemble("  ", ("d", "bold"), (f" shows what differs in {words}", MUTED))
        )
    return Content("\n").join(lines)
