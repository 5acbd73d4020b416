"""Kernel files on the lab's kernel: choices, huge pages, merging, the clock, debugfs."""

from collections.abc import Iterator

import pytest

from gpudoctor.model import Sysfs
from tests.lab_change import cleaned, killed_at_every_line, plan_on, there_and_back
from tests.lab_vm import Lab

THP, KSM = "/sys/kernel/mm/transparent_hugepage", "/sys/kernel/mm/ksm/run"
CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
COST = "/sys/kernel/debug/sched/migration_cost_ns"
ENABLED = Sysfs((f"{THP}/enabled",), "madvise", choice=True)
KNOBS = [
    ENABLED,
    Sysfs((f"{THP}/defrag",), "madvise", choice=True),
    Sysfs((KSM,), "0"),
    Sysfs((COST,), "500000"),
    # The lab's kernel found its TSC unstable; another clock shows the same.
    Sysfs((CLOCK,), "acpi_pm", risk="medium"),
]
SHOW = f"head {' '.join(path for knob in KNOBS for path in knob.paths)}"


@pytest.fixture(autouse=True)
def _as_before(lab: Lab) -> Iterator[None]:
    before = lab.run(SHOW)
    yield
    assert lab.run(SHOW) == before
    cleaned(lab)


def test_there_and_back(lab: Lab) -> None:
    before = lab.run(
        f"echo never >{THP}/enabled; echo defer+madvise >{THP}/defrag; echo 1 >{KSM}; "
        f"echo 50000 >{COST}; {SHOW}"
    )
    there_and_back(lab, KNOBS)
    assert lab.run(SHOW) == before
    lab.run(
        f"echo always >{THP}/enabled; echo madvise >{THP}/defrag; echo 0 >{KSM}; "
        f"echo 500000 >{COST}"
    )


def test_a_clock_that_the_kernel_does_not_offer_is_refused(lab: Lab) -> None:
    plan = plan_on(lab, [Sysfs((CLOCK,), "tsc")])
    assert not plan.steps and "does not offer tsc there, only" in plan.refused[0][1]


def test_killed_at_every_line(lab: Lab) -> None:
    killed_at_every_line(lab, plan_on(lab, [ENABLED]))
