"""Every verb of the script killed at every line of its journal: before or after, never between."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.model.plan import Plan
from tests.script_runner import SHELLS, Rig, is_root, killing

pytestmark = pytest.mark.skipif(not is_root(), reason="the script runs as root only")
KILLED = -9
LONG = 3600


@pytest.fixture(params=SHELLS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    """A target with two values, one of which outlives a reboot."""
    made = Rig(tmp_path, SHELLS[request.param])
    made.item("one", "old", "new")
    made.item("two", "old", "new", lasting=True)
    return made


def values(rig: Rig) -> set[str]:
    return {(rig.root / name).read_text() for name in ("one", "two")}


def killed_runs(rig: Rig, verb: str, confirm: int = LONG) -> Iterator[Plan]:
    """Yield applied plans whose verb was killed after one more line each time, until it was not."""
    for number in range(1, 40):
        plan = rig.plan(number, confirm=confirm)
        script = rig.put(plan)
        if verb != "apply":
            assert rig.run(plan, "apply").returncode == 0
        lines = rig.journal(plan).count(b"\n")
        script.write_text(killing(plan.script, lines + number))
        ended = rig.run(plan, verb).returncode
        script.write_text(plan.script)
        yield plan
        if ended != KILLED:
            assert number > 1
            return
    raise AssertionError("it is killed for ever")


def undone(rig: Rig, plan: Plan) -> None:
    assert rig.run(plan, "undo").returncode == 0
    assert values(rig) == {"old\n"}
    assert not rig.marks()


def test_an_armed_apply(rig: Rig) -> None:
    for plan in killed_runs(rig, "apply"):
        rig.run(plan, "undo")
        assert values(rig) == {"old\n"}
        rig.run(plan, "fire")  # a late timer changes nothing
        assert values(rig) == {"old\n"} and not rig.marks()


def test_an_armed_apply_healed_by_its_timer(rig: Rig) -> None:
    for plan in killed_runs(rig, "apply"):
        rig.run(plan, "fire")
        assert values(rig) == {"old\n"} and not rig.marks()


def test_an_undo(rig: Rig) -> None:
    for plan in killed_runs(rig, "undo"):
        undone(rig, plan)


def test_an_undo_healed_by_the_timer(rig: Rig) -> None:
    for plan in killed_runs(rig, "undo"):
        rig.run(plan, "fire")
        assert values(rig) == {"old\n"} and not rig.marks()


def test_a_fire(rig: Rig) -> None:
    for plan in killed_runs(rig, "fire"):
        undone(rig, plan)


def test_a_confirm_killed_anywhere_can_be_made_again_or_undone(rig: Rig) -> None:
    places = ["  wait_for_lock 30 ||", "  journal state confirmed", "  unmark\n  echo confirmed"]
    for number, place in enumerate(places, 1):
        plan = rig.plan(number, confirm=LONG)
        script = rig.put(plan)
        assert rig.run(plan, "apply").returncode == 0
        assert plan.script.count(place) == 1
        script.write_text(plan.script.replace(place, f"  kill -KILL $$\n{place}"))
        assert rig.run(plan, "confirm").returncode == KILLED
        script.write_text(plan.script)
        rig.run(plan, "fire")
        assert values(rig) == {"new\n"}  # the timer has lost
        assert rig.run(plan, "confirm").returncode == 0
        assert rig.story(plan)[-1] == "= confirmed"
        undone(rig, plan)


def test_a_batch_that_fails_killed_while_it_undoes_itself(rig: Rig) -> None:
    rig.item("three", "old", "new", write="true")
    for plan in killed_runs(rig, "apply"):
        rig.run(plan, "undo" if len(rig.moves(plan)) % 2 else "fire")
        assert values(rig) == {"old\n"}
        rig.run(plan, "undo")
        assert values(rig) == {"old\n"} and not rig.marks()


def test_a_torn_line_swallows_no_other(rig: Rig) -> None:
    """Half a line of a full disk or a power cut, then a run that must be read whole."""
    plan = rig.plan()
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 0
    with Path(rig.places.journal(plan.id)).open("a") as stream:
        stream.write("12345.67 undo")
    undone(rig, plan)
    assert rig.story(plan)[-4:] == ["= undoing", "undone 2", "undone 1", "= undone"]


def test_a_write_right_after_a_torn_intent_is_known(rig: Rig) -> None:
    plan = rig.plan()
    half = '[ "$1" != done ] || { printf half >>"$DIR/journal"; torn="\\n"; false; } || return 1'
    script = plan.script.replace("journal() {\n", f"journal() {{\n  {half}\n")
    rig.put(plan).write_text(script)
    assert rig.run(plan, "apply").returncode == 4
    assert values(rig) == {"old\n"}
    assert rig.story(plan)[-3:] == ["= undoing", "undone 1", "= failed"]


def filled(plan: Plan) -> str:
    """Return a script whose folder takes no more bytes once the file `full` is there."""
    place = '"$([ -e "$DIR/full" ] && echo /dev/full || echo "$DIR/journal")"'
    return plan.script.replace('dd of="$DIR/journal"', f"dd of={place}")


def test_a_full_disk_stops_no_undo(rig: Rig) -> None:
    plan = rig.plan()
    script = rig.put(plan)
    assert rig.run(plan, "apply").returncode == 0
    script.write_text(filled(plan))
    full = script.parent / "full"
    full.touch()
    rig.run(plan, "undo")
    assert values(rig) == {"old\n"}
    full.unlink()
    undone(rig, plan)
    assert rig.story(plan)[-1] == "= undone"


def test_a_disk_that_turned_read_only_stops_no_undo(rig: Rig) -> None:
    """As the kernel makes it after an error; seen through a mount namespace of its own."""
    plan = rig.plan()
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 0
    home = rig.places.home
    text = f"mount --bind {home} {home} && mount -o remount,ro,bind {home} && ! touch {home}/x"
    command = ["unshare", "-m", "sh", "-c", f'{text} 2>/dev/null || exit 99; exec "$@"', "sh"]
    run = subprocess.run([*command, *rig.command(plan, "undo")], capture_output=True, timeout=60)
    if run.returncode == 99 and os.environ.get("CI") != "true":
        pytest.skip("no mounts can be made here")
    assert values(rig) == {"old\n"}
    undone(rig, plan)
