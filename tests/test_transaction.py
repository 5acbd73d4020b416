"""The script that runs on the target, by real shells: it ends before or after, never between."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gpudoctor.journal import moves, parse
from gpudoctor.model.plan import ItemMoved, Plan
from tests.script_runner import SHELLS, Rig, applets, is_root, killing, until

pytestmark = pytest.mark.skipif(not is_root(), reason="the script runs as root only")


@pytest.fixture(params=[*SHELLS, "busybox-alone"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    alone = request.param == "busybox-alone"
    return Rig(tmp_path, SHELLS["busybox" if alone else request.param], applets() if alone else "")


def test_apply_then_undo(rig: Rig) -> None:
    first, second = rig.item("one", "1", "0"), rig.item("two", "a b", "it's $HOME")
    plan = rig.plan()
    rig.put(plan)
    done = rig.run(plan, "apply")
    assert (done.returncode, done.stdout, done.stderr) == (0, "applied\n", "")
    assert (first.read_text(), second.read_text()) == ("0\n", "it's $HOME\n")
    undone = rig.run(plan, "undo")
    assert (undone.returncode, undone.stdout, undone.stderr) == (0, "undone\n", "")
    assert (first.read_text(), second.read_text()) == ("1\n", "a b\n")
    assert rig.story(plan) == [
        *("= applying", "intent 1", "done 1", "intent 2", "done 2", "= applied"),
        *("= undoing", "undone 2", "undone 1", "= undone"),
    ]


def test_undo_twice_touches_nothing(rig: Rig) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan()
    rig.put(plan)
    rig.run(plan, "apply")
    rig.run(plan, "undo")
    value.write_text("0\n")  # somebody else's now, though it is what we once wrote
    again = rig.run(plan, "undo")
    assert again.returncode == 0 and "nothing is left" in again.stdout
    assert value.read_text() == "0\n"


def test_apply_twice_is_refused(rig: Rig) -> None:
    rig.item("one", "1", "0")
    plan = rig.plan()
    rig.put(plan)
    rig.run(plan, "apply")
    again = rig.run(plan, "apply")
    assert again.returncode == 1 and "already applied" in again.stderr


def test_a_moved_value_is_refused_before_any_write(rig: Rig) -> None:
    first, second = rig.item("one", "1", "0"), rig.item("two", "1", "0")
    plan = rig.plan()
    rig.put(plan)
    second.write_text("7\n")
    done = rig.run(plan, "apply")
    assert done.returncode == 1
    assert "two is now 7, and was 1 when this was planned" in done.stderr
    assert (first.read_text(), second.read_text()) == ("1\n", "7\n")
    assert rig.story(plan) == ["drift 2"]


def test_a_value_moved_while_applying_undoes_the_rest(rig: Rig) -> None:
    second = rig.root / "two"
    first = rig.item("one", "1", "0", write=f"echo 0 > {{file}}; echo 7 > {second}")
    rig.item("two", "1", "0")
    plan = rig.plan()
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 4
    assert (first.read_text(), second.read_text()) == ("1\n", "7\n")


@pytest.mark.parametrize("write", ["true", "echo 0 > /nowhere/file", "kill -KILL $$; :"])
def test_a_write_that_does_not_take_undoes_everything(rig: Rig, write: str) -> None:
    if write.startswith("kill"):
        write = 'sh -c "kill -KILL \\$\\$"'
    first, second = rig.item("one", "1", "0"), rig.item("two", "1", "0", write=write)
    plan = rig.plan()
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 4
    assert (first.read_text(), second.read_text()) == ("1\n", "1\n")
    assert rig.story(plan)[-4:] == ["= undoing", "undone 2", "undone 1", "= failed"]
    assert rig.detail(plan, "complaint").startswith("exit ")


def test_a_clamped_write_is_ours_to_undo(rig: Rig) -> None:
    value = rig.item("one", "1", "100", write="echo 64 > {file}")
    plan = rig.plan()
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 4
    assert value.read_text() == "1\n"
    assert rig.detail(plan, "ignored") == "64"


def test_a_foreign_value_is_left_and_told(rig: Rig) -> None:
    first, second = rig.item("one", "1", "0"), rig.item("two", "1", "0")
    plan = rig.plan()
    rig.put(plan)
    rig.run(plan, "apply")
    second.write_text("5\n")
    undone = rig.run(plan, "undo")
    assert undone.returncode == 5
    assert (first.read_text(), second.read_text()) == ("1\n", "5\n")
    assert rig.detail(plan, "foreign") == "5"
    assert rig.story(plan)[-1] == "= undo-failed"
    second.write_text("0\n")
    assert rig.run(plan, "undo").returncode == 0
    assert second.read_text() == "1\n"


def test_an_undo_that_does_not_take_is_told(rig: Rig) -> None:
    rig.item("one", "1", "0", undo="true")
    plan = rig.plan()
    rig.put(plan)
    rig.run(plan, "apply")
    assert rig.run(plan, "undo").returncode == 5
    assert rig.detail(plan, "stuck") == "0"


def test_another_boot_undid_it_already(rig: Rig) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan()
    script = rig.put(plan)
    rig.run(plan, "apply")
    script.write_text(plan.script.replace(plan.boot_id, "0b00-another-boot"))
    undone = rig.run(plan, "undo")
    assert undone.returncode == 0 and "reboot" in undone.stdout
    assert value.read_text() == "0\n"


def test_a_plan_of_an_earlier_boot_is_refused(rig: Rig) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan(boot="0b00-another-boot")
    rig.put(plan)
    done = rig.run(plan, "apply")
    assert done.returncode == 1 and "rebooted" in done.stderr
    assert value.read_text() == "1\n"


def test_a_newer_transaction_is_undone_first(rig: Rig) -> None:
    value = rig.item("one", "1", "0")
    old, new = rig.plan(1), rig.plan(2)
    for plan in (old, new):
        rig.put(plan)
    rig.run(old, "apply")
    value.write_text("1\n")
    assert rig.run(new, "apply").returncode == 0
    refused = rig.run(old, "undo")
    assert refused.returncode == 1 and f"transaction {new.id} is newer" in refused.stderr
    assert value.read_text() == "0\n"
    assert rig.run(new, "undo").returncode == 0
    assert rig.run(old, "undo").returncode == 0


def _filling(plan: Plan) -> str:
    """Return the script on a disk that is full as soon as the file `full` is there."""
    place = '"$([ -e "$DIR/full" ] && echo /dev/full || echo "$DIR/journal")"'
    return plan.script.replace('dd of="$DIR/journal"', f"dd of={place}")


def test_no_write_without_a_journal(rig: Rig) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan()
    script = rig.put(plan)
    script.write_text(_filling(plan))
    (script.parent / "full").touch()
    assert rig.run(plan, "apply").returncode == 1
    assert value.read_text() == "1\n"


def test_a_disk_that_fills_up_stops_the_writes_and_undoes(rig: Rig) -> None:
    full = f"{rig.places.folder(rig.plan().id)}/full"
    first = rig.item("one", "1", "0", write=f"echo 0 > {{file}}; touch {full}")
    second = rig.item("two", "1", "0")
    plan = rig.plan()
    rig.put(plan).write_text(_filling(plan))
    assert rig.run(plan, "apply").returncode == 4
    assert (first.read_text(), second.read_text()) == ("1\n", "1\n")


def test_two_operators(rig: Rig) -> None:
    go = rig.root / "go"
    rig.item("one", "1", "0", write=f"until [ -e {go} ]; do sleep 0.1; done; echo 0 > {{file}}")
    first, second = rig.plan(1, "alice@desk"), rig.plan(2, "bob@sofa")
    for plan in (first, second):
        rig.put(plan)
    running = rig.start(first, "apply")
    rig.wait_for(first, "intent 1")
    refused = rig.run(second, "apply")
    assert refused.returncode == 1
    assert "busy: alice@desk since 20" in refused.stderr and first.id in refused.stderr
    go.touch()
    assert running.wait(30) == 0


def test_a_stale_lock_file_stops_nobody(rig: Rig) -> None:
    rig.item("one", "1", "0")
    plan = rig.plan()
    rig.put(plan)
    run = Path(rig.places.run)
    run.mkdir()
    (run / "lock").write_text("")
    (run / "owner").write_text("eve since forever\n")
    assert rig.run(plan, "apply").returncode == 0


def test_a_daemon_that_a_write_starts_keeps_no_lock(rig: Rig) -> None:
    rig.item("one", "1", "0", write="echo 0 > {file}; (sleep 3 &)")
    plan = rig.plan()
    rig.put(plan)
    rig.run(plan, "apply")
    start = time.monotonic()
    assert rig.run(plan, "undo").returncode == 0
    assert time.monotonic() - start < 2


def test_undo_waits_for_a_write_whose_runner_was_killed(rig: Rig) -> None:
    began, ended = rig.root / "began", rig.root / "ended"
    write = f"touch {began}; sleep 1; echo 0 > {{file}}; touch {ended}"
    value = rig.item("one", "1", "0", write=write)
    plan = rig.plan()
    rig.put(plan)
    running = rig.start(plan, "apply")
    until(began.exists, "the write does not begin")
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert rig.run(plan, "undo").returncode == 0
    assert ended.exists() and value.read_text() == "1\n"


@pytest.mark.parametrize("lines", range(1, 13))
def test_killed_at_each_line_of_the_journal(rig: Rig, lines: int) -> None:
    """Stop the runner the moment a line is on disk; undo then restores exactly what was."""
    values = [rig.item(name, f"old {name}", f"new {name}") for name in ("one", "two", "three")]
    plan = rig.plan()
    script = rig.put(plan)
    killed = killing(plan.script, lines)
    assert killed != plan.script
    script.write_text(killed)
    assert rig.run(plan, "apply").returncode == -signal.SIGKILL
    script.write_text(plan.script)
    assert rig.run(plan, "undo").returncode == 0
    assert [v.read_text() for v in values] == [f"old {n}\n" for n in ("one", "two", "three")]


@pytest.mark.parametrize("moment", ["begin", "applying", "intent 1", "done 2", "intent 6"])
def test_killed_from_outside_and_undone(rig: Rig, moment: str) -> None:
    values = [rig.item(f"v{i}", "1", "0") for i in range(6)]
    plan = rig.plan()
    rig.put(plan)
    running = rig.start(plan, "apply")
    rig.wait_for(plan, moment)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert rig.run(plan, "undo").returncode == 0
    assert {value.read_text() for value in values} == {"1\n"}


def test_hostile_values_are_only_text(rig: Rig) -> None:
    pwned = rig.root / "pwned"
    nasty = f"$(touch {pwned}); `touch {pwned}` '\"; touch {pwned} \\ * #"
    value = rig.item("one", nasty, "0")
    plan = rig.plan(operator=f"eve'; touch {pwned}; '\n touch {pwned}")
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 0
    value.write_text(f"{nasty} moved\n")
    assert rig.run(plan, "undo").returncode == 5
    value.write_text("0\n")
    assert rig.run(plan, "undo").returncode == 0
    assert value.read_text() == f"{nasty}\n"
    assert not pwned.exists()


def test_the_script_installs_itself_when_run_by_hand(rig: Rig, tmp_path: Path) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan()
    mine = tmp_path / "mine.sh"
    mine.write_text(plan.script)
    command = [*rig.shell, str(mine), "apply"]
    assert subprocess.run(command, capture_output=True, timeout=30).returncode == 0
    assert Path(rig.places.script(plan.id)).read_text() == plan.script
    assert rig.run(plan, "undo").returncode == 0 and value.read_text() == "1\n"


def test_wrong_verb(rig: Rig) -> None:
    plan = rig.plan()
    rig.put(plan)
    done = rig.run(plan, "apply; reboot")
    assert done.returncode == 2 and "usage" in done.stderr


def test_a_forged_item_number_is_no_item() -> None:
    lines = parse("1.0 intent \u00b2 x\n1.0 done 1\n".encode())
    assert [m.number for m in moves(lines, 0.0) if isinstance(m, ItemMoved)] == [1]
