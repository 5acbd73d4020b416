"""What lasts, on the lab's kernel and over real reboots: every form at once, and the snapshot.

Two reboots take some minutes in an emulated machine, so that one test asks of them all there is.
"""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.capture import capture
from gpudoctor.fixes.conflicts import conflict
from gpudoctor.fixes.drop_ins import (
    latency_unit,
    module_file,
    registers_unit,
    sysctl_file,
    sysfs_file,
)
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import LatencyHold, Module, OwnFile, PciBits, Sysctl, Sysfs
from gpudoctor.model.plan import State
from gpudoctor.model.snapshot import Kind
from gpudoctor.recording import load
from tests.lab_change import applied, cleaned, plan_on, undone, values
from tests.lab_own import PYTHON, STATE, gpudoctor, installed, removed
from tests.lab_vm import Lab
from tests.test_lab_file import ALL, made
from tests.test_lab_timer import REBOOT, reached

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
GOVERNORS = tuple(f"/sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor" for n in (0, 1))
GPU = "0000:21:00.0"
OTHERS = "/etc/sysctl.d/zz-operator.conf"
SWAPPINESS = made(sysctl_file(Sysctl("vm.swappiness", "10")))
CACHE = made(sysctl_file(Sysctl("vm.vfs_cache_pressure", "50")))
PAGES = made(sysfs_file(Sysfs((THP,), "madvise", choice=True)))
GOVERNOR = made(sysfs_file(Sysfs(GOVERNORS, "powersave")))
DUMMY = made(module_file(Module("dummy")))
READS = made(registers_unit(PciBits((GPU,), "CAP_EXP+8.w", 0x5000, 0x7000)))
HOLD = latency_unit(LatencyHold(10), "gpudoctor-latency-boot.service")
FORMS = (SWAPPINESS, CACHE, PAGES, GOVERNOR, DUMMY, READS, HOLD)
# The units that have run stay known to systemd until the reboot.
FILES = ALL.partition("; systemctl show")[0]
# What the forms set, one line each.
NOW = (
    f"sysctl -n vm.swappiness vm.vfs_cache_pressure; cat {THP} {' '.join(GOVERNORS)}; "
    f"[ -d /sys/module/dummy ] && echo dummy; echo $((0x$(setpci -s {GPU} CAP_EXP+8.w) >> 12)); "
    "echo $(od -An -td4 -N4 /dev/cpu_dma_latency)"
)
BEFORE = ["60", "100", "[always] madvise never", "schedutil", "schedutil", "2", "2000000000"]
SET = ["10", "77", "always [madvise] never", "powersave", "powersave", "dummy", "5", "10"]


@pytest.fixture
def lab(own_lab: Lab) -> Lab:
    """Have a VM of this test's own: it is rebooted."""
    return own_lab


@pytest.fixture(autouse=True)
def _as_before(lab: Lab) -> Iterator[None]:
    yield
    lab.run(
        f"for u in /etc/systemd/system/gpudoctor-*.service; do systemctl disable --now ${{u##*/}}; "
        f"done 2>/dev/null; rm -f {OTHERS} /etc/systemd/system/gpudoctor-*; "
        f"rm -f {' '.join(form.path for form in FORMS)}; systemctl daemon-reload"
    )
    removed(lab)
    cleaned(lab)
    lab.settle()


def rebooted(lab: Lab) -> str:
    """Reboot; return the new boot id once all that starts at boot has ended."""
    old = lab.run("cat /proc/sys/kernel/random/boot_id")
    lab.run(REBOOT)
    new = f"read -r b </proc/sys/kernel/random/boot_id; [ $b != {old} ] && echo $b"
    boot = reached(lab, new)
    lab.run(
        "for n in $(seq 1200); do systemctl list-jobs --no-legend | grep -q . || exit 0; "
        "sleep 0.25; done; exit 1",
        seconds=400,
    )
    return boot


def winners(lab: Lab) -> dict[OwnFile, str]:
    """Return what the host's own files say overrides each form, where something does."""
    seen = asyncio.run(capture(LiveTarget(lab.transport(shared=True)), FORMS))
    said = {form: conflict(form, seen[form]) for form in FORMS}
    return {form: sentence for form, sentence in said.items() if sentence}


def boot_snapshots(lab: Lab) -> list[str]:
    return lab.run(f"find {STATE} -name '*-boot-*.toml'").split()


def test_what_is_made_to_last_holds_and_what_overrides_it_is_named(
    lab: Lab, tmp_path: Path
) -> None:
    installed(lab)
    before = lab.run(FILES)
    assert lab.run(NOW).split("\n") == BEFORE
    plan = plan_on(lab, *([form] for form in FORMS))
    assert len(plan.steps) == len(FORMS) and not plan.refused, plan.refused
    assert applied(lab, plan) is State.APPLIED
    assert winners(lab) == {}
    said = json.loads(gpudoctor(lab, "snapshot at-boot --yes --json"))
    assert said["exit_code"] == 0 and not boot_snapshots(lab)
    lab.run(f"echo 'vm.vfs_cache_pressure = 77' >{OTHERS}")

    boot = rebooted(lab)
    assert lab.run(NOW).split("\n") == SET
    assert values(lab, plan) == [item.wanted for item in plan.items]
    sentence = f"{OTHERS} comes after it at boot and sets vm.vfs_cache_pressure = 77"
    assert winners(lab) == {CACHE: sentence}
    refused = plan_on(lab, [CACHE]).refused
    assert refused == (("check-0", f"it would not hold: {sentence}"),)
    (taken,) = boot_snapshots(lab)
    kept = load(base64.b64decode(lab.run(f"base64 {taken}")))
    assert kept.identity.boot_id == boot
    assert taken.rpartition("/")[2].split("-")[1] == Kind.BOOT
    transaction = said["plan"]["id"]
    assert f"rollback {transaction}" in said["undo"]
    gpudoctor(lab, f"rollback {transaction} --yes")
    assert undone(lab, plan) is State.UNDONE
    lab.run(f"rm {OTHERS}")
    assert lab.run(FILES) == before

    rebooted(lab)
    assert lab.run(NOW).split("\n") == BEFORE
    assert lab.run("systemctl list-units --all --no-legend 'gpudoctor*'") == ""
    assert lab.run(FILES) == before and boot_snapshots(lab) == [taken]
    assert lab.run(f"{PYTHON} -c 'print(1)'") == "1"  # it was there, had it been asked to run
