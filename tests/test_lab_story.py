"""The story on a real kernel: four fixes applied, one made to last, the VM rebooted."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpudoctor.fixes.drop_ins import sysctl_file
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.loop import apply_between_snapshots
from gpudoctor.model import OwnFile, PciBits, Sysctl, Sysfs
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.plan import Plan, State, StateMoved
from gpudoctor.model.snapshot import Kind
from gpudoctor.model.story import Fate, Story
from gpudoctor.snapshots.plans import records
from gpudoctor.snapshots.store import save
from gpudoctor.story import look
from tests.lab_change import cleaned, plan_on, undone
from tests.lab_vm import Lab
from tests.test_lab_timer import REBOOT, reached

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
SWAP = Sysctl("vm.swappiness", "10")
GOVERNORS = tuple(f"/sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor" for n in (0, 1))
GPUS = ("0000:21:00.0", "0000:41:00.0")
LATER = "/etc/sysctl.d/99-zzz.conf"
FIXES = (
    [SWAP],
    [Sysfs((THP,), "madvise", choice=True)],
    [Sysfs(GOVERNORS, "performance", beside="energy_performance_preference")],
    [PciBits(GPUS, "CAP_EXP+8.w", 0x5000, 0x7000, risk="medium")],
)
VALUES = (
    f"sysctl -n vm.swappiness; cat {THP} {' '.join(GOVERNORS)}; "
    f"setpci -s {GPUS[0]} CAP_EXP+8.w; setpci -s {GPUS[1]} CAP_EXP+8.w; ls /etc/sysctl.d"
)


@pytest.fixture
def lab(own_lab: Lab) -> Lab:
    """Have a VM of this test's own: it is rebooted."""
    return own_lab


@pytest.fixture(autouse=True)
def _as_before(lab: Lab) -> Iterator[None]:
    before = lab.run(VALUES)
    yield
    cleaned(lab)
    assert lab.run(VALUES) == before


def apply(lab: Lab, plan: Plan) -> State:
    """Apply as the command line and the screen do, with a record and snapshots around it."""
    who = Identity("lab", plan.machine_id, plan.boot_id)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    before = AuditResult(plan.label, "root", who, taken=now)

    async def go() -> State:
        moves = apply_between_snapshots(
            lambda: LiveTarget(lab.transport(shared=True)), plan, before
        )
        return [move.state async for move in moves if isinstance(move, StateMoved)][-1]

    return asyncio.run(go())


def told(lab: Lab) -> Story | None:
    start = time.monotonic()
    story = asyncio.run(look(LiveTarget(lab.transport(shared=True))))
    print(f"looked in {time.monotonic() - start:.2f} s, the login included")
    return story


def fates(story: Story | None) -> dict[str, Fate]:
    return {one.check: one.fate for one in story.told} if story is not None else {}


def test_three_are_lost_and_one_is_kept(lab: Lab, tmp_path: Path) -> None:
    plan = plan_on(lab, *FIXES)
    assert len(plan.steps) == 4 and not plan.refused
    assert apply(lab, plan) is State.APPLIED
    form = sysctl_file(SWAP)
    assert isinstance(form, OwnFile)
    lasting = plan_on(lab, [form])
    assert apply(lab, lasting) is State.APPLIED
    assert told(lab) is None  # nothing was lost yet
    old = lab.run("cat /proc/sys/kernel/random/boot_id")
    lab.run(REBOOT)
    reached(lab, f"read -r b </proc/sys/kernel/random/boot_id; [ $b != {old} ]")
    lab.settle()

    story = told(lab)
    assert story is not None and story.rebooted and old[:8] in story.happened
    kept, *lost = (f"check-{n}" for n in range(4))
    assert fates(story) == {kept: Fate.KEPT, **dict.fromkeys(lost, Fate.LOST)}
    assert {one.transaction for one in story.told} == {plan.id}
    by_check = {one.check: one for one in story.told}
    assert (by_check[kept].lasts, by_check[kept].by) == (True, form.path)
    assert {by_check[check].by for check in lost} == {"the reboot"}
    (_, wanted, now), _ = by_check["check-3"].values
    assert (wanted[0], now[0], wanted[1:]) == ("5", "2", now[1:])

    lab.run(f"echo 'vm.swappiness = 30' >{LATER}; sysctl -qw vm.swappiness=30")
    story = told(lab)
    assert story is not None
    one = next(each for each in story.told if each.check == kept)
    assert one.fate is Fate.OVERRIDDEN and LATER in one.by
    lab.run(f"rm {LATER}; sysctl -qw vm.swappiness=10")

    assert undone(lab, lasting) is State.UNDONE  # what is taken back is told no more
    assert [one.id for one in records(plan.machine_id, "lab")] == [plan.id]
    assert fates(told(lab)) == {kept: Fate.KEPT, **dict.fromkeys(lost, Fate.LOST)}
    lab.run("sysctl -qw vm.swappiness=60")
    boot = lab.run("cat /proc/sys/kernel/random/boot_id")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    seen = AuditResult("lab", "root", Identity("lab", plan.machine_id, boot), taken=now)
    save(seen, Kind.MANUAL)
    assert told(lab) is None  # the operator has seen it
