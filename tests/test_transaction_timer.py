"""The timer of --confirm-within on the target, by real shells: silence puts everything back."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.model.plan import Plan
from tests.script_runner import SHELLS, Rig, applets, is_root, killing, processes, until

pytestmark = pytest.mark.skipif(not is_root(), reason="the script runs as root only")
LONG = 3600


@pytest.fixture(params=[*SHELLS, "busybox-alone"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """A target of each kind; no timer of ours is left on it at the end."""
    alone = request.param == "busybox-alone"
    made = Rig(tmp_path, SHELLS["busybox" if alone else request.param], applets() if alone else "")
    yield made
    until(lambda: not processes(made), f"{processes(made)} still run")


def applied(rig: Rig, plan: Plan) -> None:
    rig.put(plan)
    done = rig.run(plan, "apply")
    assert (done.returncode, done.stdout, done.stderr) == (0, "applied\n", "")


def test_what_nobody_confirms_goes_back(rig: Rig) -> None:
    first, second = rig.item("one", "1", "0"), rig.item("two", "a", "b")
    plan = rig.plan(confirm=1)
    applied(rig, plan)
    rig.wait_for(plan, "state undone")
    assert (first.read_text(), second.read_text()) == ("1\n", "a\n")
    story = rig.story(plan)
    assert story.index("armed") < story.index("intent 1")
    assert story[-4:] == ["= undoing", "undone 2", "undone 1", "= undone"]
    waited = rig.uptime(plan, "fired") - rig.uptime(plan, "armed")
    assert waited >= 0.5  # the timer starts a little before its line
    assert b"undone nobody confirmed within 1 s" in rig.journal(plan)
    until(lambda: not rig.marks(), "marks are left")


def test_what_is_confirmed_stays(rig: Rig) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan(confirm=LONG)
    applied(rig, plan)
    assert any("timer" in words for words in processes(rig))
    done = rig.run(plan, "confirm")
    assert (done.returncode, done.stdout, done.stderr) == (0, "confirmed\n", "")
    until(lambda: not processes(rig), "the timer still runs")
    assert not rig.marks()
    rig.run(plan, "fire")  # as a timer that comes late
    assert value.read_text() == "0\n" and rig.story(plan)[-1] == "= confirmed"
    again = rig.run(plan, "confirm")
    assert again.returncode == 0 and "already" in again.stdout
    assert rig.run(plan, "undo").returncode == 0 and value.read_text() == "1\n"
    late = rig.run(plan, "confirm")
    assert late.returncode == 1 and "undone, not applied" in late.stderr


def test_no_step_runs_after_the_timer(rig: Rig) -> None:
    values = [rig.item(f"v{i}", "1", "0", write="sleep 0.5; echo 0 > {file}") for i in range(9)]
    plan = rig.plan(confirm=1)
    rig.put(plan)
    rig.run(plan, "apply")
    rig.wait_for(plan, "state undone")
    story = rig.story(plan)
    assert "intent 1" in story and "intent 9" not in story
    assert not any(
        words.startswith(("intent", "done")) for words in story[story.index("= undoing") :]
    )
    assert {value.read_text() for value in values} == {"1\n"}


def test_a_step_that_hangs_is_ended(rig: Rig) -> None:
    first, second = rig.item("one", "1", "0"), rig.item("two", "1", "0", write="sleep 900")
    plan = rig.plan(confirm=1)
    rig.put(plan)
    running = rig.start(plan, "apply")
    rig.wait_for(plan, "state undone")
    assert running.wait(10) == -9
    assert (first.read_text(), second.read_text()) == ("1\n", "1\n")


def test_a_write_that_ends_late_is_waited_for(rig: Rig) -> None:
    """It ignores TERM, and is never killed; what it writes at last is taken back."""
    value = rig.item("one", "1", "0", write="trap '' TERM; sh -c 'sleep 8; echo 0 > {file}'")
    plan = rig.plan(confirm=1)
    rig.put(plan)
    rig.start(plan, "apply").wait(30)
    rig.wait_for(plan, "state undone")
    assert value.read_text() == "1\n"
    assert rig.uptime(plan, "state undone") - rig.uptime(plan, "intent 1") >= 8


def test_a_read_that_hangs_holds_no_lock(rig: Rig) -> None:
    first, second = rig.item("one", "1", "0"), rig.item("two", "1", "0")
    hang = rig.root / "hang"
    rig.reword(1, read=f"[ ! -e {hang} ] || sleep 900; cat {second}")
    rig.reword(0, write=f"touch {hang}; echo 0 > {first}")
    plan = rig.plan(confirm=1)
    rig.put(plan)
    running = rig.start(plan, "apply")
    assert running.wait(30) == -9
    rig.wait_for(plan, "state undone")
    assert (first.read_text(), second.read_text()) == ("1\n", "1\n")


def test_a_value_that_somebody_else_set_is_left(rig: Rig) -> None:
    first, second = rig.item("one", "1", "0"), rig.item("two", "1", "0")
    plan = rig.plan(confirm=1)
    applied(rig, plan)
    first.write_text("7\n")
    rig.wait_for(plan, "state undo-failed")
    assert (first.read_text(), second.read_text()) == ("7\n", "1\n")
    assert rig.detail(plan, "foreign") == "7"


def test_an_undo_disarms(rig: Rig) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan(confirm=LONG)
    applied(rig, plan)
    assert rig.run(plan, "undo").returncode == 0
    until(lambda: not processes(rig), "the timer still runs")
    assert not rig.marks() and value.read_text() == "1\n"


def test_only_one_waits_to_be_confirmed(rig: Rig) -> None:
    rig.item("one", "1", "0")
    first = rig.plan(1, confirm=LONG)
    applied(rig, first)
    rig.items.clear()
    rig.item("two", "1", "0")
    second = rig.plan(2, "bob@sofa")
    rig.put(second)
    refused = rig.run(second, "apply")
    assert refused.returncode == 1
    assert f"transaction {first.id} of alice@desk still waits to be confirmed" in refused.stderr
    assert rig.run(first, "confirm").returncode == 0
    assert rig.run(second, "apply").returncode == 0


def test_a_mark_of_a_run_that_wrote_nothing_stops_nobody(rig: Rig) -> None:
    rig.item("one", "1", "0")
    first, second = rig.plan(1, confirm=LONG), rig.plan(2)
    rig.put(first).write_text(killing(first.script, 3))  # begin, step, armed
    assert rig.run(first, "apply").returncode == -9
    assert rig.marks() == [f"{first.id}.armed", f"{first.id}.timer"]
    applied(rig, second)
    assert not rig.marks()


def test_two_confirm_at_once(rig: Rig) -> None:
    rig.item("one", "1", "0")
    plan = rig.plan(confirm=LONG)
    applied(rig, plan)
    both = [rig.start(plan, "confirm") for _ in range(2)]
    assert [one.wait(30) for one in both] == [0, 0]
    assert rig.journal(plan).count(b"state confirmed") == 1


def test_confirm_and_fire_race(rig: Rig) -> None:
    """Exactly one of them wins, and both tell the same.

    Whoever lost gets a head start in the next race, so that they meet at the same moment.
    """
    value = rig.item("one", "1", "0")
    won: list[bool] = []
    ahead = 0.0  # seconds that confirm starts before fire; below zero it starts after
    for number in range(1, 101):
        plan = rig.plan(number, confirm=LONG)
        applied(rig, plan)
        running = {}
        for verb in ("confirm", "fire") if ahead >= 0 else ("fire", "confirm"):
            running[verb] = rig.start(plan, verb)
            if len(running) == 1:
                time.sleep(abs(ahead))
        kept = running["confirm"].wait(30) == 0
        assert running["fire"].wait(30) == 0
        assert value.read_text() == ("0\n" if kept else "1\n")
        assert rig.story(plan)[-1] == ("= confirmed" if kept else "= undone")
        assert not rig.marks()
        rig.run(plan, "undo")
        won.append(kept)
        ahead += -0.004 if kept else 0.004
        if number >= 15 and len(set(won)) == 2:
            return
    raise AssertionError(f"one always wins: {set(won)}")


def test_undo_and_fire_race(rig: Rig) -> None:
    value = rig.item("one", "1", "0")
    for number in range(1, 6):
        plan = rig.plan(number, confirm=LONG)
        applied(rig, plan)
        running = [rig.start(plan, verb) for verb in ("fire", "undo")]
        assert [one.wait(60) for one in running] == [0, 0]
        assert value.read_text() == "1\n" and rig.story(plan)[-1] == "= undone"
        assert not rig.marks()


def test_run_by_hand_it_never_ends_the_operators_shell(rig: Rig) -> None:
    """Its process group is then the terminal's, with other commands in it."""
    value = rig.item("one", "1", "0", write="sleep 900")
    plan = rig.plan(confirm=1)
    rig.put(plan)
    command = " ".join(rig.command(plan, "apply"))
    terminal = subprocess.Popen(
        ["sh", "-c", f"sleep 901 & {command}; echo $?; kill $! && echo alive"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert terminal.communicate(timeout=30)[0] == b"137\nalive\n"
    rig.wait_for(plan, "state undone")
    assert value.read_text() == "1\n"


def test_where_systemd_has_no_timer_for_us_a_session_keeps_it(rig: Rig) -> None:
    rig.item("one", "1", "0")
    plan = rig.plan(confirm=LONG)
    fake = rig.root / "bin"
    fake.mkdir()
    (fake / "systemd-run").write_text("#!/bin/sh\nexit 1\n")
    (fake / "systemctl").write_text(f'#!/bin/sh\necho "$@" >>{fake}/asked\n')
    for tool in fake.iterdir():
        tool.chmod(0o700)
    script = plan.script.replace("-d /run/systemd/system", f"-d {fake}")
    rig.put(plan).write_text(script.replace("PATH=", f"PATH={fake}:", 1))
    assert rig.run(plan, "apply").returncode == 0
    assert b"armed 3600 session" in rig.journal(plan)
    assert rig.run(plan, "undo").returncode == 0
    assert (fake / "asked").read_text() == f"stop gpudoctor-{plan.id}.timer\n"


def test_no_timer_no_write(rig: Rig) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan(confirm=LONG)
    rig.put(plan).write_text(plan.script.replace("exec setsid", "exec false"))
    refused = rig.run(plan, "apply")
    assert refused.returncode == 1 and "could not be started" in refused.stderr
    assert value.read_text() == "1\n" and not rig.marks()


def test_a_killed_batch_is_healed_without_anybody(rig: Rig) -> None:
    values = [rig.item(f"v{i}", "1", "0") for i in range(3)]
    plan = rig.plan(confirm=1)
    rig.put(plan).write_text(killing(plan.script, 9))  # begin, 3 steps, armed, applying, 3 more
    assert rig.run(plan, "apply").returncode == -9
    Path(rig.places.script(plan.id)).write_text(plan.script)
    assert b"intent 2" in rig.journal(plan)
    rig.wait_for(plan, "state undone")
    assert {value.read_text() for value in values} == {"1\n"}


def test_a_late_timer_does_nothing_to_a_failed_batch(rig: Rig) -> None:
    rig.item("one", "1", "0", write="true")
    plan = rig.plan(confirm=LONG)
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 4
    assert not rig.marks()
    rig.run(plan, "fire")
    assert rig.story(plan)[-1] == "= failed"


def test_ended_processes_are_not_mistaken(rig: Rig) -> None:
    """A runner's pid that is another process by now is neither killed nor taken for it."""
    rig.item("one", "1", "0")
    plan = rig.plan(confirm=1)
    rig.put(plan).write_text(killing(plan.script, 5))
    rig.run(plan, "apply")
    Path(rig.places.script(plan.id)).write_text(plan.script)
    Path(rig.places.folder(plan.id), "runner").write_text(f"{os.getpid()} 1\n")
    rig.wait_for(plan, "state undone")
    assert time.monotonic() > 0  # we live
