"""What an operator is told: refusals that are theirs, full disks, timers that do not come."""

import asyncio
import errno
from pathlib import Path

import pytest

from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.error import HostUnreachable, Refusal
from gpudoctor.model.plan import State
from gpudoctor.transaction import apply, confirm, undo, watch
from tests.script_runner import Rig, is_root
from tests.test_transaction_live import applied, here, words

pytestmark = pytest.mark.skipif(not is_root(), reason="the script runs as root only")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_one_operators_refusal_is_not_anothers(rig: Rig) -> None:
    """Bob is told that it is busy; alice, who takes the same back, is not disturbed."""
    rig.item("one", "1", "0", undo="until [ -e {file}.go ]; do sleep 0.1; done; echo 1 > {file}")
    plan = rig.plan()
    applied(rig, plan)
    rig.run(plan, "apply", GPUDOCTOR_RUN="bob")  # refused: it is applied already
    assert b"refused @bob this transaction is already applied" in rig.journal(plan)

    async def both() -> list[str]:
        alice = asyncio.ensure_future(words(undo(here(), plan.id, rig.places)))
        while b"state undoing" not in rig.journal(plan):
            await asyncio.sleep(0.05)
            assert not alice.done()
        rig.run(plan, "apply", GPUDOCTOR_RUN="bob")
        (rig.root / "one.go").touch()
        return await alice

    assert asyncio.run(both()) == ["= undoing", "undone 1", "= undone"]


def test_a_full_disk_at_the_target_leaves_nothing_behind(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = rig.item("one", "1", "0")
    plan = rig.plan()
    monkeypatch.setattr("gpudoctor.transaction.quote", lambda path: _full(path, rig))
    with pytest.raises(Refusal, match="could not be put on the target's disk") as refused:
        applied(rig, plan)
    assert refused.value.code == 1 and value.read_text() == "1\n"
    assert not Path(rig.places.home).exists()


def _full(path: str, rig: Rig) -> str:
    return "/dev/full" if path.endswith("transaction.sh") else f"'{path}'"


def test_a_full_disk_at_the_client_writes_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = rig.item("one", "1", "0")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Refusal, match="No space left on device") as refused:
        applied(rig, rig.plan())
    assert refused.value.code == 1 and value.read_text() == "1\n"
    assert not Path(rig.places.home).exists()


def test_a_missing_tool_is_named(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.item("one", "1", "0")
    monkeypatch.setattr("gpudoctor.transaction._TOOLS", "dd nowhere-to-be-found")
    with pytest.raises(Refusal, match="nowhere-to-be-found is not installed there"):
        applied(rig, rig.plan())


async def test_watching_a_countdown(rig: Rig) -> None:
    rig.item("one", "1", "0")
    plan = rig.plan(confirm=2)
    assert await words(apply(here(), plan, rig.places)) == [
        *("= applying", "intent 1", "done 1", "= applied")
    ]
    assert await words(watch(here(), plan.id, rig.places)) == ["= undoing", "undone 1", "= undone"]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("1.0 armed 3 session\n1.1 state applied\n", "its timer has not taken it back"),
        ("99999999.0 armed 3 session\n99999999.1 state applied\n", "the host has rebooted"),
    ],
)
def test_a_timer_that_never_comes_is_told(rig: Rig, lines: str, sentence: str) -> None:
    plan = rig.plan()
    rig.put(plan)
    Path(rig.places.journal(plan.id)).write_text(lines)
    with pytest.raises(Refusal, match=sentence) as refused:
        asyncio.run(words(watch(here(), plan.id, rig.places)))
    assert refused.value.code == 5


async def test_confirming_what_is_not_there(rig: Rig) -> None:
    with pytest.raises(Refusal, match="there is no transaction 20260101-000000-000001 on"):
        await confirm(here(), "20260101-000000-000001", rig.places)


class Restarting(LocalTransport):
    """A host whose sshd is not back yet at the first two logins."""

    logins = 0

    async def connect(self) -> None:
        self.logins += 1
        if self.logins < 3:
            raise HostUnreachable("the connection was reset")


@pytest.mark.parametrize("doing", ["watch", "confirm"])
async def test_a_login_that_fails_in_the_countdown_is_tried_again(rig: Rig, doing: str) -> None:
    rig.item("one", "1", "0")
    plan = rig.plan(confirm=2 if doing == "watch" else 3600)
    await words(apply(here(), plan, rig.places))
    transport = Restarting()
    if doing == "watch":
        told = await words(watch(LiveTarget(transport), plan.id, rig.places))
        assert told[-1] == "= undone"
    else:
        assert (await confirm(LiveTarget(transport), plan.id, rig.places)).state is State.CONFIRMED
    assert transport.logins >= 3
