"""Kernel modules on the lab's kernel: with those they need, half loaded, in use."""

from collections.abc import Iterator

import pytest

from gpudoctor.model import Module
from gpudoctor.model.plan import Plan, State
from tests.lab_change import HOME, applied, cleaned, killed_at_every_line, plan_on, undone
from tests.lab_vm import Lab

CONF = "/etc/modprobe.d/gpudoctor-test.conf"
LOADED = "cut -d ' ' -f 1 /proc/modules | sort | tr '\\n' ' '"


@pytest.fixture(autouse=True)
def _as_before(lab: Lab) -> Iterator[None]:
    before = lab.run(LOADED)
    yield
    lab.run(f"rm -f {CONF}")
    assert lab.run(LOADED) == before
    cleaned(lab)


def there_and_back(lab: Lab, name: str, loads: set[str]) -> Plan:
    """Load and unload; the modules of the whole kernel are compared, not the item alone."""
    before = lab.run(LOADED)
    plan = plan_on(lab, [Module(name)])
    assert not plan.refused, plan.refused
    assert applied(lab, plan) is State.APPLIED
    assert set(lab.run(LOADED).split()) - set(before.split()) == loads
    assert undone(lab, plan) is State.UNDONE
    assert lab.run(LOADED) == before
    return plan


def test_one_module_and_its_interface(lab: Lab) -> None:
    links = "ls /sys/class/net"
    before = lab.run(links)
    lab.run(f"echo options dummy numdummies=1 >{CONF}")
    there_and_back(lab, "dummy", {"dummy"})
    assert lab.run(links) == before


def test_with_all_that_it_needs(lab: Lab) -> None:
    plan = there_and_back(lab, "bonding", {"bonding", "tls"})
    assert [(item.before, item.wanted) for item in plan.items] == [("absent", "loaded tls")]


def test_an_idle_module_that_was_there_stays(lab: Lab) -> None:
    lab.run("modprobe tls")
    plan = there_and_back(lab, "bonding", {"bonding"})
    assert plan.items[0].undo == "rmmod bonding"
    lab.run("rmmod tls")


def test_half_loaded_is_taken_back_and_modprobe_is_quoted(lab: Lab) -> None:
    """As nvidia_peermem without the RDMA stack's symbols: `Invalid argument`."""
    lab.run(f"echo options bonding mode=99 >{CONF}")
    before = lab.run(LOADED)
    plan = plan_on(lab, [Module("bonding")])
    assert applied(lab, plan) is State.FAILED
    assert lab.run(LOADED) == before
    assert "Invalid argument" in lab.run(f"grep complaint {HOME}/{plan.id}/journal")


def test_a_module_in_use_is_held(lab: Lab) -> None:
    plan = plan_on(lab, [Module("cpuid")])
    assert applied(lab, plan) is State.APPLIED
    holder = "/run/gpudoctor-test.pid"
    lab.run(f"sleep 900 </dev/cpu/0/cpuid >/dev/null 2>&1 & echo $! >{holder}")
    assert undone(lab, plan) is State.UNDO_FAILED
    assert "cpuid is in use, refcnt: " in lab.run(f"grep held {HOME}/{plan.id}/journal")
    lab.run(f"kill $(cat {holder}); rm {holder}")
    lab.run("until [ $(cat /sys/module/cpuid/refcnt) = 0 ]; do :; done")
    assert undone(lab, plan) is State.UNDONE


def test_refused(lab: Lab) -> None:
    lab.run(f"echo install dummy /bin/true >{CONF}")
    options = [[Module(name)] for name in ("nvidia_peermem", "dummy", "ext4")]
    plan = plan_on(lab, *options)
    assert not plan.steps and plan.already == ("check-2",)
    assert "Module nvidia_peermem not found" in plan.refused[0][1]
    assert "modprobe would run a command of its own: install /bin/true" in plan.refused[1][1]


def test_killed_at_every_line(lab: Lab) -> None:
    lab.run("modprobe tls; rmmod tls")
    killed_at_every_line(lab, plan_on(lab, [Module("bonding")]))
