"""fix --persist, and plans by hand: what follows a fix, and what gpudoctor never runs."""

import asyncio
import io
from pathlib import Path

import pytest

from gpudoctor.answers import FixAnswer
from gpudoctor.cli_fix import fix_command
from gpudoctor.cli_follow import Following
from gpudoctor.cli_undo import rollback_command
from gpudoctor.fixes.sysctl import SysctlMechanism
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model import Change, Sysctl
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Item, ItemMoved, Plan, State, Step
from gpudoctor.snapshots.pending import pending
from gpudoctor.transaction import transactions
from tests.cli_rig import (
    BY_HAND,
    CHECK,
    KNOB,
    NUMA,
    RISKY,
    SWAP,
    Arguments,
    arguments_for,
    found,
    machine_of,
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedMachine:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    return machine_of()


@pytest.fixture
def arguments(machine: SimulatedMachine) -> Arguments:
    return arguments_for(machine)


def test_persist_is_a_second_transaction_after_the_first(
    arguments: Arguments,
    machine: SimulatedMachine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    form = Sysctl("vm.swappiness", "10", told="a file of our own")
    forms: dict[Change, Change] = {NUMA: form}
    monkeypatch.setattr(SysctlMechanism, "persist", lambda _, change, before: forms.get(change))
    assert fix_command(arguments(CHECK, persist=True)) == 0
    said = capsys.readouterr().out
    assert "then, to outlast a reboot, once that is kept:\nplan" in said
    assert said.index("1. a file of our own") < said.index("applied, every value read back")
    assert (machine.text(KNOB), machine.text(SWAP)) == ("0", "10")
    assert rollback_command(arguments()) == rollback_command(arguments()) == 0
    assert (machine.text(KNOB), machine.text(SWAP)) == ("1", "60")
    assert fix_command(arguments(CHECK, persist=True, json=True)) == 0
    capsys.readouterr()
    told = asyncio.run(transactions(SimulatedTarget(machine, NO_WAIT)))
    assert [one.state for one in told].count(State.APPLIED) == 2


def test_a_lasting_form_that_fails_leaves_the_fix(
    arguments: Arguments,
    machine: SimulatedMachine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    form = Sysctl("vm.swappiness", "10")
    forms: dict[Change, Change] = {NUMA: form}
    monkeypatch.setattr(SysctlMechanism, "persist", lambda _, change, before: forms.get(change))
    write = SimulatedMachine.write

    def only_numa(self: SimulatedMachine, path: str, data: str, append: bool = False) -> None:
        if path == KNOB:
            write(self, path, data, append)

    monkeypatch.setattr(SimulatedMachine, "write", only_numa)
    assert fix_command(arguments(CHECK, persist=True)) == 4
    assert "only what makes it last did not go well" in capsys.readouterr().out
    assert (machine.text(KNOB), machine.text(SWAP)) == ("0", "60")


def test_a_lasting_form_that_is_refused_leaves_the_fix(
    arguments: Arguments,
    machine: SimulatedMachine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    form = Sysctl("kernel.numa_balancing", "0 ", told="the same, which has moved by then")
    forms: dict[Change, Change] = {NUMA: form}
    monkeypatch.setattr(SysctlMechanism, "persist", lambda _, change, before: forms.get(change))
    assert fix_command(arguments(CHECK, persist=True)) == 1
    assert "not made to last: kernel.numa_balancing is now 0, and was 1" in capsys.readouterr().err
    assert machine.text(KNOB) == "0"


def test_what_has_no_persistent_form_is_said(
    arguments: Arguments, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SysctlMechanism, "persist", lambda *_: None)
    assert fix_command(arguments(CHECK, persist=True)) == 0
    assert "no persistent form: sysctl kernel.numa_balancing = 0" in capsys.readouterr().out
    assert rollback_command(arguments(json=True)) == 0
    capsys.readouterr()
    assert fix_command(arguments(CHECK, persist=True, json=True)) == 0
    answer = FixAnswer.model_validate_json(capsys.readouterr().out)
    assert answer.persist is None and answer.not_lasting == ["sysctl kernel.numa_balancing = 0"]


def test_persist_needs_somebody_who_confirms(
    arguments: Arguments, machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, [RISKY])
    with pytest.raises(Refusal, match="--persist writes only what was confirmed"):
        fix_command(arguments(CHECK, persist=True))
    assert machine.text(KNOB) == "1"


def test_by_hand_alone_is_accepted_and_is_1(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found(monkeypatch, [BY_HAND], simulated=False)
    assert fix_command(arguments(CHECK, yes=False)) == 1
    assert "not pending: nobody accepted it" in capsys.readouterr().err
    assert pending("a" * 32, "gpu1") == []
    assert fix_command(arguments(CHECK, json=True)) == 1
    answer = FixAnswer.model_validate_json(capsys.readouterr().out)
    assert answer.pending and answer.plan.by_hand[0].commands == ["edit this", "update-grub"]
    assert [one.check for one in pending("a" * 32, "gpu1")] == [CHECK]


def test_a_long_plan_is_told_as_a_count(
    arguments: Arguments, capsys: pytest.CaptureFixture[str]
) -> None:
    items = tuple(Item(f"policy{n}", "r", "a", "b", "w", "u") for n in range(60))
    plan = Plan("id", "gpu1", "me", "", "", (Step("check", NUMA, items),), "", "")
    following = Following(arguments(), plan)
    for number in range(1, 61):
        following.take(ItemMoved(number, "intent", 1.0))
        following.take(ItemMoved(number, "skipped" if number == 7 else "done", 1.0))
    said = capsys.readouterr().out.split("\n")
    assert [line.split(" s  ")[-1] for line in said] == [
        "policy6: skipped, the kernel does not allow it:",
        "25 of 60 values written and read back",
        "50 of 60 values written and read back",
        "",
    ]
