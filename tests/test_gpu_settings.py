"""GPU settings by the very scripts, against a stand-in nvidia-smi; and round the demo's audit."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.capture import capture, capture_chosen
from gpudoctor.fixes import mechanism_of
from gpudoctor.hosts.recorded import RecordedTarget
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.journal import parse
from gpudoctor.model import (
    Change,
    Class,
    DeviceNodes,
    Finding,
    GpuSetting,
    Impact,
    Module,
    Panel,
    Reason,
    Side,
    Status,
    Unknown,
    issue,
)
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.plan import Move, Plan, State, StateMoved
from gpudoctor.plan import make_plan
from gpudoctor.recording import Answers
from gpudoctor.transaction import apply, undo
from gpudoctor.transaction_script import Places
from tests import stand_in_smi
from tests.script_runner import BOOT, is_root
from tests.stand_in_smi import Gpus, gpu

A, B, C = "0000:01:00.0", "0000:21:00.0", "0000:a1:00.0"
root_only = pytest.mark.skipif(not is_root(), reason="a transaction script runs as root only")


class Bench:
    """A folder with a stand-in nvidia-smi first on its PATH, and a transaction's places."""

    def __init__(self, folder: Path, gpus: Gpus) -> None:
        self.state = folder / "gpus"
        self.places = Places(str(folder / "lib"), str(folder / "run"))
        self.bin = folder / "bin"
        self.bin.mkdir()
        stand_in_smi.installed(self.bin / "nvidia-smi", self.state, gpus)

    def sh(self, text: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": f"{self.bin}:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
        return subprocess.run(["sh", "-c", text], capture_output=True, text=True, env=env)

    def read(self, text: str) -> str | Unknown:
        done = self.sh(text)
        if done.returncode:
            missing = "not found" in done.stderr
            return Unknown(Reason.TOOL_MISSING if missing else Reason.PARSE_FAILED, done.stderr)
        return done.stdout.rstrip("\n")

    def plan(self, change: Change) -> Plan:
        texts = mechanism_of(change).reads(change)
        captured = {change: {name: self.read(text) for name, text in texts.items()}}
        verdict = issue("x", Class.P0, Impact.LOW, changes=((change,),))
        finding = Finding("a-check", Panel.DRIVER, "", "gpu", verdict, "", "")
        result = AuditResult("here", identity=Identity(boot_id=BOOT), findings=(finding,))
        return make_plan(result, captured, ["a-check"], "tester", self.places, confirm_within=0)

    def run(self, plan: Plan, verb: str) -> int:
        path = Path(self.places.script(plan.id))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(plan.script.replace(" PATH=", f" PATH={self.bin}:", 1))
        return self.sh(f"sh {path} {verb}").returncode

    def value(self, bdf: str, field: str) -> str:
        return (self.state / bdf / field).read_text().strip()

    def set(self, bdf: str, field: str, value: str) -> None:
        (self.state / bdf / field).write_text(f"{value}\n")

    def limits(self) -> list[str]:
        return [self.value(path.name, "power.limit") for path in sorted(self.state.iterdir())]

    def told(self, plan: Plan, word: str) -> list[str]:
        lines = parse(Path(self.places.journal(plan.id)).read_bytes())
        return [line.rest for line in lines if line.word == word]


@root_only
def test_each_gpu_gets_its_own_limit_back(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, {A: gpu(limit="450.00"), B: gpu(limit="600.00"), C: gpu(limit="412.50")}
    )
    plan = bench.plan(GpuSetting((A, B, C), "power-limit", "600"))
    assert [item.name for item in plan.items] == [f"{A} power limit", f"{C} power limit"]
    assert bench.run(plan, "apply") == 0
    assert bench.limits() == ["600.00", "600.00", "600.00"]
    assert bench.run(plan, "undo") == 0
    assert bench.limits() == ["450.00", "600.00", "412.50"]


@root_only
@pytest.mark.parametrize(
    ("setting", "value", "field", "before"),
    [
        ("persistence", "Enabled", "persistence_mode", ["Disabled", "Enabled"]),
        ("compute-mode", "Default", "compute_mode", ["Prohibited", "Exclusive_Process"]),
    ],
)
def test_modes(tmp_path: Path, setting: str, value: str, field: str, before: list[str]) -> None:
    bench = Bench(tmp_path, {A: gpu(), B: gpu()})
    for bdf, mode in zip((A, B), before, strict=True):
        bench.set(bdf, field, mode)
    plan = bench.plan(GpuSetting((A, B), setting, value))
    assert bench.run(plan, "apply") == 0
    assert [bench.value(bdf, field) for bdf in (A, B)] == [value, value]
    assert bench.run(plan, "undo") == 0
    assert [bench.value(bdf, field) for bdf in (A, B)] == before


@root_only
@pytest.mark.parametrize(
    ("how", "says"), [("deaf", "was set to 600.00"), ("denied", "Permissions")]
)
def test_a_limit_that_does_not_take_fails_and_undoes_all(
    tmp_path: Path, how: str, says: str
) -> None:
    bench = Bench(tmp_path, {A: gpu(limit="450.00"), B: gpu(limit="500.00", broken=f"pl {how}")})
    plan = bench.plan(GpuSetting((A, B), "power-limit", "600"))
    assert bench.run(plan, "apply") == 4
    assert bench.limits() == ["450.00", "500.00"]
    (complaint,) = bench.told(plan, "complaint")
    assert says in complaint


@root_only
def test_a_limit_that_nothing_holds_is_seen_to_be_lost(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {A: gpu("Disabled", "600.00")})
    plan = bench.plan(GpuSetting((A,), "power-limit", "450"))
    assert bench.run(plan, "apply") == 4
    (complaint,) = bench.told(plan, "complaint")
    assert "persistence mode is disabled" in complaint


@root_only
def test_an_undo_that_would_lose_a_power_limit_is_held_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {A: gpu("Disabled")})
    plan = bench.plan(GpuSetting((A,), "persistence", "Enabled"))
    assert bench.run(plan, "apply") == 0
    bench.sh(f"nvidia-smi -i {A} -pl 450")
    assert bench.run(plan, "undo") == 5
    assert "its power limit would fall back" in bench.told(plan, "held")[0]
    assert (bench.value(A, "persistence_mode"), bench.limits()) == ("Enabled", ["450.00"])
    bench.set(A, "pids", "4711")  # what runs there holds the limit
    assert bench.run(plan, "undo") == 0
    assert (bench.value(A, "persistence_mode"), bench.limits()) == ("Disabled", ["450.00"])


