"""What is left on a target: told, cleaned away, and kept while it stands."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import State
from gpudoctor.transaction import clean, confirm, transactions
from gpudoctor.transaction_script import clean_text
from tests.script_runner import Rig, is_root

pytestmark = pytest.mark.skipif(not is_root(), reason="the script runs as root only")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def here() -> LiveTarget:
    return LiveTarget(LocalTransport())


def test_a_folder_of_a_line_that_died_is_planned_and_cleaned(rig: Rig) -> None:
    rig.item("one", "1", "0")
    plan = rig.plan()
    Path(rig.places.folder(plan.id)).mkdir(parents=True)
    (told,) = asyncio.run(transactions(here(), rig.places))
    assert (told.id, told.state, told.stands) == (plan.id, State.PLANNED, False)
    assert asyncio.run(clean(here(), places=rig.places)) == ([plan.id], [])
    assert not Path(rig.places.home).exists() and not Path(rig.places.run).exists()


def test_clean_keeps_what_stands_and_all_that_is_not_ours(rig: Rig) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan(confirm=3600)
    rig.put(plan)
    rig.run(plan, "apply")
    odd = Path(rig.places.home, "20260101-000000-00000f of mine")
    odd.mkdir()
    (told,) = asyncio.run(transactions(here(), rig.places))
    assert told.timer is not None and 3500 < told.timer <= 3600 and told.written == 1
    with pytest.raises(Refusal, match=f"{plan.id} waits to be confirmed"):
        asyncio.run(clean(here(), forget=True, places=rig.places))
    gone, stay = asyncio.run(clean(here(), places=rig.places))
    assert (gone, [t.id for t in stay]) == ([], [plan.id])
    assert asyncio.run(confirm(here(), plan.id, rig.places)).state is State.CONFIRMED
    assert asyncio.run(clean(here(), forget=True, places=rig.places)) == ([plan.id], [])
    assert odd.exists() and value.read_text() == "0\n"
    odd.rmdir()
    asyncio.run(clean(here(), places=rig.places))
    assert not Path(rig.places.home).exists() and not Path(rig.places.run).exists()


def test_clean_leaves_what_was_applied_since_it_looked(rig: Rig) -> None:
    rig.item("one", "1", "0")
    plan = rig.plan()
    rig.put(plan)
    text = clean_text({plan.id: "planned"}, rig.places)
    rig.run(plan, "apply")
    assert subprocess.run(["sh", "-c", text], capture_output=True, check=True).stdout == b""
    assert rig.run(plan, "undo").returncode == 0
    assert subprocess.run(["sh", "-c", text], capture_output=True, check=True).stdout


def test_clean_waits_for_nobody(rig: Rig) -> None:
    go = rig.root / "go"
    rig.item("one", "1", "0", write=f"until [ -e {go} ]; do sleep 0.1; done; echo 0 > {{file}}")
    first, second = rig.plan(1), rig.plan(2)
    rig.put(second)
    rig.put(first)
    running = rig.start(first, "apply")
    rig.wait_for(first, "intent 1")
    with pytest.raises(Refusal, match="not cleaned: alice@desk since 20"):
        asyncio.run(clean(here(), places=rig.places))
    go.touch()
    assert running.wait(20) == 0
