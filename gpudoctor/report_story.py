"""The story as text and as JSON: what was lost first, and the commands that put it back."""

import textwrap
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpudoctor.model.story import Fate, Story, Told
from gpudoctor.text import one_line

Command = Callable[..., str]
ORDER = (Fate.LOST, Fate.OVERRIDDEN, Fate.CHANGED, Fate.ENDED, Fate.UNKNOWN, Fate.KEPT)
HEADINGS = {
    Fate.LOST: "lost",
    Fate.OVERRIDDEN: "overridden: ours is in place, something else wins",
    Fate.CHANGED: "changed by somebody else",
    Fate.ENDED: "ended with what it was set on",
    Fate.UNKNOWN: "not known",
    Fate.KEPT: "kept",
}
# What a new plan sets again; what somebody else set on purpose is not among it.
AGAIN = (Fate.LOST, Fate.ENDED)
_GOOD, _BAD = (Fate.KEPT,), (Fate.LOST, Fate.OVERRIDDEN, Fate.CHANGED, Fate.ENDED)
_SHOWN, _CUT = 4, 60
_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"


def ordered(story: Story) -> list[Told]:
    """Return the changes, what was lost first."""
    return sorted(story.told, key=lambda one: ORDER.index(one.fate))


def some_lost(story: Story) -> bool:
    """Return whether something that was set is not so any more."""
    return bool(story.of(*_BAD))


def name_of(one: Told) -> str:
    """Return what `gpudoctor fix` calls the change: its check, with its alternative's number."""
    return f"{one.check}:{one.way}" if one.way > 1 else one.check


def plain(story: Story | None, label: str, command: Command, width: int, colour: bool) -> str:
    """Return the story as text of `width` columns; `command` makes a command line of words."""
    if story is None:
        why = "nothing that was set from here is known to be lost there"
        return f"{one_line(label, 80)}: nothing to tell: {why}\n"
    lines = [f"{one_line(story.label, 80)}: {one_line(story.happened, 300)}", summary(story)]
    for fate in ORDER:
        some = story.of(fate)
        if some:
            lines += ["", _coloured(f"{HEADINGS[fate].upper()} ({len(some)})", fate, colour)]
            lines += [row for one in some for row in _entry(one, width)]
    lines += ["", *(f"{what}: {line}" for what, line in commands(story, command))]
    if any(one.fate is Fate.KEPT and one.can_last and not one.lasts for one in story.told):
        lines.append("to make last what was kept: on the screen, w for this story, space, then m")
    return "\n".join(lines) + "\n"


def summary(story: Story) -> str:
    """Return in one line how many changes met which fate."""
    counts = [f"{len(some)} {fate}" for fate in ORDER if (some := story.of(fate))]
    return ", ".join(counts) or "nothing that gpudoctor set was in force then"


def commands(story: Story, command: Command) -> Iterator[tuple[str, str]]:
    """Yield what can be done and the very command lines: plan again, and make it last."""
    lost = [one for one in ordered(story) if one.fate in AGAIN]
    if lost:
        yield "to see the plan", command("plan", *_names(lost))
        yield "to set it again", command("fix", *_names(lost))
    if last := [one for one in lost if one.can_last]:
        yield "to make it last too", command("fix", *_names(last), "--persist")
    if story.since is not None:
        yield "to see what else changed", command("snapshot", "diff", story.since.id, "now")
    if story.rebooted:
        yield "to end this story", command("snapshot", "take")


def _names(some: Iterable[Told]) -> list[str]:
    return list(dict.fromkeys(name_of(one) for one in some))


def _entry(one: Told, width: int) -> Iterator[str]:
    yield f"  {one_line(one.title, 200)}   [{name_of(one)}]"
    lasts = "; made to last" if one.lasts else ""
    by = f"set by {one_line(one.operator, 80)} at {in_utc(one.when)}"
    yield f"    {by}, transaction {one.transaction}{lasts}"
    groups = alike(one)
    for (wanted, now), names in groups[:_SHOWN]:
        more = f" and {len(names) - 1} more" if names[1:] else ""
        yield from _wrapped(f"{one_line(names[0], 120)}{more}: {_value(one, wanted, now)}", width)
    if left := sum(len(names) for _, names in groups[_SHOWN:]):
        yield f"    … and {left} more (--json has them all)"
    yield from _wrapped(one_line(one.why, 500), width)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def in_utc(when: str) -> str:
    """Return a time for people, in UTC to the second; what tells none as it is."""
    try:
        return f"{datetime.fromisoformat(when).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError):
        return one_line(when, 40) or "a time not told"


