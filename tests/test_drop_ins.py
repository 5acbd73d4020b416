"""Files that make runtime changes last: their names, texts, and what gets none."""

import asyncio
from collections.abc import Sequence

import pytest

from gpudoctor.capture import capture
from gpudoctor.fixes import mechanism_of
from gpudoctor.fixes.drop_ins import (
    latency_unit,
    module_file,
    registers_unit,
    sysctl_file,
    sysfs_file,
)
from gpudoctor.fixes.file import FOLDERS, OwnFileMechanism
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model import Change, LatencyHold, Module, OwnFile, PciBits, Sysctl, Sysfs

GOVERNORS = tuple(f"/sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor" for n in (0, 8))
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
GPUS = ("0000:21:00.0", "0000:41:00.0")
MADE = [
    sysctl_file(Sysctl("vm.dirty_bytes", "4294967296")),
    sysfs_file(Sysfs((THP,), "madvise", choice=True)),
    sysfs_file(Sysfs(GOVERNORS, "performance")),
    module_file(Module("nvidia_peermem")),
    registers_unit(PciBits(GPUS, "CAP_EXP+8.w", 0x5000, 0x7000, risk="medium", caution="AER")),
    latency_unit(LatencyHold(10), "gpudoctor-latency-boot.service"),
]


def lines(file: OwnFile | None) -> list[str]:
    """Return the lines that are not ours to explain."""
    assert file is not None
    return [line for line in file.text.splitlines() if line and not line.startswith("#")]


def values(file: OwnFile, machine: SimulatedMachine) -> dict[str, str]:
    read = asyncio.run(capture(SimulatedTarget(machine, NO_WAIT), [file]))[file]
    return {name: str(value) for name, value in read.items()}


@pytest.mark.parametrize("file", MADE, ids=lambda file: file.path.rpartition("/")[2])
def test_each_says_whose_it_is_and_how_it_goes_and_is_accepted(file: OwnFile) -> None:
    head = file.text.splitlines()[:2]
    assert head[0].startswith("# Written by gpudoctor: ") and head[0].endswith("at every boot.")
    assert head[1].startswith("# To take it back by hand: ") and f"rm {file.path}" in head[1]
    folders = {f"{folder}/somebody-elses": b"\n" for folder in FOLDERS}
    machine = SimulatedMachine(files={**folders, "/run/systemd/private": b""})
    mechanism = OwnFileMechanism()
    now = values(file, machine)
    assert mechanism.refuse(file, now) == ""
    for item in mechanism.wanted(file, now):
        assert machine.sh(mechanism.write(file, item, now))[0] == 0
    assert machine.text(file.path) == file.text.rstrip("\n")
    again = values(file, machine)
    assert again | mechanism.wanted(file, again) == again  # already so, header and all
    assert machine.sh(mechanism.write(file, file.path, again))[0] == 0
    assert machine.text(file.path) == file.text.rstrip("\n")  # never a line twice


def test_texts() -> None:
    assert lines(MADE[0]) == ["vm.dirty_bytes = 4294967296"]
    assert lines(MADE[1]) == [f"w! {THP} - - - - madvise"]
    assert [line for line in lines(MADE[2]) if line.startswith("ExecStart")] == [
        f"ExecStart=-/bin/sh -c 'echo performance | tee {' '.join(GOVERNORS)} >/dev/null'"
    ]
    assert lines(MADE[3]) == ["nvidia_peermem"]
    assert [line for line in lines(MADE[4]) if line.startswith(("After", "ExecStart"))] == [
        "After=nvidia-persistenced.service",
        *(
            f"ExecStart=-/usr/bin/env setpci -s {gpu} -d 10de: CAP_EXP+8.w=5000:7000"
            for gpu in GPUS
        ),
    ]
    assert [line for line in lines(MADE[5]) if line.startswith(("Type", "ExecStart"))] == [
        "Type=exec",
        "ExecStart=/bin/sh -ec "
        "'exec 3>/dev/cpu_dma_latency && printf 0x0000000a >&3 && exec sleep infinity'",
    ]
    assert MADE[4] is not None and (MADE[4].risk, MADE[4].caution) == ("medium", "AER")


