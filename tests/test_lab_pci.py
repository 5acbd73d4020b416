"""PCI registers, link and sleep states, and interrupts on the lab's kernel; lspci is the judge."""

import re
from collections.abc import Iterator, Sequence

import pytest

from gpudoctor.model import Change, PciBits, Sysfs
from gpudoctor.model.plan import Plan, State
from tests.lab_change import applied, cleaned, killed_at_every_line, plan_on, undone, values
from tests.lab_vm import Lab

GPUS = ("0000:21:00.0", "0000:41:00.0")
PORTS = ("0000:20:00.0", "0000:40:00.0")
DEVICES = "/sys/bus/pci/devices"
READS = PciBits(GPUS, "CAP_EXP+8.w", 0x5000, 0x7000, risk="medium")
REDIRECT = PciBits(PORTS, "ECAP_ACS+6.w", 0, 0x000C, risk="high")
LINKS = Sysfs(tuple(f"{DEVICES}/{g}/link/{s}" for g in GPUS for s in ("l1_aspm", "l0s_aspm")), "0")
POLICY = "/sys/module/pcie_aspm/parameters/policy"
AWAKE = Sysfs(tuple(f"{DEVICES}/{d}/power/control" for d in (*PORTS, *GPUS)), "on")


def lspci(lab: Lab, devices: Sequence[str] = (*GPUS, *PORTS)) -> list[str]:
    """Return what lspci tells of each device, less what hardware sets by itself (status)."""
    told = lab.run("; ".join(f"lspci -Dvvv -s {device}; echo =" for device in devices))
    return [re.sub(r"\w*Sta:.*", "", text) for text in told.split("=\n")]


def lines(told: Sequence[str], word: str) -> list[str]:
    """Return one line of each device's text."""
    return [next(line.strip() for line in text.split("\n") if word in line) for text in told]


@pytest.fixture(autouse=True)
def _as_before(request: pytest.FixtureRequest) -> Iterator[None]:
    if "own_lab" in request.fixturenames:
        yield
        return
    lab: Lab = request.getfixturevalue("lab")
    lab.run(f"setpci -s {GPUS[1]} CAP_EXP+8.w=0000:7000; setpci -s {PORTS[1]} ECAP_ACS+6.w=0000:8")
    yield
    lab.run(
        f"setpci -s {GPUS[1]} CAP_EXP+8.w=2000:7000; setpci -s {PORTS[1]} ECAP_ACS+6.w=0008:0008; "
        f"echo default >{POLICY}; for d in {' '.join((*PORTS, *GPUS))}; do "
        f"echo on >{DEVICES}/$d/power/control; done"
    )
    cleaned(lab)


def there(lab: Lab, *options: Sequence[Change]) -> Plan:
    """Plan and apply; everything then reads as wanted."""
    plan = plan_on(lab, *options)
    assert not plan.refused, plan.refused
    assert applied(lab, plan) is State.APPLIED
    assert values(lab, plan) == [item.wanted for item in plan.items]
    return plan


def test_read_sizes_differ_grow_and_come_back(lab: Lab) -> None:
    before = lspci(lab)
    assert [w.split(", ")[1] for w in lines(before[:2], "MaxReadReq")] == [
        "MaxReadReq 512 bytes",
        "MaxReadReq 128 bytes",
    ]
    plan = there(lab, [READS])
    now = lspci(lab)
    assert [w.split(", ")[1] for w in lines(now[:2], "MaxReadReq")] == ["MaxReadReq 4096 bytes"] * 2
    size = r"MaxReadReq \d+"
    assert [re.sub(size, "", text) for text in now] == [re.sub(size, "", text) for text in before]
    again = plan_on(lab, [READS])
    assert not again.steps and not again.refused
    assert undone(lab, plan) is State.UNDONE
    assert lspci(lab) == before


def test_killed_at_every_line(lab: Lab) -> None:
    one = PciBits(GPUS[1:], "CAP_EXP+8.w", 0x5000, 0x7000)
    killed_at_every_line(lab, plan_on(lab, [one]))


def test_redirect_is_refused_where_the_groups_translate(lab: Lab) -> None:
    plan = plan_on(lab, [REDIRECT])
    assert not plan.steps
    assert "PCI devices there are not identity" in plan.refused[0][1]


@pytest.fixture
def _no_groups(lab: Lab) -> Iterator[None]:
    """Hide the groups, which all translate in the lab, as if its IOMMU were off."""
    lab.run("mount -t tmpfs none /sys/kernel/iommu_groups")
    yield
    lab.run("umount /sys/kernel/iommu_groups")


@pytest.mark.usefixtures("_no_groups")
def test_redirect_goes_and_comes_back(lab: Lab) -> None:
    before = lspci(lab)
    flags = "ACSCtl:\tSrcValid+ TransBlk- ReqRedir{} CmpltRedir{} UpstreamFwd+ EgressCtrl- "
    assert [w.removesuffix("DirectTrans-") for w in lines(before[2:], "ACSCtl")] == [
        flags.format("+", "+"),
        flags.format("+", "-"),
    ]
    plan = there(lab, [REDIRECT])
    now = lspci(lab)
    cleared = [flags.format("-", "-") + "DirectTrans-"] * 2
    assert lines(now[2:], "ACSCtl") == cleared
    assert [re.sub("ACSCtl.*", "", text) for text in now] == [
        re.sub("ACSCtl.*", "", text) for text in before
    ]
    assert undone(lab, plan) is State.UNDONE
    assert lspci(lab) == before