@root_only
def test_a_gpu_that_vanishes_before_the_write_is_drift(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {A: gpu(limit="450.00"), B: gpu(limit="500.00")})
    plan = bench.plan(GpuSetting((A, B), "power-limit", "600"))
    (bench.state / B).rename(tmp_path / "away")
    assert bench.run(plan, "apply") == 1
    assert bench.limits() == ["450.00"]


@pytest.mark.parametrize(
    ("change", "fields", "says"),
    [
        (GpuSetting((A,), "power-limit", "601"), {}, "601 W is outside what"),
        (GpuSetting((B,), "power-limit", "600"), {}, f"lists no GPU {B} there"),
        (GpuSetting((A,), "power-limit", "600"), {"power.limit": "[N/A]"}, "[N/A]"),
        (GpuSetting((A,), "power-limit", "600"), {"power.max_limit": "[N/A]"}, "no bounds"),
        (GpuSetting((A,), "persistence", "Enabled"), {"persistence_mode": "ERR!"}, "ERR!"),
    ],
)
def test_refused(tmp_path: Path, change: GpuSetting, fields: dict[str, str], says: str) -> None:
    bench = Bench(tmp_path, {A: gpu() | fields})
    plan = bench.plan(change)
    assert not plan.steps and says in plan.refused[0][1]


