"""Kernel parameters on the lab's kernel, coupled ones too."""

from collections.abc import Iterator

import pytest

from gpudoctor.model import Sysctl
from gpudoctor.model.plan import State
from tests.lab_change import applied, cleaned, killed_at_every_line, plan_on, there_and_back, undone
from tests.lab_vm import Lab

DIRTY = [
    Sysctl("vm.dirty_background_bytes", "1073741824"),
    Sysctl("vm.dirty_bytes", "4294967296"),
]
SWAP = [Sysctl("vm.swappiness", "10")]
MAPS = Sysctl("vm.max_map_count", "1048576")
OVERCOMMIT = Sysctl("vm.overcommit_memory", "0")
ALL = (
    "sysctl -a --pattern '^vm.(dirty|swap|zone|max_map|overcommit)"
    "|^kernel.(nmi|timer_m|sched_auto)' 2>/dev/null"
)
# A process with 400 mappings and more (each thread has a stack and its guard), once it has them.
MANY = (
    "setsid python3 -c 'import _thread, time; _thread.stack_size(65536); "
    "[_thread.start_new_thread(time.sleep, (600,)) for _ in range(200)]; "
    'print("ready", flush=True); time.sleep(600)\' >/run/many.out 2>&1 </dev/null & '
    "echo $! >/run/many.pid; until [ -s /run/many.out ]; do sleep 0.1; done; cat /run/many.out"
)


@pytest.fixture(autouse=True)
def _as_before(lab: Lab) -> Iterator[None]:
    before = lab.run(ALL)
    yield
    assert lab.run(ALL) == before
    cleaned(lab)


def test_pairs_come_back_as_they_were(lab: Lab) -> None:
    lab.run("sysctl -qw vm.dirty_background_ratio=7 vm.dirty_bytes=999997440")
    before = lab.run("sysctl -a --pattern '^vm.dirty'")
    there_and_back(lab, DIRTY, SWAP)
    assert lab.run("sysctl -a --pattern '^vm.dirty'") == before
    lab.run("sysctl -qw vm.dirty_background_ratio=10 vm.dirty_ratio=20")


def test_each_comes_back_to_its_own_value(lab: Lab) -> None:
    lab.run(
        "sysctl -qw vm.zone_reclaim_mode=3 kernel.sched_autogroup_enabled=1 vm.swappiness=61 "
        "kernel.timer_migration=1"
    )
    before = lab.run(ALL)
    there_and_back(
        lab,
        [Sysctl("vm.zone_reclaim_mode", "0"), Sysctl("kernel.sched_autogroup_enabled", "0")],
        [Sysctl("kernel.timer_migration", "0"), *SWAP],
    )
    assert lab.run(ALL) == before
    lab.run("sysctl -qw vm.zone_reclaim_mode=0 kernel.sched_autogroup_enabled=0 vm.swappiness=60")


def test_what_the_kernel_refuses_undoes_the_whole(lab: Lab) -> None:
    """Without a performance counter there is no NMI watchdog to switch on."""
    assert applied(lab, plan_on(lab, SWAP, [Sysctl("kernel.nmi_watchdog", "1")])) is State.FAILED


def test_an_undo_waits_while_more_is_in_use_than_the_old_limit(lab: Lab) -> None:
    lab.run("sysctl -qw vm.max_map_count=300 vm.overcommit_memory=2")
    plan = plan_on(lab, [MAPS, OVERCOMMIT])
    assert applied(lab, plan) is State.APPLIED
    assert lab.run(f"sysctl -qw vm.overcommit_kbytes=1000; {MANY}") == "ready"
    assert undone(lab, plan) is State.UNDO_FAILED
    limits = "sysctl -n vm.max_map_count vm.overcommit_memory"
    assert lab.run(limits).split() == ["1048576", "0"]
    lab.run("kill $(cat /run/many.pid); sysctl -qw vm.overcommit_ratio=50; rm /run/many.*")
    assert undone(lab, plan) is State.UNDONE
    assert lab.run(limits).split() == ["300", "2"]
    lab.run("sysctl -qw vm.max_map_count=65530 vm.overcommit_memory=0")


def test_killed_at_every_line(lab: Lab) -> None:
    killed_at_every_line(lab, plan_on(lab, DIRTY, SWAP))
