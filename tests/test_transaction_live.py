"""A transaction through a session on this machine: put, started detached, watched, undone."""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpudoctor.hosts.local import LocalChannel, LocalTransport
from gpudoctor.hosts.root_shell import LiveShell
from gpudoctor.hosts.session import JobAnswer
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import Reason, Unknown
from gpudoctor.model.error import HostUnreachable, Refusal
from gpudoctor.model.plan import ItemMoved, Move, Plan, State, TimerArmed
from gpudoctor.transaction import apply, clean, transactions, undo
from tests.script_runner import Rig, is_root, processes, until

pytestmark = pytest.mark.skipif(not is_root(), reason="the script runs as root only")


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "client"))
    return Rig(tmp_path)


def here() -> LiveTarget:
    return LiveTarget(LocalTransport())


def applied(rig: Rig, plan: Plan, target: LiveTarget | None = None) -> list[str]:
    return asyncio.run(words(apply(target or here(), plan, rig.places)))


def undone(rig: Rig, plan: Plan) -> list[str]:
    return asyncio.run(words(undo(here(), plan.id, rig.places)))


async def words(moves: AsyncIterator[Move]) -> list[str]:
    return [
        f"{m.phase} {m.number}" if isinstance(m, ItemMoved) else f"= {m.state}"
        async for m in moves
        if not isinstance(m, TimerArmed)
    ]


def test_the_preview_is_what_the_host_got_and_the_client_kept(rig: Rig) -> None:
    rig.item("one", "it's 1", "0")
    plan = rig.plan()
    assert applied(rig, plan) == ["= applying", "intent 1", "done 1", "= applied"]
    there = Path(rig.places.script(plan.id))
    kept = list((rig.root / "client" / "gpudoctor").glob(f"*/{plan.id}.sh"))
    assert there.read_text() == plan.script == kept[0].read_text()
    for item in plan.items:
        assert f"1) {item.write};;" in plan.script and f"1) {item.undo};;" in plan.script
    assert there.stat().st_mode & 0o077 == there.parent.stat().st_mode & 0o077 == 0
    assert kept[0].stat().st_mode & 0o777 == 0o600
    assert undone(rig, plan) == ["= undoing", "undone 1", "= undone"]
    assert (rig.root / "one").read_text() == "it's 1\n"


def test_the_journal_tells_the_transaction(rig: Rig) -> None:
    rig.item("one", "1", "0")
    plan = rig.plan(operator="alice@desk of hers")
    applied(rig, plan)
    (told,) = asyncio.run(transactions(here(), rig.places))
    assert (told.id, told.state, told.operator) == (plan.id, State.APPLIED, "alice@desk of hers")
    assert told.steps == ("sysctl one = 0",) and told.checks == ("check-one",)
    assert told.boot_id == plan.boot_id and not told.epoch_ended
    assert told.started.startswith("20") and told.started.endswith("Z")


def test_many_values_travel_in_pieces(rig: Rig) -> None:
    for number in range(160):
        rig.item(f"value-{number:03}-{'x' * 60}", "1", "0")
    plan = rig.plan()
    assert len(plan.script) > 100_000
    rig.items = rig.items[:1]
    short = rig.plan(2)
    whole = Plan(
        short.id,
        short.label,
        short.operator,
        "",
        short.boot_id,
        short.steps,
        short.script + "\n# " + "x" * 120_000 + "\n",
        short.hash,
    )
    assert applied(rig, whole)[-1] == "= applied"
    assert Path(rig.places.script(short.id)).read_text() == whole.script


def test_refusals_are_sentences(rig: Rig) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan()
    value.write_text("3\n")
    with pytest.raises(Refusal, match="one is now 3, and was 1 when this was planned") as refused:
        applied(rig, plan)
    assert refused.value.code == 1
    with pytest.raises(Refusal, match="no transaction nonsense"):
        asyncio.run(words(undo(here(), "nonsense", rig.places)))


def test_failed_and_undone(rig: Rig) -> None:
    rig.item("one", "1", "0", write="true")
    assert applied(rig, rig.plan())[-3:] == ["= undoing", "undone 1", "= failed"]


def test_a_runner_that_is_killed_is_told_and_undone(rig: Rig) -> None:
    value = rig.item("one", "1", "0", write="echo 0 > {file}; kill -KILL $$; kill -KILL $PPID")
    plan = rig.plan()
    with pytest.raises(Refusal, match=f"rollback {plan.id}") as refused:
        applied(rig, plan)
    assert refused.value.code == 5
    assert undone(rig, plan)[-1] == "= undone"
    assert value.read_text() == "1\n"


class Flaky(LocalTransport):
    """Breaks the first channel soon after it is opened."""

    opened = 0

    async def open(self, command: str) -> LocalChannel:
        channel = await super().open(command)
        self.opened += 1
        if self.opened == 1:
            loop = asyncio.get_running_loop()
            loop.call_later(0.8, lambda: os.killpg(channel._process.pid, signal.SIGKILL))
        return channel