def alike(one: Told) -> list[tuple[tuple[str, str], list[str]]]:
    """Return the names of values by what was set and what is there, those not as set first."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, wanted, now in one.values:
        found.setdefault((wanted, now), []).append(name)
    return sorted(found.items(), key=lambda row: row[0][0] == row[0][1])


def _value(one: Told, wanted: str, now: str) -> str:
    if now == wanted:
        return f"{_cut(now)}, as set"
    unread = one.fate is Fate.UNKNOWN and now.startswith("(")
    return f"{'not read' if unread else f'{_cut(now)} now'}, {_cut(wanted)} was set"


def _cut(text: str) -> str:
    return one_line(text, _CUT) or "(empty)"


def _coloured(text: str, fate: Fate, colour: bool) -> str:
    if not colour or fate not in (*_GOOD, *_BAD):
        return text
    return f"{_GREEN if fate in _GOOD else _RED}{text}{_PLAIN}"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StoryValueModel(_Model):
    """One value of a change: what was set, and what it reads now or why it was not read."""

    name: str
    wanted: str
    now: str


class ToldModel(_Model):
    """One change in the story."""

    fate: Fate
    check: str
    fix: str = Field(description="what `gpudoctor fix` calls it: the check, or check:N")
    title: str
    transaction: str
    operator: str
    when: str = Field(description="UTC, ISO 8601")
    why: str
    by: str = Field(description="what decided its fate, where that is known; or empty")
    can_last: bool = Field(description="it has a form that outlasts a reboot")
    lasts: bool = Field(description="that form is in place")
    values: list[StoryValueModel]


class StoryAnswer(_Model):
    """`gpudoctor snapshot story --json`; `told` is empty where there is nothing to tell."""

    version: Literal[1] = 1
    exit_code: int
    host: str
    story: bool = Field(description="false: nothing to tell")
    rebooted: bool
    happened: str
    since: str = Field(description="id of the snapshot it is told from; or empty")
    since_taken: str
    audited: bool = Field(description="true: an audit settled what could not be read by value")
    told: list[ToldModel] = Field(description="what was lost first")
    commands: dict[str, str] = Field(description="command lines to type, by what they do")
    diff: Any = Field(description="snapshot-diff.json from that snapshot to now; null: not made")


def story_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schema of what the story prints, by its file's name."""
    return {"snapshot-story": StoryAnswer.model_json_schema(mode="serialization")}


def story_json(
    story: Story | None,
    label: str,
    command: Command,
    audited: bool = False,
    diff: object = None,
) -> str:
    """Return the story as JSON."""
    since = story.since if story is not None else None
    answer = StoryAnswer(
        exit_code=int(story is not None and some_lost(story)),
        host=label,
        story=story is not None,
        rebooted=story.rebooted if story is not None else False,
        happened=story.happened if story is not None else "",
        since=since.id if since is not None else "",
        since_taken=since.taken if since is not None else "",
        audited=audited,
        told=[_told_model(one) for one in ordered(story)] if story is not None else [],
        commands=dict(commands(story, command)) if story is not None else {},
        diff=diff,
    )
    return answer.model_dump_json(indent=2) + "\n"


def _told_model(one: Told) -> ToldModel:
    return ToldModel(
        fate=one.fate,
        check=one.check,
        fix=name_of(one),
        title=one.title,
        transaction=one.transaction,
        operator=one.operator,
        when=one.when,
        why=one.why,
        by=one.by,
        can_last=one.can_last,
        lasts=one.lasts,
        values=[StoryValueModel(name=n, wanted=w, now=now) for n, w, now in one.values],
    )
