"""Keep it or not, at a real terminal: the question, the countdown, and what each answer does."""

import asyncio
import pickle
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import Sysctl
from gpudoctor.model.plan import Plan, State, Step
from gpudoctor.plan import values_hash
from gpudoctor.transaction import transactions
from gpudoctor.transaction_script import Header, render
from tests.cli_rig import CHECK, Terminal, terminal
from tests.script_runner import BOOT, Rig, is_root

QUESTION = "Keep it? [y/N] (the target takes everything back in"
DEMO = """
import sys
import gpudoctor.cli_ask
from gpudoctor.cli import main

gpudoctor.cli_ask._SHORTEST = 1
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def demo(tmp_path: Path, *more: str, term: str = "xterm") -> Iterator[Terminal]:
    argv = ("fix", CHECK, "--demo", *more)
    with terminal(DEMO, *argv, state=tmp_path, term=term) as shown:
        yield shown


def test_both_questions_and_the_countdown(tmp_path: Path) -> None:
    with demo(tmp_path, "--confirm-within", "60s") as shown:
        shown.until("Apply 1 change to pve-gpu1 (simulated)")
        shown.until("? [y/N] ")
        shown.type("y\n")
        shown.until("unless confirmed\n")
        shown.until(QUESTION)
        shown.until(f"\x1b7\r{QUESTION}")
        shown.until("\x1b8")
        shown.type("yes\n")
        assert shown.end() == 0
        left = [int(n) for n in re.findall(r"takes everything back in +(\d+) s\)", shown.said)]
        assert 60 >= left[0] > left[-1] >= 50
        assert "confirmed: it stays" in shown.said and "undoing" not in shown.said


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_anything_but_yes_takes_it_back_at_once(tmp_path: Path, answer: str) -> None:
    with demo(tmp_path, "--yes", "--confirm-within", "60m") as shown:
        shown.until(QUESTION)
        shown.type(answer)
        assert shown.end() == 1
        assert "kernel.numa_balancing: put back, read back" in shown.said
        assert shown.said.endswith("undone, every value is as before\n")


def test_the_timer_is_4_and_says_so(tmp_path: Path) -> None:
    with demo(tmp_path, "--yes", "--confirm-within", "2s", term="dumb") as shown:
        shown.until(QUESTION)
        assert shown.end() == 4
        assert "undone, every value is as before: nobody confirmed within 2 s" in shown.said
        assert "\x1b" not in shown.said and shown.said.count(QUESTION) == 1  # dumb: not redrawn


def test_the_end_of_input_leaves_it_to_the_timer(tmp_path: Path) -> None:
    with demo(tmp_path, "--yes", "--confirm-within", "3s") as shown:
        shown.until(QUESTION)
        shown.type("\x04")
        shown.until("no answer: the target takes everything back\n")
        assert shown.end() == 4


def test_what_was_typed_before_the_question_is_no_answer(tmp_path: Path) -> None:
    with demo(tmp_path, "--confirm-within", "60s") as shown:
        shown.until("? [y/N] ")
        shown.type("y\ny\n")
        shown.until(f"\x1b7\r{QUESTION}")  # it is asked, and nothing answers
        shown.until("\x1b8")
        shown.type("n\n")
        assert shown.end() == 1


def test_an_interrupt_tells_how_to_keep_it(tmp_path: Path) -> None:
    with demo(tmp_path, "--yes", "--confirm-within", "60s") as shown:
        shown.until(QUESTION)
        shown.process.send_signal(signal.SIGINT)
        assert shown.end() == 130
        assert re.search(r"takes transaction \S+ back, unless `gpudoctor confirm 2", shown.said)


def test_an_interrupt_at_the_first_question_changes_nothing(tmp_path: Path) -> None:
    with demo(tmp_path) as shown:
        shown.until("? [y/N] ")
        shown.process.send_signal(signal.SIGINT)
        assert shown.end() == 130
        assert shown.said.endswith("gpudoctor: nothing was changed\n")


def test_no_at_the_first_question_changes_nothing(tmp_path: Path) -> None:
    with demo(tmp_path) as shown:
        shown.until("? [y/N] ")
        shown.type("n\n")
        assert shown.end() == 1
        assert "gpudoctor: nothing was changed" in shown.said and "writing" not in shown.said


REAL = """
import argparse, functools, pickle, sys
from pathlib import Path
import gpudoctor.cli_fix, gpudoctor.cli_keep, gpudoctor.loop
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal

