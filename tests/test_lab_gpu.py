"""GPU settings over the whole way on the lab's machine, with a stand-in for nvidia-smi there."""

from collections.abc import Iterator

import pytest

from gpudoctor.model import GpuSetting
from tests.lab_change import cleaned, killed_at_every_line, plan_on, there_and_back
from tests.lab_vm import Lab
from tests.stand_in_smi import gpu, install_text

PROGRAM, STATE = "/usr/local/sbin/nvidia-smi", "/run/gpudoctor-test-smi"
A, B, C = "0000:01:00.0", "0000:21:00.0", "0000:a1:00.0"
GPUS = {
    A: gpu("Disabled"),
    B: gpu("Enabled", "412.50"),
    C: gpu("Disabled", "500.00", pids="4711"),
}


@pytest.fixture(autouse=True)
def _stand_in(lab: Lab) -> Iterator[None]:
    lab.run(install_text(PROGRAM, STATE, GPUS))
    all_of_it = f"cd {STATE}; grep -r . . | sort"
    before = lab.run(all_of_it)
    yield
    after = lab.run(all_of_it)
    lab.run(f"rm -r {PROGRAM} {STATE}")
    cleaned(lab)
    assert after == before


def test_there_and_back(lab: Lab) -> None:
    plan = there_and_back(
        lab,
        [GpuSetting((A, B), "persistence", "Enabled")],
        [GpuSetting((B, C), "power-limit", "600", risk="medium")],
    )
    assert [item.before for item in plan.items] == ["Disabled", "412.50", "500.00"]
    assert all(step.unproven for step in plan.steps)


def test_killed_at_every_line(lab: Lab) -> None:
    killed_at_every_line(lab, plan_on(lab, [GpuSetting((B, C), "power-limit", "600")]))