def test_a_broken_line_is_made_again(rig: Rig) -> None:
    value = rig.item("one", "1", "0", write="sleep 2; echo 0 > {file}")
    transport = Flaky()
    story = applied(rig, rig.plan(), LiveTarget(transport))
    assert story == ["= applying", "intent 1", "done 1", "= applied"]
    assert transport.opened == 2 and value.read_text() == "0\n"


class Mute(LiveShell):
    """Loses the first answer, as a line that breaks at that moment."""

    lost = False

    async def run(
        self, text: str, cap: int = 1 << 20, limit: float = 10.0, err_cap: int = 4000
    ) -> JobAnswer:
        if not self.lost and "wc -c" in text:
            Mute.lost = True
            return JobAnswer(lost=Unknown(Reason.DISCONNECTED, "the connection ended"))
        return await super().run(text, cap, limit, err_cap)


def test_an_undo_that_never_began_is_not_told_by_the_old_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan()
    applied(rig, plan)
    monkeypatch.setattr("gpudoctor.hosts.root_shell.LiveShell", Mute)
    monkeypatch.setattr(Mute, "lost", False)
    with pytest.raises(HostUnreachable, match="undo was not started"):
        undone(rig, plan)
    assert value.read_text() == "0\n"
    assert undone(rig, plan)[-1] == "= undone"


CLIENT = """
import asyncio, pickle, sys
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.transaction import apply

async def main():
    plan, places = pickle.load(open(sys.argv[1], "rb"))
    async for move in apply(LiveTarget(LocalTransport()), plan, places):
        print(move, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("moment", ["folder", "script", "begin", "intent 1", "done 2", "applied"])
def test_a_killed_client_leaves_before_or_after(rig: Rig, moment: str) -> None:
    """Killed at any moment of its work; what was started there ends by itself."""
    values = [rig.item(f"v{i}", "1", "0", write="sleep 0.1; echo 0 > {file}") for i in range(3)]
    plan = rig.plan()
    (rig.root / "plan").write_bytes(pickle.dumps((plan, rig.places)))
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(rig.root / "plan")])
    places = {"folder": rig.places.folder(plan.id), "script": rig.places.script(plan.id)}
    if moment in places:
        until(Path(places[moment]).exists, f"there is no {moment}")
    else:
        rig.wait_for(plan, moment)
    client.kill()
    client.wait()
    until(lambda: not processes(rig), "it does not end")
    assert {value.read_text() for value in values} in ({"1\n"}, {"0\n"})
    told = asyncio.run(transactions(here(), rig.places))
    assert [t.id for t in told] == [plan.id] and not told[0].interrupted
    stands = values[0].read_text() == "0\n"
    assert (told[0].state is State.APPLIED) is stands
    gone, stay = asyncio.run(clean(here(), places=rig.places))
    assert ([plan.id], []) == ((([t.id for t in stay]), gone) if stands else (gone, stay))


async def test_a_session_that_ends_leaves_nothing_running(rig: Rig) -> None:
    shell = LiveShell(here())
    await shell.open()
    assert shell.user == "root"
    await shell.close()
    assert shell.user == ""


def test_an_undo_whose_script_is_gone_is_refused_at_once(rig: Rig) -> None:
    file = rig.item("one", "1", "0")
    plan = rig.plan()
    applied(rig, plan)
    Path(rig.places.script(plan.id)).unlink()
    with pytest.raises(Refusal, match=f"client's copy, {plan.id}.sh") as refused:
        undone(rig, plan)
    assert refused.value.code == 1 and file.read_text() == "0\n"


class Late(LiveShell):
    """A slow host: one look is never answered, one tells late of a time before the end."""

    looks = 0

    async def run(
        self, text: str, cap: int = 1 << 20, limit: float = 10.0, err_cap: int = 4000
    ) -> JobAnswer:
        if "tail -c +" not in text:
            return await super().run(text, cap, limit, err_cap)
        Late.looks += 1
        if Late.looks > 2:
            return await super().run(text, cap, limit, err_cap)
        await asyncio.sleep(0.6)
        why = Unknown(Reason.TIMEOUT, "no answer within 10 s")
        return JobAnswer(lost=why) if Late.looks == 1 else JobAnswer(exit=1)


def test_a_slow_look_is_no_dead_runner(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.item("one", "1", "0")
    monkeypatch.setattr("gpudoctor.hosts.root_shell.LiveShell", Late)
    monkeypatch.setattr("gpudoctor.transaction_watch._GONE_SECONDS", 0.5)
    monkeypatch.setattr("gpudoctor.transaction_watch._BEGIN_SECONDS", 0.5)
    assert applied(rig, rig.plan())[-1] == "= applied"
