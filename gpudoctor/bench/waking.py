"""The wake-up latency of a host's CPUs: by how much timed sleeps there are too long.

The witness of idle states and of latency requests. A sleep ends with a timer's interrupt, on a CPU
that has nothing else to do: the time to leave its idle state is inside, and so are the interrupt,
the scheduler and the interpreter (microseconds). The timer slack of ordinary processes (50 µs) is
set to 1 ns for ours, which needs no privilege (proc(5), timerslack_ns; prctl(2), PR_SET_TIMERSLACK)
and goes through exec; where it stays, it is told. Before Python 3.11 a sleep is a select(), whose
slack is a thousandth of it. Nothing is pinned: the scheduler wakes us where
we slept, or on an idle CPU.
"""

import re
import shlex
from collections.abc import Callable
from importlib.resources import files

from gpudoctor.bench import wake
from gpudoctor.bench.answering import answer
from gpudoctor.hosts.target import Target
from gpudoctor.model import Evidence, Reason, Tool, Unknown
from gpudoctor.model.bench import Witness
from gpudoctor.model.error import Refusal
from gpudoctor.text import one_line

NAME, UNIT = "wake-up latency", "µs"
# For all of it: a slow machine takes seconds to start a python3.
SECONDS = 10.0
_LEAST = 50
_MOST_STATES = 12
_NEITHER = 66
_MISSING = Unknown(Reason.TOOL_MISSING, "the host has neither python3 nor cyclictest to take it")
_SLACK_NS = 1000


def _script() -> str:
    """Return one line of sh that runs the sleeps in python3, else in cyclictest.

    cyclictest by default forbids idle states while it runs; `--default-system` leaves them. Its
    thread does not keep the slack that it is started with (seen with 2.4 on Linux 6.18).
    """
    text = files("gpudoctor.bench").joinpath("wake.py").read_text()
    python = shlex.quote(f"exec({text!r})")
    every, count = round(wake.SECONDS * 1e6), wake.COUNT
    return (
        "{ echo 1 >/proc/self/timerslack_ns; } 2>/dev/null; "
        f"command -v python3 >/dev/null && exec python3 -IBc {python}; "
        f"command -v cyclictest >/dev/null || exit {_NEITHER}; "
        "echo by cyclictest; "
        f"exec cyclictest --default-system -q -t1 -i {every} -l {count} -h 10000"
    )


PROBE = Tool(
    "bench-wake-up",
    "python3",
    _script(),
    limit=SECONDS,
    meanings=((_NEITHER, _MISSING),),
)


async def wake_up(make_target: Callable[[], Target]) -> Witness:
    """Return the wake-up latency of the host now, or why it is unknown; takes about a second."""
    target = make_target()
    if target.simulated:
        return Witness(NAME, UNIT, unknown="the host is simulated: nothing wakes there")
    try:
        return read_wake_up(await answer(target, PROBE))
    except Refusal as refusal:
        return Witness(NAME, UNIT, unknown=refusal.sentence)


def read_wake_up(evidence: Evidence) -> Witness:
    """Return the witness that the sleeps' output tells."""
    if evidence.problem is not None:
        return Witness(NAME, UNIT, unknown=str(evidence.problem))
    words = _by_first_word(evidence.text)
    try:
        values = _values(words, evidence.text)
    except ValueError as error:
        return Witness(NAME, UNIT, unknown=f"its output cannot be read: {one_line(str(error), 80)}")
    if len(values) < _LEAST:
        said = one_line(evidence.stderr, 120) or f"{len(values)} sleeps in {wake.MOST:g} s"
        return Witness(NAME, UNIT, unknown=f"too few sleeps came of it ({said})")
    by = "python3" if words["by"][0].startswith("python") else "cyclictest"
    how = f"sleeps of {wake.SECONDS * 1e3:g} ms in {by} on the host, {_slack(words)}"
    return Witness(NAME, UNIT, values, how, _idle(words.get("idle", [])))


def _by_first_word(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        found.setdefault(word, []).append(rest)
    return found


def _values(words: dict[str, list[str]], text: str) -> tuple[float, ...]:
    """Return microseconds: python3's own list, or cyclictest's histogram. Raises ValueError."""
    if "by" not in words:
        raise ValueError("it does not say what ran")
    if "ns" in words:
        return tuple(max(0.0, int(word) / 1e3) for word in words["ns"][0].split())
    rows = re.findall(r"^(\d{6,})[ \t]+(\d{6,})\s*$", text, re.MULTILINE)
    if sum(int(count) for _, count in rows) > 10 * wake.COUNT:
        raise ValueError("more sleeps than were asked for")
    return tuple(float(at) for at, count in rows for _ in range(int(count)))


def _slack(words: dict[str, list[str]]) -> str:
    told = words.get("slack", [""])[0]
    if not told.isdecimal():
        return "timer slack unknown (50 µs by default), which is inside"
    if int(told) <= _SLACK_NS:
        return "timer slack 1 ns"
    return f"timer slack {int(told) / 1e3:g} µs, which is inside"


def _idle(rows: list[str]) -> str:
    """Return which idle states were entered meanwhile, and how often."""
    told = []
    for row in rows[:_MOST_STATES]:
        count, _, name = row.partition(" ")
        if count.isdecimal():
            told.append(f"{one_line(name, 20)} {count}")
    return f"idle states entered meanwhile on all CPUs: {', '.join(told)}" if told else ""
