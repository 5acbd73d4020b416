"""A real LXC container: the limits of its cgroup and its /dev/shm, set and put back by the host."""

from collections.abc import Iterator

import pytest

from gpudoctor.model import CgroupLimit, MountSize
from gpudoctor.model.plan import State
from tests.lab_change import (
    applied,
    cleaned,
    killed_at_every_line,
    plan_on,
    there_and_back,
    undone,
)
from tests.lab_vm import Lab
from tests.test_lab_process import until

MIB = 1 << 20
GROUP = "/sys/fs/cgroup/lxc.payload.gpu"
FILES = f"{GROUP}/memory.max {GROUP}/memory.high {GROUP}/cpu.max {GROUP}/cpuset.cpus"
IN_USE = "head -c 100000000 /dev/zero >/dev/shm/held"


def pages(lab: Lab) -> int:
    """Return the VM's memory in pages of 4 KiB."""
    return int(lab.run("sed -n 's/MemTotal: *\\(.*\\) kB/\\1/p' /proc/meminfo")) // 4


@pytest.fixture
def init(lab: Lab) -> Iterator[int]:
    """Return the host's pid of the container's first process; all is then as it was."""
    pid = int(lab.run("lxc-info -n gpu -p -H"))
    look = (
        f"head -v {FILES}; stat -c '%n %a %u %g' {FILES} /proc/{pid}/root/dev/shm; "
        f"grep -h /dev/shm /proc/{pid}/mountinfo /proc/1/mountinfo"
    )
    before = lab.run(look)
    yield pid
    assert lab.run(look) == before
    cleaned(lab)


def test_limits_come_back_as_they_were(lab: Lab, init: int) -> None:
    lab.run(f"echo '150000 50000' >{GROUP}/cpu.max; echo 300000000 >{GROUP}/memory.high")
    plan = there_and_back(
        lab,
        [
            CgroupLimit(f"{GROUP}/memory.max", str(1000 * MIB + 1), "memory.current"),
            CgroupLimit(f"{GROUP}/memory.high", str(900 * MIB), "memory.current"),
        ],
        [CgroupLimit(f"{GROUP}/cpu.max", "max")],
        [CgroupLimit(f"{GROUP}/cpuset.cpus", "0-3")],
    )
    assert [item.before for item in plan.items] == [
        str(512 * MIB),
        str(300000000 // 4096 * 4096),
        "150000 50000",
        "0-1",
    ]
    lab.run(f"echo 'max 100000' >{GROUP}/cpu.max; echo max >{GROUP}/memory.high")


def test_an_undo_waits_while_more_is_in_use(lab: Lab, init: int) -> None:
    """Memory of the cgroup, and a tmpfs of 64 MiB that holds 95 MiB."""
    mount = f"mount -N {init} -t tmpfs -o remount,rw,nosuid,nodev"
    half = pages(lab) // 2 * 4  # KiB: what a tmpfs without size= may hold
    lab.run(f"echo {80 * MIB} >{GROUP}/memory.max; {mount},size=64m tmpfs /dev/shm")
    plan = plan_on(
        lab,
        [CgroupLimit(f"{GROUP}/memory.max", str(512 * MIB), "memory.current")],
        [MountSize(init, 256 * MIB)],
    )
    assert applied(lab, plan) is State.APPLIED
    lab.run(f"lxc-attach -n gpu -- sh -c '{IN_USE}'")
    assert undone(lab, plan) is State.UNDO_FAILED
    journal = lab.run(f"cat /var/lib/gpudoctor/{plan.id}/journal")
    assert "more is in use there than the old limit of 83886080" in journal
    assert "more is in use there than the old size holds" in journal
    lab.run("lxc-attach -n gpu -- rm /dev/shm/held")
    assert undone(lab, plan) is State.UNDONE
    assert lab.run(f"cat {GROUP}/memory.max") == str(80 * MIB)
    lab.run(f"echo {512 * MIB} >{GROUP}/memory.max; {mount},size={half}k tmpfs /dev/shm")


def test_shm_comes_back_with_its_flags(lab: Lab, init: int) -> None:
    """Without size=, where 50% would be a page too much if the number of pages is odd."""
    plan = there_and_back(lab, [MountSize(init, 700 * MIB)], [MountSize(1, 900 * MIB)])
    assert all("size=" not in item.before for item in plan.items)
    assert "size=716800k" in plan.items[0].wanted


def test_what_ended_needs_no_undo(lab: Lab, init: int) -> None:
    """A cgroup that is removed, and a mount namespace that ends with its only process."""
    other = "/sys/fs/cgroup/lxc.payload.other"
    told = lab.run(
        f"mkdir {other}; echo {64 * MIB} >{other}/memory.max; "
        "setsid unshare -m sh -c 'umount -l /dev/shm; "
        "mount -t tmpfs -o noexec,size=8m,nr_inodes=500 shm /dev/shm; "
        "echo $$ >/run/ns.pid; exec sleep 900' >/dev/null 2>&1 </dev/null & "
        f"{until('[ -s /run/ns.pid ]')}; cat /run/ns.pid; rm /run/ns.pid"
    )
    mine = [
        CgroupLimit(f"{other}/memory.max", str(128 * MIB)),
        MountSize(int(told), 16 * MIB),
    ]
    plan = there_and_back(lab, mine)
    assert "rw,noexec,relatime rw,size=8192k,nr_inodes=500" in plan.items[1].before
    plan = plan_on(lab, mine)
    assert applied(lab, plan) is State.APPLIED
    lab.run(f"kill -9 {told}; rmdir {other}; {until(f'[ ! -d /proc/{told} ]')}")
    assert undone(lab, plan) is State.UNDONE
    assert all("again" in why for _, why in plan_on(lab, mine[:1], mine[1:]).refused)


def test_killed_at_every_line(lab: Lab, init: int) -> None:
    limit = CgroupLimit(f"{GROUP}/memory.max", str(600 * MIB), "memory.current")
    killed_at_every_line(lab, plan_on(lab, [limit, MountSize(init, 700 * MIB)]))
