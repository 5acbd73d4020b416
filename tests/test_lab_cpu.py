"""CPU knobs, a latency request and a unit on the lab's kernel and its systemd."""

from collections.abc import Iterator

import pytest

from gpudoctor.fixes.mechanism import GONE
from gpudoctor.model import LatencyHold, Service, Sysfs
from gpudoctor.model.plan import State
from tests.lab_change import (
    applied,
    cleaned,
    killed_at_every_line,
    plan_on,
    there_and_back,
    undone,
    values,
)
from tests.lab_vm import Lab

CPU = "/sys/devices/system/cpu"
GOVERNORS = [f"{CPU}/cpufreq/policy{n}/scaling_governor" for n in range(4)]
LIMITS = [f"{CPU}/cpu{n}/power/pm_qos_resume_latency_us" for n in range(4)]
DISABLE = [f"{CPU}/cpu{n}/cpuidle/state{s}/disable" for n in range(4) for s in (2, 3)]
STOPPED, STARTED, NEEDED = (f"lab-{name}.service" for name in ("stopped", "started", "needed"))
HOLD = LatencyHold(10)
AGGREGATE = "od -An -td4 -N4 /dev/cpu_dma_latency"
PERFORMANCE = Sysfs(tuple(GOVERNORS), "performance", beside="energy_performance_preference")

# Every value, then what else must not change; the units are made here.
STATE = (
    f"cd {CPU}; grep -H . {' '.join(GOVERNORS + LIMITS + DISABLE)}; "
    f"stat -c '%n %a %U %G' {' '.join(GOVERNORS + LIMITS + DISABLE)} /dev/cpu_dma_latency; "
    f"{AGGREGATE}; systemctl is-active {STOPPED} {STARTED} {NEEDED}; "
    "ls /run/systemd/transient | grep -v ^session-; systemctl show -p LoadState gpudoctor-latency"
)
# Three governors, two CPUs with a state off, one without any tolerance for latency, one with some.
SETTING = f"""
modprobe -a cpufreq_powersave cpufreq_conservative
cd {CPU}
echo performance | tee cpufreq/policy0/scaling_governor
echo powersave | tee cpufreq/policy1/scaling_governor
echo conservative | tee cpufreq/policy2/scaling_governor
echo 1 | tee cpu1/cpuidle/state2/disable cpu2/cpuidle/state3/disable
echo n/a | tee cpu0/power/pm_qos_resume_latency_us
echo 90 | tee cpu1/power/pm_qos_resume_latency_us
cd /run/systemd/system
printf '[Service]\\nExecStart=sleep infinity\\n' | tee {STOPPED} {NEEDED}
printf '[Unit]\\nRequires={NEEDED}\\n[Service]\\nExecStart=sleep infinity\\n' >{STARTED}
systemctl daemon-reload
systemctl start {STARTED}
"""
RESETTING = f"""
cd {CPU}
echo schedutil | tee {" ".join(GOVERNORS)}
echo 0 | tee {" ".join(DISABLE + LIMITS)}
systemctl stop {STOPPED} {STARTED} {NEEDED}
rm -f /run/systemd/system/lab-*
systemctl daemon-reload
rmmod cpufreq_powersave cpufreq_conservative
"""


@pytest.fixture(scope="module")
def before(lab: Lab) -> Iterator[list[str]]:
    """Return the state that every test must leave, once it is set."""
    lab.run(SETTING)
    yield lab.run(STATE).splitlines()
    lab.run(RESETTING)
    cleaned(lab)


@pytest.fixture(autouse=True)
def _as_before(lab: Lab, before: list[str]) -> Iterator[None]:
    yield
    assert lab.run(STATE).splitlines() == before


def test_values_that_differ_come_back_as_they_were(lab: Lab) -> None:
    plan = there_and_back(
        lab,
        [PERFORMANCE],
        [Sysfs(tuple(LIMITS), "20")],
        [Sysfs(tuple(DISABLE), "1")],
    )
    befores = [item.before for item in plan.items]
    assert befores == ["powersave", "conservative", "schedutil", "n/a", "90", "0", "0", *"000000"]


def test_a_request_is_held_until_its_unit_is_stopped(lab: Lab) -> None:
    plan = plan_on(lab, [HOLD])
    assert applied(lab, plan) is State.APPLIED
    fds = "ls -l /proc/$(systemctl show -p MainPID --value gpudoctor-latency)/fd"
    told = lab.run(f"{AGGREGATE}; {fds} | grep -c cpu_dma_latency; {fds} | grep -c gpudoctor || :")
    assert told.split() == ["10", "1", "0"]  # it holds the request, and no lock of ours
    assert values(lab, plan) == ["held"]
    again = plan_on(lab, [HOLD], [LatencyHold(5)])
    assert again.already == ("check-0",)
    assert again.refused[0][1].endswith("at 10 us): start that one, or stop and remove it first")
    assert undone(lab, plan) is State.UNDONE
    assert lab.run(AGGREGATE) == "2000000000"


def test_a_request_that_is_low_already_is_left_alone(lab: Lab) -> None:
    lab.run(
        "systemd-run --unit=other --property=Type=forking /bin/sh -ec "
        "'exec 3>/dev/cpu_dma_latency; printf 0x00000005 >&3; sleep infinity &'"
    )
    assert plan_on(lab, [HOLD]).already == ("check-0",)
    lab.run("systemctl stop other")


def test_units_are_started_and_stopped(lab: Lab) -> None:
    plan = there_and_back(lab, [Service(STOPPED, True)], [Service(STARTED, False)])
    assert [item.before for item in plan.items] == ["inactive", "active"]


def test_units_that_cannot_be_changed(lab: Lab) -> None:
    masked = "systemd-ask-password-wall.service"
    lab.run(f"systemctl mask --runtime {masked}")
    changes = [Service("nosuch.service", True), Service(masked, True), Service(NEEDED, False)]
    refused = plan_on(lab, *([change] for change in changes)).refused
    lab.run(f"systemctl unmask --runtime {masked}")
    assert [sentence for _, sentence in refused] == [
        "nosuch.service is not installed there",
        f"{masked} is masked there: somebody wants that nothing starts it",
        f"stopping {NEEDED} would stop {STARTED} too",
    ]


def test_killed_at_every_line(lab: Lab) -> None:
    governor = Sysfs((GOVERNORS[1],), "performance", beside="energy_performance_preference")
    killed_at_every_line(lab, plan_on(lab, [governor], [HOLD], [Service(STOPPED, True)]))


def test_a_cpu_that_went_offline_keeps_its_undo(lab: Lab) -> None:
    plan = plan_on(lab, [PERFORMANCE])
    assert applied(lab, plan) is State.APPLIED
    lab.run(f"echo 0 >{CPU}/cpu3/online")
    assert undone(lab, plan) is State.UNDO_FAILED
    lab.run(f"echo 1 >{CPU}/cpu3/online")
    assert undone(lab, plan) is State.UNDONE


def test_what_is_gone_has_nothing_to_undo(lab: Lab) -> None:
    plan = plan_on(lab, [PERFORMANCE])
    lab.run("rmmod acpi_cpufreq")
    assert set(values(lab, plan)) == {GONE}
    assert plan_on(lab, [PERFORMANCE]).refused[0][1] == f"the kernel there has no {GOVERNORS[0]}"
    lab.run(f"modprobe acpi_cpufreq; {SETTING}")