def test_a_unit_writes_many_files_with_few_commands() -> None:
    many = tuple(f"/sys/devices/system/cpu/cpu{n}/cpuidle/state2/disable" for n in range(130))
    commands = [line for line in lines(sysfs_file(Sysfs(many, "1"))) if "tee" in line]
    assert [line.count("/cpuidle/") for line in commands] == [64, 64, 2]


def test_names_are_stable_and_a_change_has_its_own() -> None:
    paths = [file.path for file in MADE if file]
    assert paths[:2] == [
        "/etc/sysctl.d/99-zz-gpudoctor-vm-dirty-bytes.conf",
        "/etc/tmpfiles.d/gpudoctor-transparent-hugepage-enabled.conf",
    ]
    again = sysfs_file(Sysfs(GOVERNORS, "powersave"))
    other = sysfs_file(Sysfs((*GOVERNORS, "/sys/devices/system/cpu/cpufreq/x"), "performance"))
    assert again is not None and again.path == paths[2]
    assert other is not None and other.path != paths[2]
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (sysctl_file, Sysctl("kernel.core_pattern", "two\nlines")),
        (sysctl_file, Sysctl("vm.swappiness = 1\nvm.x", "10")),
        (sysctl_file, Sysctl("vm.swappiness", "")),
        (sysfs_file, Sysfs((f"{THP} ; reboot",), "madvise")),
        (sysfs_file, Sysfs((THP,), "%h")),
        (sysfs_file, Sysfs(("/proc/irq/9/smp_affinity_list",), "0-3")),
        (sysfs_file, Sysfs(("/sys/devices/system/clocksource/clocksource0/x",), "tsc")),
        (sysfs_file, Sysfs((), "1")),
        (module_file, Module("a b")),
        (registers_unit, PciBits(GPUS, "ECAP_ACS+6.w", 0, 0xC)),
        (registers_unit, PciBits(("21:00.0; reboot",), "CAP_EXP+8.w", 0x5000, 0x7000)),
    ],
)
def test_what_cannot_be_told_exactly_or_judged_again_gets_none(
    make: "type", change: Change
) -> None:
    assert make(change) is None


@pytest.mark.parametrize("key", ["vm.swappiness", "net.core.rmem_max"])
def test_a_parameter_persists_by_its_own_file(key: str) -> None:
    change = Sysctl(key, "10")
    assert mechanism_of(change).persist(change, {key: "60"}) == sysctl_file(change)


def held(machine: SimulatedMachine, change: Sysctl, before: Sequence[str]) -> list[str]:
    mechanism = mechanism_of(change)
    texts = [mechanism.guard(change, change.key, {change.key: value}) for value in before]
    return [machine.sh(text)[1].strip() if text else "" for text in texts]


def test_an_undo_waits_while_more_is_in_use_than_the_old_limit_allows() -> None:
    meminfo = b"CommitLimit:     100 kB\nCommitted_AS:    101 kB\n"
    machine = SimulatedMachine(
        files={
            "/proc/7/maps": b"a\n" * 12,
            "/proc/31/maps": b"a\n" * 9,
            "/proc/meminfo": meminfo,
        }
    )
    maps = Sysctl("vm.max_map_count", "1048576")
    assert held(machine, maps, ["12", "11"]) == [
        "",
        "a process has more than 11 memory mappings now",
    ]
    strict = Sysctl("vm.overcommit_memory", "0")
    assert held(machine, strict, ["1", "2"]) == [
        "",
        "more memory is promised now than strict accounting allows",
    ]
    assert held(machine, Sysctl("vm.swappiness", "10"), ["60"]) == [""]
