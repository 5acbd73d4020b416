"""Plan records: kept whole, read back as they were, skipped where they are damaged or newer."""

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import replace

import pytest

from gpudoctor.capture import Captured
from gpudoctor.fixes import known_types
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.loop import apply_between_snapshots
from gpudoctor.model import (
    Affinity,
    CgroupLimit,
    Change,
    Class,
    DeviceNodes,
    Finding,
    GpuSetting,
    Impact,
    LatencyHold,
    Module,
    MountSize,
    OwnFile,
    Panel,
    PciBits,
    ProcessLimit,
    Service,
    Sysctl,
    Sysfs,
    issue,
)
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.plan import Item, Plan, State, StateMoved, Step
from gpudoctor.model.story import KeptItem, KeptStep, PlanRecord
from gpudoctor.plan import make_plan, values_hash
from gpudoctor.snapshots import plans
from gpudoctor.snapshots.store import machine_folder
from gpudoctor.transaction_script import Header, render

MACHINE = "0123456789abcdef0123456789abcdef"
ID = "20260101-000000-00000a"
PATH = "/proc/sys/vm/swappiness"
CHANGES: tuple[Change, ...] = (
    Affinity((7, 8), "0-3", risk="medium", caution="it may sting"),
    CgroupLimit("/sys/fs/cgroup/lxc/101/memory.max", "max", "memory.current"),
    DeviceNodes(),
    GpuSetting(("0000:41:00.0",), "power-limit", "400"),
    LatencyHold(2),
    Module("nvidia_peermem"),
    MountSize(7, 1 << 30),
    OwnFile("/etc/sysctl.d/a.conf", 'one\n"two"\n', told="a file"),
    PciBits(("0000:41:00.0",), "CAP_EXP+8.w", 0x5000, 0x7000, group="g"),
    ProcessLimit((7,), "memlock", "unlimited"),
    Service("irqbalance.service", active=False),
    Sysctl("vm.swappiness", "10"),
    Sysfs(("/sys/a", "/sys/b"), "x", choice=True, beside="c", tolerates="E+"),
)


def record(*steps: KeptStep, name: str = ID) -> PlanRecord:
    time = "2026-01-01T00:00:00.000+00:00"
    return PlanRecord(name, "gpu1", "alice@desk", MACHINE, "b1", time, steps)


def step(change: Change | None) -> KeptStep:
    items = (
        KeptItem("one", "a", "b"),
        KeptItem("two", "a", "b"),
        KeptItem("three", "é \\ '", "b", True),
        KeptItem("four", "a", "b"),
    )
    return KeptStep("a-check", 2, "a title", items, change)


def put(raw: bytes, name: str = ID) -> None:
    folder = machine_folder(MACHINE, "gpu1")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.plan.toml").write_bytes(raw)


def test_every_kind_of_change_is_read_back_as_it_was() -> None:
    assert {type(change) for change in CHANGES} == set(known_types())
    kept = record(*(step(change) for change in CHANGES), step(None))
    assert plans.load(plans.dump(kept)) == kept


def test_many_like_items_are_one_table() -> None:
    items = tuple(KeptItem(f"/sys/cpu{n}", "powersave", "performance") for n in range(512))
    raw = plans.dump(record(KeptStep("a", 1, "t", items)))
    assert raw.count(b"powersave") == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw[:-40],
        lambda raw: raw.replace(b"alice", b"mallory"),
        lambda raw: raw.replace(b"schema = 1", b"schema = 2"),
        lambda raw: b"\xff\xfe" + raw,
        lambda raw: b"",
    ],
)
def test_a_damaged_or_newer_one_is_skipped(spoil: Callable[[bytes], bytes]) -> None:
    put(plans.dump(record(step(CHANGES[0]))))
    other = "20260101-000000-00000b"
    put(spoil(plans.dump(record(step(CHANGES[0]), name=other))), other)
    assert [one.id for one in plans.records(MACHINE, "gpu1")] == [ID]


def test_one_under_another_name_is_none() -> None:
    put(plans.dump(record(step(CHANGES[0]))), "20260101-000000-00000c")
    assert plans.records(MACHINE, "gpu1") == []


