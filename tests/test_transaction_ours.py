"""Whose value it is that an undo finds, and what an undo says where it cannot know."""

from pathlib import Path

import pytest

from tests.script_runner import SHELLS, Rig, is_root

pytestmark = pytest.mark.skipif(not is_root(), reason="the script runs as root only")


@pytest.fixture(params=SHELLS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return Rig(tmp_path, SHELLS[request.param])


def test_what_an_earlier_run_made_is_not_ours_any_more(rig: Rig) -> None:
    """The first run is clamped to 64 and undone; later the 64 is somebody else's."""
    clamped = f"[ -e {rig.root}/once ] && echo 100 > {{file}} || {{{{ : > {rig.root}/once; "
    value = rig.item("one", "1", "100", write=clamped + "echo 64 > {file}; }}")
    plan = rig.plan()
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 4
    assert rig.run(plan, "apply").returncode == 0
    value.write_text("64\n")
    assert rig.run(plan, "undo").returncode == 5
    assert value.read_text() == "64\n" and rig.detail(plan, "foreign") == "64"


def test_a_half_done_undo_goes_on_once_it_can(rig: Rig) -> None:
    halting = f"[ -e {rig.root}/free ] && echo 1 > {{file}} || echo half > {{file}}"
    value = rig.item("one", "1", "0", undo=halting)
    plan = rig.plan()
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 0
    assert rig.run(plan, "undo").returncode == 5
    assert rig.detail(plan, "stuck") == "half"
    (rig.root / "free").touch()
    assert rig.run(plan, "undo").returncode == 0
    assert value.read_text() == "1\n"


def test_long_values_are_compared_whole(rig: Rig) -> None:
    wanted, start = "x" * 300, "y" * 300
    value = rig.item("one", start, wanted, undo="echo " + "z" * 250 + "a > {file}")
    plan = rig.plan()
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 0
    assert rig.run(plan, "undo").returncode == 5
    value.write_text("z" * 250 + "b\n")  # alike in its first 200 characters
    assert rig.run(plan, "undo").returncode == 5
    assert value.read_text() == "z" * 250 + "b\n"


def test_an_undo_that_cannot_tell_what_was_written_says_so(rig: Rig) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan()
    script = rig.put(plan)
    assert rig.run(plan, "apply").returncode == 0
    script.write_text(plan.script.replace("umask 077", "umask 077\nawk() { return 127; }", 1))
    assert rig.run(plan, "undo").returncode == 5
    assert value.read_text() == "0\n"
    script.write_text(plan.script)
    assert rig.run(plan, "undo").returncode == 0
    assert value.read_text() == "1\n"


def test_a_write_that_the_timer_ends_midway_goes_back(rig: Rig) -> None:
    value = rig.item("one", "1", "0", write="echo half > {file}; sleep 300")
    plan = rig.plan(confirm=1)
    rig.put(plan)
    assert rig.start(plan, "apply").wait(30) == -9
    rig.wait_for(plan, "state undone")
    assert value.read_text() == "1\n"


def test_a_batch_of_skips_is_no_success(rig: Rig) -> None:
    value = rig.item("one", "1", "0", write="echo not allowed >&2; false", tolerates="not allowed")
    plan = rig.plan()
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 4
    assert value.read_text() == "1\n" and rig.story(plan)[-1] == "= failed"


def test_an_undo_of_what_never_began_ends(rig: Rig) -> None:
    rig.item("one", "1", "0")
    plan = rig.plan()
    rig.put(plan)
    done = rig.run(plan, "undo")
    assert (done.returncode, done.stdout) == (0, "nothing was applied\n")
    assert rig.story(plan) == ["= undone"]
