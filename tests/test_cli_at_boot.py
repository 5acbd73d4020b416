"""snapshot at-boot: the unit's text, where it is refused, and the whole way on a simulated host."""

import argparse
import dataclasses
import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from gpudoctor import cli_at_boot
from gpudoctor.answers import FixAnswer
from gpudoctor.cli import main
from gpudoctor.cli_at_boot import UNIT, at_boot_command, unit
from gpudoctor.cli_undo import rollback_command
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.error import Refusal, WrongUsage
from tests.cli_rig import arguments_for, machine_of

PATH = f"/etc/systemd/system/{UNIT}"
LINK = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
Made = Callable[..., argparse.Namespace]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimulatedMachine:
    """Return a host with systemd that stands for this one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(cli_at_boot, "_SYSTEMD", str(tmp_path))
    result = AuditResult("gpu1", "root", Identity("gpu1", "a" * 32, "0b00"), simulated=True)

    async def audited(target: object) -> AuditResult:
        return result

    monkeypatch.setattr(cli_at_boot, "run_audit", audited)
    made = machine_of()
    made.files |= {"/run/systemd/private": b"", "/etc/systemd/system/x.service": b"x\n"}
    return made


@pytest.fixture
def arguments(machine: SimulatedMachine) -> Made:
    return arguments_for(machine)


def test_installed_told_again_and_taken_back(
    arguments: Made, machine: SimulatedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    files = set(machine.files)
    assert at_boot_command(arguments()) == 0
    said = capsys.readouterr().out
    text = machine.text(PATH)
    assert text is not None and machine.text(LINK) is not None
    shown = said.partition(f"{PATH}:\n")[2].split("it needs ")[0].rstrip("\n").split("\n")
    assert [line.removeprefix("  ") for line in shown] == text.split("\n")  # what is shown is it
    assert at_boot_command(arguments()) == 0
    said = capsys.readouterr().out
    assert "is there and enabled: nothing was written" in said and "gpudoctor rollback 2" in said
    transaction = said.split("rollback ")[1].strip()
    assert rollback_command(arguments(transaction=transaction)) == 0
    ours = {path for path in machine.files if path.startswith("/var/lib/gpudoctor/")}
    assert set(machine.files) - ours == files


def test_as_json(arguments: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert at_boot_command(arguments(json=True)) == 0
    answer = FixAnswer.model_validate_json(capsys.readouterr().out)
    assert [item.name for item in answer.plan.steps[0].items] == [PATH, f"{UNIT} at boot"]
    assert answer.exit_code == 0 and answer.undo.endswith(answer.plan.id)
    assert at_boot_command(arguments(json=True)) == 0
    again = FixAnswer.model_validate_json(capsys.readouterr().out)
    assert not again.plan.steps and again.plan.already and not again.undo


def test_nobody_is_asked_without_yes(arguments: Made, machine: SimulatedMachine) -> None:
    with pytest.raises(Refusal, match="give --yes"):
        at_boot_command(arguments(yes=False))
    assert machine.text(PATH) is None


def test_somebody_elses_unit_stays(arguments: Made, machine: SimulatedMachine) -> None:
    machine.files[PATH] = b"[Unit]\n"
    with pytest.raises(Refusal, match="is not gpudoctor's"):
        at_boot_command(arguments())
    assert machine.text(PATH) == "[Unit]"


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"host": "root@gpu1"}, Refusal, "nothing is installed on targets"),
        ({"demo": True}, WrongUsage, "about this host"),
        ({"files": ["x"]}, WrongUsage, "about this host"),
        ({"container": "lxc:101"}, WrongUsage, "found by itself"),
        ({"read_only": True}, Refusal, "refuses every write"),
    ],
)
def test_refused(arguments: Made, options: dict[str, object], kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        at_boot_command(arguments(**options))


def test_an_audit_that_is_no_root_s_is_refused(
    arguments: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def audited(target: object) -> AuditResult:
        return dataclasses.replace(AuditResult("gpu1", "ops"), simulated=True)

    monkeypatch.setattr(cli_at_boot, "run_audit", audited)
    with pytest.raises(Refusal, match="installing a unit"):
        at_boot_command(arguments())


def test_here_it_is_one_sentence_where_no_systemd_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_at_boot, "_SYSTEMD", "/nowhere")
    assert main(["snapshot", "at-boot", "--yes"]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert "no systemd runs here" in said.err


def lines(python: str = "/usr/bin/python3", **environment: str) -> list[str]:
    return unit(python, environment).text.splitlines()


def test_the_unit_runs_what_runs_now_for_this_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / '50% "full"'))
    told = lines("/opt/a b/python3", PYTHONPATH="/opt/lib:")
    assert 'ExecStart="/opt/a b/python3" -m gpudoctor snapshot take --boot' in told
    assert f'Environment="XDG_STATE_HOME={tmp_path}/50%% \\"full\\""' in told
    assert 'Environment="PYTHONPATH=/opt/lib"' in told
    assert not [line for line in lines() if "PYTHONPATH" in line]


def test_it_runs_as_the_operator_whose_store_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [line for line in lines() if line.startswith("User=")] or os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert not [line for line in lines() if line.startswith("User=")]
    monkeypatch.setattr(os, "getuid", lambda: 1)
    assert [line for line in lines() if line.startswith("User=")] == ["User=daemon"]


def test_what_a_unit_cannot_hold_is_refused() -> None:
    with pytest.raises(Refusal, match="cannot be written into a unit"):
        lines("/opt/$HOME/python3")


def test_what_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(cli_at_boot, "distribution", none)
    with pytest.raises(Refusal, match="install it, or set PYTHONPATH"):
        lines()
