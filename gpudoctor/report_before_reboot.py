"""The page before a reboot as text, Markdown and JSON: the same lines in the same order."""

import textwrap
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpudoctor import __version__
from gpudoctor.model import Reason
from gpudoctor.model.before_reboot import BeforeReboot, Line, Outlook, Topic
from gpudoctor.text import markdown_text, one_line

_MARKS = {
    Outlook.LOOK: "LOOK",
    Outlook.LOST: "WILL BE LOST",
    Outlook.UNKNOWN: "UNKNOWN",
    Outlook.READY: "READY",
}
_WIDTH = 14


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LineModel(_Model):
    """One thing that the reboot brings, takes or needs."""

    topic: Topic
    status: Outlook
    stops: bool = Field(description="true: a reboot now would lose the GPUs or the host")
    sentence: str
    todo: str = Field(description="what to do about it; may be empty")
    commands: list[str] = Field(
        description="for this host, as root there; gpudoctor's own where gpudoctor runs"
    )
    read: str = Field(description="what it rests on, with the values")
    reason: Reason | None = Field(description="why it is unknown, where it is")


class BeforeRebootModel(_Model):
    """What the next reboot of a host brings and takes; what stops it comes first."""

    version: Literal[1] = 1
    gpudoctor: str
    exit_code: int
    incomplete: bool
    label: str
    kernel: str = Field(description="the kernel that runs; may be empty")
    next_kernel: str = Field(description="the kernel that boots next; empty where not certain")
    problems: list[str]
    lines: list[LineModel]


def before_reboot_model(page: BeforeReboot) -> BeforeRebootModel:
    """Return the page as its published model."""
    return BeforeRebootModel(
        gpudoctor=__version__,
        exit_code=page.exit_code,
        incomplete=page.incomplete,
        label=page.label,
        kernel=page.kernel,
        next_kernel=page.coming,
        problems=list(page.problems),
        lines=[_line(line) for line in page.lines],
    )


def before_reboot_json(page: BeforeReboot) -> str:
    """Return the page as JSON text."""
    return before_reboot_model(page).model_dump_json(indent=2) + "\n"


def before_reboot_schema() -> dict[str, Any]:
    """Return the JSON schema of `gpudoctor audit --before-reboot --json`."""
    return BeforeRebootModel.model_json_schema(mode="serialization")


def _line(line: Line) -> LineModel:
    return LineModel(
        topic=line.topic,
        status=line.outlook,
        stops=line.stops,
        sentence=line.sentence,
        todo=line.todo,
        commands=list(line.commands),
        read=line.read,
        reason=line.reason,
    )


def _heading(page: BeforeReboot) -> Iterator[str]:
    yield f"before a reboot of {one_line(page.label)}"
    following = page.coming or "not certain"
    yield f"kernel {page.kernel or 'unknown'} runs; next: {following}"
    yield from (f"INCOMPLETE: {one_line(problem, 400)}" for problem in page.problems)


def plain(page: BeforeReboot, width: int = 100, terminal: bool = True) -> str:
    """Return the page as text of `width` columns; a command is never broken.

    Off a terminal nothing else is broken either.
    """
    room = max(width, 40) if terminal else 1 << 16
    lines = [*_heading(page), "", page.verdict, ""]
    for line in page.lines:
        lines += _entry(line, room)
    return "\n".join(lines) + "\n"


def _entry(line: Line, width: int) -> Iterator[str]:
    mark = "STOP" if line.stops else _MARKS[line.outlook]
    indent = " " * _WIDTH
    yield from _wrapped(line.sentence, width, f"{mark:<{_WIDTH}}", indent)
    if line.todo:
        yield from _wrapped(f"{line.todo}.", width, f"{indent}do: ", indent)
    yield from (f"{indent}  {command}" for command in line.commands)
    if line.read and line.outlook is not Outlook.READY:
        yield from _wrapped(line.read, width, f"{indent}read: ", indent)


def _wrapped(text: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def markdown(page: BeforeReboot) -> str:
    """Return the page as Markdown; text from the host cannot become markup."""
    lines = ["# gpudoctor before a reboot", ""]
    lines += [f"- {markdown_text(line)}" for line in _heading(page)]
    lines += ["", f"**{markdown_text(page.verdict)}**", "", "| status | what | what to do | read |"]
    lines += ["|---|---|---|---|"]
    for line in page.lines:
        mark = "STOP" if line.stops else _MARKS[line.outlook]
        todo = "; ".join(part for part in (line.todo, *line.commands) if part)
        cells = (mark, line.sentence, todo, line.read)
        lines.append("| " + " | ".join(markdown_text(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"