plan, places = pickle.loads(Path(sys.argv[1]).read_bytes())

async def audit(*_):
    return AuditResult("rig", "root")

async def captured(*_):
    return {}

for module, names in (
    (gpudoctor.cli_fix, ["transactions"]),
    (gpudoctor.cli_keep, ["undo", "watch"]),
    (gpudoctor.loop, ["apply", "confirm", "watch"]),
):
    for name in names:
        setattr(module, name, functools.partial(getattr(module, name), places=places))
gpudoctor.cli_fix.run_audit = gpudoctor.loop.run_audit = audit
gpudoctor.cli_fix.capture_chosen = captured
gpudoctor.cli_fix.make_plan = lambda *_, **__: plan
try:
    sys.exit(gpudoctor.cli_fix.fix_command(argparse.Namespace(
        checks=["kern-numa-balancing"], yes=True, json=False,
        make_target=lambda: LiveTarget(LocalTransport()),
    )))
except Refusal as refusal:
    print(refusal.sentence)
    sys.exit(refusal.code)
"""
as_root = pytest.mark.skipif(not is_root(), reason="the script runs as root only")


def waiting_plan(rig: Rig, seconds: int) -> Plan:
    """Return a plan of the rig's items that the target undoes unless confirmed."""
    steps = tuple(Step("check", Sysctl(i.name, i.wanted), (i,), risk="medium") for i in rig.items)
    header = Header("20260101-000000-0000aa", "rig", "me", BOOT, values_hash(steps), seconds)
    script = render(header, steps, rig.places)
    return Plan(
        header.id, "rig", "me", "", BOOT, steps, script, header.hash, confirm_within=seconds
    )


@contextmanager
def real(rig: Rig, seconds: int) -> Iterator[Terminal]:
    """Run `fix` on this machine's own shell, its values and places below a folder."""
    file = rig.root / "plan"
    file.write_bytes(pickle.dumps((waiting_plan(rig, seconds), rig.places)))
    with terminal(REAL, str(file), state=rig.root / "client") as shown:
        yield shown


def state_of(rig: Rig) -> State:
    (told,) = asyncio.run(transactions(LiveTarget(LocalTransport()), rig.places))
    return told.state


@as_root
@pytest.mark.parametrize(
    ("answer", "code", "value", "state"),
    [("y\n", 0, "0\n", State.CONFIRMED), ("n\n", 1, "1\n", State.UNDONE)],
)
def test_on_a_real_shell(tmp_path: Path, answer: str, code: int, value: str, state: State) -> None:
    rig = Rig(tmp_path)
    file = rig.item("one", "1", "0")
    with real(rig, 60) as shown:
        shown.until(QUESTION)
        assert file.read_text() == "0\n"
        shown.type(answer)
        assert shown.end() == code, shown.said
    assert (file.read_text(), state_of(rig)) == (value, state)


@as_root
def test_a_terminal_that_goes_away_leaves_it_to_the_target(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    file = rig.item("one", "1", "0")
    with real(rig, 10) as shown:
        shown.until(QUESTION)
        shown.process.kill()
    end = time.monotonic() + 30
    while state_of(rig) is not State.UNDONE:
        assert time.monotonic() < end
    assert file.read_text() == "1\n"


@as_root
def test_a_yes_that_comes_too_late_is_followed_to_the_undo(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    file = rig.item("one", "1", "0", undo="sleep 2; echo 1 > {file}")
    with real(rig, 60) as shown:
        shown.until(QUESTION)
        firing = rig.start(waiting_plan(rig, 60), "fire")  # as if the time were over
        journal = Path(rig.places.journal(waiting_plan(rig, 60).id))
        end = time.monotonic() + 30
        while "state undoing" not in journal.read_text():
            assert time.monotonic() < end
        shown.type("y\n")
        shown.until("not confirmed: ")
        firing.wait(timeout=30)
        assert shown.end() == 4, shown.said
        assert "undone, every value is as before: nobody confirmed" in shown.said
    assert (file.read_text(), state_of(rig)) == ("1\n", State.UNDONE)