def test_what_nvidia_smi_says_in_place_of_its_list_is_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {A: gpu()})
    (bench.bin / "nvidia-smi").write_text("#!/bin/sh\necho No devices were found; exit 6\n")
    plan = bench.plan(GpuSetting((A,), "persistence", "Enabled"))
    assert plan.refused[0][1] == f"nvidia-smi lists no GPU {A} there: No devices were found"


@pytest.mark.parametrize(
    "change", [GpuSetting((A,), "persistence", "Enabled"), Module("nvidia_peermem"), DeviceNodes()]
)
def test_a_recording_does_not_tell(change: Change) -> None:
    kept = {"/proc/modules": b"nvidia 1 0 - Live 0x0\n", "/sys/module/nvidia/version": b"590\n"}
    target = RecordedTarget("a file", {Side.HOST: Answers(files=dict(kept))})
    now = asyncio.run(capture(target, [change]))[change]
    assert "the recording does not tell it" in mechanism_of(change).refuse(change, now)


def test_the_demo_is_good_after_the_fix_and_as_before_after_the_undo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    machine = demo_machine()
    for bdf in (B, "0000:41:00.0"):
        machine.sh(f"nvidia-smi -i {bdf} -pm 0")
    machine.sh(f"nvidia-smi -i {A} -pl 450; nvidia-smi -i {B} -c 2")
    asyncio.run(_round_the_demo(SimulatedTarget(machine, NO_WAIT)))


async def _round_the_demo(target: SimulatedTarget) -> None:
    checks = ("drv-persistence-mode", "drv-compute-mode", "pwr-gpu-limit")
    result = await run_audit(target)
    assert _bad(result, checks) == {
        "drv-persistence-mode": (B, "0000:41:00.0"),
        "drv-compute-mode": (B,),
        "pwr-gpu-limit": (A,),
    }
    plan = make_plan(result, await capture_chosen(target, result, checks), checks, confirm_within=0)
    assert not plan.refused and [len(step.items) for step in plan.steps] == [2, 1, 1]
    before = dict(target.machine.files)
    assert await _end(apply(target, plan)) is State.APPLIED
    assert not _bad(await run_audit(target), checks)
    assert await _end(undo(target, plan.id)) is State.UNDONE
    ours = "/var/lib/gpudoctor/"
    assert {p: v for p, v in target.machine.files.items() if not p.startswith(ours)} == before
    assert _bad(await run_audit(target), checks) == _bad(result, checks)


def _bad(result: AuditResult, checks: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {
        finding.id: finding.verdict.targets
        for finding in result.findings
        if finding.id in checks and finding.status is not Status.GOOD
    }


async def _end(moves: AsyncIterator[Move]) -> State:
    return [move.state async for move in moves if isinstance(move, StateMoved)][-1]


def test_the_demo_makes_the_nodes_and_takes_them_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    asyncio.run(_nodes())


async def _nodes() -> None:
    machine = demo_machine()
    nodes = ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    machine.listings["/usr/bin/nvidia-modprobe"] = b"-rwsr-xr-x 1 0 0 0 Jan  5 08:00 x"
    assert machine.container is not None
    for path in nodes:
        del machine.listings[path], machine.container.listings[path]
    before = dict(machine.listings)
    target = SimulatedTarget(machine, NO_WAIT)
    result = await run_audit(target)
    captured = await capture_chosen(target, result, ["lxc-gpu-devices"])
    plan = make_plan(result, captured, ["lxc-gpu-devices"], confirm_within=0)
    assert not plan.refused and plan.steps[0].unproven
    assert await _end(apply(target, plan)) is State.APPLIED
    assert set(nodes) <= set(machine.listings)
    assert await _end(undo(target, plan.id)) is State.UNDONE
    assert machine.listings == before
