"""Files of gpudoctor's own on the lab: written, read by systemd, gone or as they were."""

from collections.abc import Iterator

import pytest

from gpudoctor.fixes.drop_ins import module_file, sysctl_file, sysfs_file
from gpudoctor.model import Module, OwnFile, Sysctl, Sysfs
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

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
GOVERNORS = tuple(f"/sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor" for n in (0, 1))
# Kind, mode, owner, link target and bytes of all that lies in the folders.
ALL = (
    "cd /etc; find sysctl.d tmpfiles.d modules-load.d modprobe.d systemd/system "
    "-printf '%M %U:%G %p %l\\n' | sort; "
    "find sysctl.d tmpfiles.d modules-load.d modprobe.d systemd/system -type f | sort | "
    "xargs sha256sum; systemctl show -p LoadState gpudoctor-*.service 2>/dev/null"
)


def made(file: OwnFile | None) -> OwnFile:
    assert file is not None
    return file


SWAPPINESS = made(sysctl_file(Sysctl("vm.swappiness", "10")))
PAGES = made(sysfs_file(Sysfs((THP,), "madvise", choice=True)))
GOVERNOR = made(sysfs_file(Sysfs(GOVERNORS, "powersave")))
DUMMY = made(module_file(Module("dummy")))


@pytest.fixture(autouse=True)
def _as_before(lab: Lab) -> Iterator[None]:
    before = lab.run(ALL)
    yield
    assert lab.run(ALL) == before
    cleaned(lab)


def test_the_former_bytes_mode_and_owner_come_back(lab: Lab) -> None:
    path = SWAPPINESS.path
    odd = "# Written by gpudoctor: \\\\ \\047 $(reboot) `x` \\303\\244\\n\\nlast"
    show = f"stat -c '%a %u:%g' {path}; base64 {path}"
    before = lab.run(f"printf '{odd}' >{path}; chmod 640 {path}; chown 1000:8 {path}; {show}")
    there_and_back(lab, [SWAPPINESS])
    assert lab.run(show) == before
    lab.run(f"rm {path}")


def test_systemd_takes_them(lab: Lab) -> None:
    plan = plan_on(lab, [SWAPPINESS, PAGES, GOVERNOR, DUMMY])
    assert applied(lab, plan) is State.APPLIED
    unit = GOVERNOR.path.rpartition("/")[2]
    told = lab.run(
        f"stat -c '%a %u:%g' {SWAPPINESS.path}; systemctl is-enabled {unit}; "
        f"systemd-tmpfiles --create {PAGES.path}; cat {THP}; "
        f"systemd-tmpfiles --create --boot {PAGES.path}; cat {THP}; "
        f"/lib/systemd/systemd-sysctl {SWAPPINESS.path}; cat /proc/sys/vm/swappiness; "
        f"/lib/systemd/systemd-modules-load {DUMMY.path}; ls -d /sys/module/dummy; "
        f"systemctl start {unit}; cat {' '.join(GOVERNORS)}; systemd-analyze verify {unit} 2>&1"
    ).split("\n")
    assert told == [
        "644 0:0",
        "enabled",
        "[always] madvise never",
        "always [madvise] never",
        "10",
        "/sys/module/dummy",
        "powersave",
        "powersave",
    ]
    again = plan_on(lab, [SWAPPINESS, PAGES, GOVERNOR, DUMMY])
    assert not again.steps and not again.refused  # already so: nothing is written twice
    lab.run(
        f"systemctl stop {unit}; rmmod dummy; echo always >{THP}; sysctl -qw vm.swappiness=60; "
        f"echo schedutil | tee {' '.join(GOVERNORS)}"
    )
    assert undone(lab, plan) is State.UNDONE


def test_somebody_elses_is_left_alone(lab: Lab) -> None:
    paths = (SWAPPINESS.path, PAGES.path, DUMMY.path)
    lab.run(f"echo vm.swappiness=1 >{paths[0]}; ln -s /nowhere {paths[1]}; mkdir {paths[2]}")
    for file, why in zip(
        (SWAPPINESS, PAGES, DUMMY), ("gpudoctor's", "plain", "plain"), strict=True
    ):
        plan = plan_on(lab, [file])
        assert not plan.steps and why in plan.refused[0][1], plan.refused
    lab.run(f"rm {paths[0]} {paths[1]}; rmdir {paths[2]}")


def test_killed_at_every_line(lab: Lab) -> None:
    killed_at_every_line(lab, plan_on(lab, [SWAPPINESS]))
