"""Capturing: what the read texts of changes print on the host now, before anything is planned.

The same texts run again inside a transaction, so a plan's before values are just what it compares.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpudoctor.fixes import reads_of
from gpudoctor.hosts.recorded import RecordedTarget
from gpudoctor.hosts.root_shell import LiveShell, SimulatedShell, open_shell
from gpudoctor.hosts.target import Target
from gpudoctor.model import Change, Finding, Reason, Status, Unknown
from gpudoctor.model.audited import AuditResult
from gpudoctor.shell import quote
from gpudoctor.text import clean, one_line

Captured = Mapping[Change, Mapping[str, str | Unknown]]
Answer = str | Unknown

# R TEXT prints one line: "=value", "+" where it has several lines, or "?complaint". Each text runs
# in a subshell of its own, so that none can end or change the next.
_READ = (
    "n=$(printf '\\n.'); n=${n%.}; R() { if o=$(eval \"$1\" 2>/dev/null </dev/null); then case $o "
    'in *"$n"*) echo +;; *) printf \'=%s\\n\' "$o";; esac; else '
    'printf \'?%s\\n\' "$(sh -c "$1" 2>&1 >/dev/null </dev/null | tail -n 1)"; fi; }; '
)
_CHUNK = 40_000
# For a job, and more for each nvidia-smi: without persistence mode it wakes the GPU each time.
_LIMIT_SECONDS, _SMI_SECONDS = 30.0, 20.0
_REASONS = (
    ("No such file", Reason.NOT_PRESENT),
    ("No such device", Reason.NOT_PRESENT),
    ("not found", Reason.TOOL_MISSING),
    ("ermission", Reason.NO_PERMISSION),
    ("denied", Reason.NO_PERMISSION),
)


def changes_of(findings: Iterable[Finding]) -> list[Change]:
    """Return every change that the findings offer, each once."""
    found = (
        change
        for finding in findings
        if finding.status is Status.ISSUE
        for option in finding.verdict.changes
        for change in option
    )
    return list(dict.fromkeys(found))


async def capture(target: Target, changes: Sequence[Change]) -> Captured:
    """Return the value of every item of the changes, or why it could not be read.

    Takes a target that is not connected. Raises HostUnreachable or Refusal. A recording answers
    from what was recorded.
    """
    texts = list(dict.fromkeys(t for c in changes for t in reads_of(c).values()))
    if not texts:
        return {change: {} for change in changes}
    if isinstance(target, RecordedTarget):
        shell: LiveShell | SimulatedShell = SimulatedShell(target.machine())
    else:
        shell = await open_shell(target)
    try:
        answers = await read_texts(shell, texts)
    finally:
        await asyncio.shield(shell.close())
    if isinstance(target, RecordedTarget):
        answers = {text: _recorded(answer) for text, answer in answers.items()}
    return {
        change: {name: answers[text] for name, text in reads_of(change).items()}
        for change in changes
    }


async def capture_chosen(target: Target, result: AuditResult, checks: Sequence[str]) -> Captured:
    """Capture all that the findings of these checks offer to change."""
    names = {check.partition(":")[0] for check in checks}
    return await capture(target, changes_of(f for f in result.findings if f.id in names))


async def read_texts(shell: LiveShell | SimulatedShell, texts: Sequence[str]) -> dict[str, Answer]:
    """Return what each read text prints, or why it gave no value; over a shell that is open."""
    if isinstance(shell, SimulatedShell):
        return {text: _simulated(*shell.machine.sh(text)) for text in texts}
    chunks = list(_chunks(texts))
    told = await asyncio.gather(*(_ask(shell, chunk) for chunk in chunks))
    return {text: answer for chunk in told for text, answer in chunk.items()}


def _chunks(texts: Sequence[str]) -> Iterator[list[str]]:
    """Split the texts so that each job is a command line that any kernel takes."""
    chunk: list[str] = []
    size = 0
    for text in texts:
        if chunk and size + len(text) > _CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(text)
        size += len(text)
    yield chunk


async def _ask(shell: LiveShell, texts: Sequence[str]) -> dict[str, Answer]:
    smi = sum("nvidia-smi" in text for text in texts)
    answer = await shell.run(read_script(texts), limit=_LIMIT_SECONDS + smi * _SMI_SECONDS)
    if answer.lost is not None:
        return dict.fromkeys(texts, answer.lost)
    return values_of(texts, answer.stdout)


def read_script(texts: Sequence[str]) -> str:
    """Return the line of sh that prints what each read text does; `values_of` reads it."""
    if not texts:
        return ""
    return _READ + "; ".join(f"R {quote(text)}" for text in texts)


def values_of(texts: Sequence[str], output: bytes) -> dict[str, Answer]:
    """Return the value of each read text, from the output of their `read_script`."""
    lines = output.decode("utf-8", "backslashreplace").split("\n")[:-1]
    if len(lines) != len(texts):
        gap = Unknown(Reason.PARSE_FAILED, "the values were not told whole")
        return dict.fromkeys(texts, gap)
    return {text: _told(line) for text, line in zip(texts, lines, strict=True)}


def _told(line: str) -> Answer:
    if line[:1] == "=":
        return _value(line[1:])
    if line[:1] == "+":
        return Unknown(Reason.PARSE_FAILED, "it has more than one line")
    return _complaint(line[1:])


def _value(text: str) -> Answer:
    """Return a value as it is; only clean text is one (a plan shows it and quotes it)."""
    if clean(text) != text:
        return Unknown(Reason.PARSE_FAILED, "it is not plain text")
    return text


def _complaint(text: str) -> Unknown:
    said = one_line(text, 160)
    reason = next((r for words, r in _REASONS if words in said), Reason.PARSE_FAILED)
    return Unknown(reason, said or "its command failed")


def _simulated(code: int, out: str, complaint: str) -> Answer:
    if code:
        return _complaint(complaint.rstrip("\n").rpartition("\n")[2])
    text = out.rstrip("\n")
    return (
        Unknown(Reason.PARSE_FAILED, "it has more than one line") if "\n" in text else _value(text)
    )


def _recorded(answer: Answer) -> Answer:
    """Say of what failed on a recording that it was not recorded: nobody asked the host."""
    if isinstance(answer, Unknown):
        return Unknown(Reason.NOT_IN_RECORDING, "the recording does not tell it")
    return answer