@pytest.mark.usefixtures("_no_groups")
def test_redirect_stays_where_a_stopped_guest_has_a_device(lab: Lab) -> None:
    lab.run("mkdir -p /etc/pve/qemu-server; echo 'hostpci0: 81:00' >/etc/pve/qemu-server/9.conf")
    guest = plan_on(lab, [REDIRECT])
    lab.run("rm -r /etc/pve/qemu-server")
    unread = plan_on(lab, [REDIRECT])
    lab.run("rm -r /etc/pve")
    assert "(running or stopped) has a PCI device" in guest.refused[0][1]
    assert "virtual machines there cannot be read" in unread.refused[0][1]


@pytest.fixture
def _handed_out(lab: Lab) -> Iterator[None]:
    """Bind the second GPU to the driver that gives devices to virtual machines."""
    device, driver = f"{DEVICES}/{GPUS[1]}", "/sys/bus/pci/drivers/vfio-pci"
    lab.run(
        f"modprobe vfio-pci; echo vfio-pci >{device}/driver_override; "
        f"echo {GPUS[1]} >/sys/bus/pci/drivers_probe; test -e {driver}/{GPUS[1]}"
    )
    yield
    lab.run(f"echo {GPUS[1]} >{driver}/unbind; echo >{device}/driver_override; rmmod vfio-pci")


@pytest.mark.usefixtures("_handed_out")
def test_devices_of_virtual_machines_are_left_alone(lab: Lab) -> None:
    refused = dict(plan_on(lab, [READS], [REDIRECT]).refused)
    words = f"{GPUS[1]} there is in the hands of a virtual machine's driver"
    assert refused == {"check-0": words, "check-1": words}
    first = PciBits(GPUS[:1], "CAP_EXP+8.w", 0x5000, 0x7000)
    assert len(plan_on(lab, [first]).items) == 1


def test_links_leave_power_saving_and_go_back(lab: Lab) -> None:
    """The first GPU's link has L1 and L0s on, the second's L0s only."""
    lab.run(f"echo powersave >{POLICY}; echo 0 >{DEVICES}/{GPUS[1]}/link/l1_aspm")
    before = lspci(lab)
    assert [w.split(";")[0] for w in lines(before, "LnkCtl:")] == [
        "LnkCtl:\tASPM L0s L1 Enabled",
        "LnkCtl:\tASPM L0s Enabled",
    ] * 2
    plan = there(lab, [LINKS])
    assert {w.split(";")[0] for w in lines(lspci(lab), "LnkCtl:")} == {"LnkCtl:\tASPM Disabled"}
    assert undone(lab, plan) is State.UNDONE
    assert lspci(lab) == before
    plan = there(lab, [Sysfs((POLICY,), "performance", choice=True)])
    assert {w.split(";")[0] for w in lines(lspci(lab), "LnkCtl:")} == {"LnkCtl:\tASPM Disabled"}
    assert undone(lab, plan) is State.UNDONE
    assert lspci(lab) == before


def test_ports_stay_awake_and_may_sleep_again(lab: Lab) -> None:
    lab.run(f"for d in {GPUS[0]} {PORTS[0]}; do echo auto >{DEVICES}/$d/power/control; done")
    look = f"cd {DEVICES}; stat -c '%n %a %u' */power/control; cat */power/control"
    before = lab.run(look)
    plan = there(lab, [AWAKE])
    assert [item.before for item in plan.items] == ["auto", "auto"]
    assert lab.run(f"cat {DEVICES}/{GPUS[0]}/power/runtime_status") == "active"
    assert undone(lab, plan) is State.UNDONE
    assert lab.run(look) == before


def test_interrupts_move_but_for_those_the_kernel_manages(lab: Lab) -> None:
    mine, managed = lab.run(
        "awk '/virtio1-input.0|virtio0-req.0/ { print $NF, $1 }' /proc/interrupts | sort -r | "
        "sed 's/.* //; s/://'"
    ).split()
    paths = tuple(f"/proc/irq/{irq}/smp_affinity_list" for irq in (managed, mine))
    before = lab.run(f"cat {' '.join(paths)}")
    pin = Sysfs(paths, "1", tolerates="Input/output error|I/O error")
    plan = plan_on(lab, [pin])
    assert applied(lab, plan) is State.APPLIED
    assert lab.run(f"cat {' '.join(paths)}").split() == [before.split()[0], "1"]
    assert undone(lab, plan) is State.UNDONE
    assert lab.run(f"cat {' '.join(paths)}") == before


def test_a_kernel_that_locks_down_refuses_and_nothing_is_half_written(own_lab: Lab) -> None:
    """A plan made before the lockdown fails at its first write, and says so."""
    plan = plan_on(own_lab, [READS])
    before = lspci(own_lab, GPUS)
    own_lab.run("echo integrity >/sys/kernel/security/lockdown")
    assert applied(own_lab, plan) is State.FAILED
    assert lspci(own_lab, GPUS) == before
    late = plan_on(own_lab, [READS])
    assert "kernel lockdown (integrity) forbids" in late.refused[0][1]