def test_one_that_is_no_plain_file_is_none() -> None:
    put(plans.dump(record(step(CHANGES[0]))))
    os.mkfifo(machine_folder(MACHINE, "gpu1") / "20260101-000000-00000b.plan.toml")  # no writer
    assert [one.id for one in plans.records(MACHINE, "gpu1")] == [ID]


def test_a_change_that_a_newer_version_knows_is_no_change_here() -> None:
    kept = record(step(Sysctl("vm.swappiness", "10")))
    raw = plans.dump(kept).replace(b'type = "Sysctl"', b'type = "Newer"')
    body = raw.split(b"\n", 3)[3]
    head = plans.dump(kept).split(b"\n", 3)[:2]
    digest = hashlib.sha256(body).hexdigest().encode()
    (told,) = (plans.load(b"\n".join([*head, b'checksum = "' + digest + b'"', body])),)
    assert told == replace(kept, steps=(step(None),))


def plan(write: str = f"echo 10 > {PATH}") -> Plan:
    item = Item("vm.swappiness", f"cat {PATH}", "60", "10", write, f"echo 60 > {PATH}")
    steps = (Step("a-check", Sysctl("vm.swappiness", "10"), (item,), way=2),)
    script = render(Header(ID, "rig", "alice", "b1", values_hash(steps), 0), steps)
    return Plan(ID, "rig", "alice", MACHINE, "b1", steps, script, "")


async def run(made: Plan, monkeypatch: pytest.MonkeyPatch) -> State:
    machine = SimulatedMachine(files={PATH: b"60\n"})
    monkeypatch.setattr("gpudoctor.loop.save", lambda *_: None)
    before = AuditResult("rig", "root", Identity("rig", MACHINE, "b1"))
    moves = apply_between_snapshots(lambda: SimulatedTarget(machine, NO_WAIT), made, before)
    return [move.state async for move in moves if isinstance(move, StateMoved)][-1]


async def test_what_is_applied_is_kept_for_its_owner_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await run(plan(), monkeypatch) is State.APPLIED
    (kept,) = plans.records(MACHINE, "rig")
    assert kept.steps == (
        KeptStep(
            "a-check",
            2,
            "sysctl vm.swappiness = 10",
            (KeptItem("vm.swappiness", "60", "10"),),
            Sysctl("vm.swappiness", "10"),
        ),
    )
    assert (kept.id, kept.boot_id, kept.operator) == (ID, "b1", "alice")
    path = machine_folder(MACHINE, "rig") / f"{ID}.plan.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    plans.drop(ID)
    assert plans.records(MACHINE, "rig") == []


async def test_what_failed_leaves_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await run(plan(write="true"), monkeypatch) is State.FAILED
    assert plans.records(MACHINE, "rig") == []


@pytest.mark.parametrize(("name", "way", "value"), [("a", 1, "10"), ("a:2", 2, "20")])
def test_a_step_knows_its_alternative(name: str, way: int, value: str) -> None:
    ways = tuple((Sysctl("vm.swappiness", each),) for each in ("10", "20"))
    verdict = issue("x", Class.P0, Impact.LOW, changes=ways)
    found = Finding("a", Panel.KERNEL_KNOBS, "", "host", verdict, "", "")
    result = AuditResult("rig", findings=(found,))
    captured: Captured = {change: {"vm.swappiness": "60"} for (change,) in ways}
    (made,) = make_plan(result, captured, [name]).steps
    assert (made.way, made.items[0].wanted) == (way, value)


def test_the_best_that_can_be_done_tells_its_number() -> None:
    ways = ((Sysctl("vm.nothing", "1"),), (Sysctl("vm.swappiness", "20"),))
    verdict = issue("x", Class.P0, Impact.LOW, changes=ways)
    found = Finding("a", Panel.KERNEL_KNOBS, "", "host", verdict, "", "")
    captured: Captured = {ways[1][0]: {"vm.swappiness": "60"}}
    (made,) = make_plan(AuditResult("rig", findings=(found,)), captured, ["a"]).steps
    assert made.way == 2
