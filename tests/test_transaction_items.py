"""Items with a guard, a tolerated complaint, an end of their own, or a life beyond a reboot."""

import subprocess
from pathlib import Path

import pytest

from gpudoctor.model.plan import Plan
from tests.script_runner import SHELLS, Rig, applets, is_root

pytestmark = pytest.mark.skipif(not is_root(), reason="the script runs as root only")
OTHER_BOOT = "0b000000-0000-0000-0000-000000000000"


@pytest.fixture(params=[*SHELLS, "busybox-alone"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    alone = request.param == "busybox-alone"
    return Rig(tmp_path, SHELLS["busybox" if alone else request.param], applets() if alone else "")


def applied(rig: Rig, plan: Plan) -> None:
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 0


def rebooted(rig: Rig, plan: Plan) -> None:
    """Make a transaction one of an earlier boot."""
    script = Path(rig.places.script(plan.id))
    script.write_text(plan.script.replace(plan.boot_id, OTHER_BOOT))
    journal = Path(rig.places.journal(plan.id))
    journal.write_bytes(journal.read_bytes().replace(plan.boot_id.encode(), OTHER_BOOT.encode()))


def test_a_guard_holds_an_undo_back(rig: Rig) -> None:
    busy = rig.root / "busy"
    guarded = rig.item("one", "1", "0", guard=f"[ ! -e {busy} ] || echo 5 GiB are in use")
    other = rig.item("two", "1", "0")
    plan = rig.plan()
    applied(rig, plan)
    busy.touch()
    assert rig.run(plan, "undo").returncode == 5
    assert (guarded.read_text(), other.read_text()) == ("0\n", "1\n")
    assert rig.detail(plan, "held") == "5 GiB are in use"
    busy.unlink()
    assert rig.run(plan, "undo").returncode == 0
    assert guarded.read_text() == "1\n"


def test_a_tolerated_refusal_is_skipped_and_never_undone(rig: Rig) -> None:
    refused = rig.item(
        "one", "1", "0", write="cat /nowhere", undo="echo 9 > {file}", tolerates="o such file|EIO"
    )
    other = rig.item("two", "1", "0")
    plan = rig.plan()
    applied(rig, plan)
    assert rig.story(plan)[1:3] == ["intent 1", "skipped 1"]
    assert "No such file" in rig.detail(plan, "skipped")
    assert rig.run(plan, "undo").returncode == 0
    assert (refused.read_text(), other.read_text()) == ("1\n", "1\n")


@pytest.mark.parametrize("write", ["cat /nowhere", "echo 5 > {file}; cat /nowhere", "true"])
def test_another_complaint_is_none_to_tolerate(rig: Rig, write: str) -> None:
    value = rig.item(
        "one", "1", "0", write=write, tolerates="o such file" if "5" in write else "EIO"
    )
    plan = rig.plan()
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 4
    assert value.read_text() == "1\n"


def test_what_has_ended_needs_no_undo(rig: Rig) -> None:
    value = rig.item("one", "1", "0", undo="echo 9 > {file}")
    plan = rig.plan()
    applied(rig, plan)
    value.write_text("gone\n")
    assert rig.run(plan, "undo").returncode == 0
    assert value.read_text() == "gone\n"


def test_what_has_ended_before_is_not_written(rig: Rig) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan()
    rig.put(plan)
    value.write_text("gone\n")
    refused = rig.run(plan, "apply")
    assert refused.returncode == 1 and "one is now gone" in refused.stderr


def test_a_reboot_leaves_what_lasts(rig: Rig) -> None:
    runtime, kept = rig.item("one", "1", "0"), rig.item("two", "1", "0", lasting=True)
    plan = rig.plan(confirm=3600)
    applied(rig, plan)
    rig.run(plan, "confirm")
    rebooted(rig, plan)
    runtime.write_text("3\n")  # whatever this boot made of it
    assert rig.run(plan, "undo").returncode == 0
    assert (runtime.read_text(), kept.read_text()) == ("3\n", "1\n")
    assert rig.story(plan)[-3:] == ["undone 2", "undone 1", "= undone"]


def test_what_lasts_can_be_confirmed_after_a_reboot(rig: Rig) -> None:
    rig.item("one", "1", "0", lasting=True)
    plan = rig.plan(confirm=3600)
    applied(rig, plan)
    rig.run(plan, "undo")
    rig.run(plan, "apply")
    rebooted(rig, plan)
    for mark in Path(rig.places.run).glob("*.armed"):
        mark.unlink()
    assert rig.run(plan, "confirm").returncode == 0
    assert rig.story(plan)[-1] == "= confirmed"


def test_a_reboot_leaves_nothing_to_confirm(rig: Rig) -> None:
    rig.item("one", "1", "0")
    plan = rig.plan()
    applied(rig, plan)
    rebooted(rig, plan)
    late = rig.run(plan, "confirm")
    assert late.returncode == 1 and "the reboot since then already undid it" in late.stderr


@pytest.mark.parametrize("lasts", [True, False])
def test_a_later_boots_transaction_stands_on_what_lasts(rig: Rig, lasts: bool) -> None:
    value = rig.item("one", "1", "0", lasting=lasts)
    rig.item("two", "1", "0", lasting=True)
    old, new = rig.plan(1), rig.plan(2)
    applied(rig, old)
    rebooted(rig, old)
    journal = Path(rig.places.journal(old.id))
    journal.write_bytes(journal.read_bytes().replace(b" begin 20", b" begin 19"))
    value.write_text("1\n")
    (rig.root / "two").write_text("1\n")
    rig.items = rig.items[:1]
    new = rig.plan(2)
    applied(rig, new)
    undone = rig.run(old, "undo")
    assert undone.returncode == (1 if lasts else 0)
    assert (f"{new.id} is newer" in undone.stderr) is lasts


def test_an_interrupted_newer_one_is_undone_first(rig: Rig) -> None:
    """Else its undo would put back what the older one had written."""
    value = rig.item("one", "1", "0")
    old = rig.plan(1)
    applied(rig, old)
    rig.items.clear()
    rig.item("one", "0", "1", write="echo 1 > {file}; kill -KILL $$")
    new = rig.plan(2)
    rig.put(new)
    subprocess.run(rig.command(new, "apply"), env={}, stderr=subprocess.DEVNULL)
    refused = rig.run(old, "undo")
    if refused.returncode == 0:
        pytest.fail(f"{value.read_text()!r}: {rig.story(old)}")
    assert f"{new.id} is newer" in refused.stderr


def test_an_empty_value_that_a_write_left_is_ours(rig: Rig) -> None:
    value = rig.item("one", "1", "0", write=": > {file}")
    plan = rig.plan()
    rig.put(plan)
    assert rig.run(plan, "apply").returncode == 4
    assert value.read_text() == "1\n"
