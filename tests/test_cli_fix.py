"""plan, fix and rollback on a simulated machine: what they print, and the exit codes."""

import argparse
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudoctor.cli_fix import fix_command, plan_command, rollback_command
from gpudoctor.hosts.recorded import RecordedTarget
from gpudoctor.hosts.side import AnswerSide, SilentSide
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model import Reason, Side, Unknown
from gpudoctor.model.error import HostUnreachable, Refusal, WrongUsage
from gpudoctor.model.place import ContainerRef
from gpudoctor.recording import Answers

CHECK = "kern-numa-balancing"
KNOB = "/proc/sys/kernel/numa_balancing"
NODE = "/sys/devices/system/node/node"
FILES = {
    KNOB: "1\n",
    "/proc/sys/kernel/hostname": "gpu1\n",
    "/proc/sys/kernel/random/boot_id": "0b00\n",
    f"{NODE}0/cpulist": "0-63\n",
    f"{NODE}0/meminfo": "Node 0 MemTotal:       792000000 kB\n",
    f"{NODE}1/cpulist": "64-127\n",
    f"{NODE}1/meminfo": "Node 1 MemTotal:       792000000 kB\n",
}
Arguments = Callable[..., argparse.Namespace]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedMachine:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    return SimulatedMachine("gpu1", {path: text.encode() for path, text in FILES.items()})


@pytest.fixture
def arguments(machine: SimulatedMachine) -> Arguments:
    def made(*checks: str, **more: object) -> argparse.Namespace:
        options: dict[str, object] = {
            "checks": list(checks),
            "yes": True,
            "json": False,
            "shell": False,
            "transaction": None,
            "make_target": lambda: SimulatedTarget(machine, NO_WAIT),
        }
        return argparse.Namespace(**(options | more))

    return made


def test_plan_shows_commands_undo_and_risk(
    arguments: Arguments, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan_command(arguments(CHECK)) == 0
    said = capsys.readouterr().out
    assert "run   sysctl -w kernel.numa_balancing=0" in said
    assert "undo  sysctl -w kernel.numa_balancing=1" in said
    assert "risk low, needs nothing, runs as root on the host" in said


def test_plan_without_names_offers_what_can_be_fixed(
    arguments: Arguments, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan_command(arguments()) == 0
    assert CHECK in capsys.readouterr().out


def test_plan_as_shell_and_as_json_are_the_same_script(
    arguments: Arguments, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan_command(arguments(CHECK, **{"shell": True})) == 0
    script = capsys.readouterr().out
    assert script.startswith("#!/bin/sh\n# gpudoctor transaction ")
    assert plan_command(arguments(CHECK, json=True)) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    number = script.split()[4]
    assert plan["script"].replace(plan["id"], number) == script
    assert plan["steps"][0]["items"][0]["write"] in script


def test_fix_then_already_so_then_rollback(
    arguments: Arguments, machine: SimulatedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fix_command(arguments(CHECK)) == 0
    assert machine.text(KNOB) == "0"
    assert "kernel.numa_balancing: done, read back" in capsys.readouterr().out
    assert fix_command(arguments(CHECK)) == 0
    assert "already so" in capsys.readouterr().out
    assert rollback_command(arguments()) == 0
    assert machine.text(KNOB) == "1"
    assert "undone, every value is as before" in capsys.readouterr().out
    with pytest.raises(Refusal, match="nothing of ours is applied"):
        rollback_command(arguments())


def test_json_tells_plan_and_moves(
    arguments: Arguments, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fix_command(arguments(CHECK, json=True)) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["version"] == 1
    assert [m.get("state") or m["phase"] for m in said["moves"]] == [
        *("applying", "intent", "done", "applied")
    ]
    assert rollback_command(arguments(transaction=said["plan"]["id"], json=True)) == 0
    assert json.loads(capsys.readouterr().out)["moves"][-1]["state"] == "undone"


def test_a_write_that_is_ignored_is_4(
    arguments: Arguments, machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimulatedMachine, "write", lambda *_: None)
    assert fix_command(arguments(CHECK)) == 4
    assert machine.text(KNOB) == "1"


def test_a_foreign_value_makes_the_undo_5(
    arguments: Arguments, machine: SimulatedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    fix_command(arguments(CHECK))
    machine.files[KNOB] = b"2\n"
    assert rollback_command(arguments()) == 5
    assert machine.text(KNOB) == "2"
    assert "LEFT ALONE, somebody else set it to 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"yes": False}, "give --yes"),
        ({"read_only": True}, "--read-only refuses every write"),
        (
            {"make_target": lambda: RecordedTarget("a file", {Side.HOST: _recorded()})},
            "a recording cannot be changed",
        ),
    ],
)
def test_refusals_are_1(
    arguments: Arguments, machine: SimulatedMachine, change: dict[str, object], words: str
) -> None:
    with pytest.raises(Refusal, match=words) as refused:
        fix_command(arguments(CHECK, **change))
    assert refused.value.code == 1
    assert machine.text(KNOB) == "1"


class _WrongContainer(SimulatedTarget):
    """Names a container that cannot be entered."""

    chosen_container = ContainerRef("lxc", "999")

    def container(self, ref: ContainerRef) -> AnswerSide:
        return _NoEntry(Unknown(Reason.NOT_PRESENT, ""))


class _NoEntry(SilentSide):
    async def start(self) -> None:
        raise HostUnreachable("no such container")


def test_a_wrong_container_is_refused(arguments: Arguments, machine: SimulatedMachine) -> None:
    wrong = arguments(CHECK, make_target=lambda: _WrongContainer(machine, NO_WAIT))
    with pytest.raises(Refusal, match="lxc:999 cannot be entered") as refused:
        fix_command(wrong)
    assert refused.value.code == 1
    assert machine.text(KNOB) == "1"


def _recorded() -> Answers:
    return Answers(files={path: text.encode() for path, text in FILES.items()})


def test_a_check_without_a_fix_is_refused_with_what_to_do(
    arguments: Arguments, machine: SimulatedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.files["/proc/sys/kernel/nmi_watchdog"] = b"1\n"
    assert fix_command(arguments(CHECK, "kern-nmi-watchdog")) == 1
    said = capsys.readouterr().out
    assert "gpudoctor does not change this itself: `sysctl -w kernel.nmi_watchdog=0`" in said
    assert machine.text(KNOB) == "1"


def test_a_check_that_does_not_exist_is_wrong_usage(arguments: Arguments) -> None:
    with pytest.raises(WrongUsage, match="no check 'nonsense'"):
        fix_command(arguments("nonsense"))


def test_a_transaction_that_does_not_exist_is_refused(arguments: Arguments) -> None:
    with pytest.raises(Refusal, match="no transaction 'nonsense' there"):
        rollback_command(arguments(transaction="nonsense"))
