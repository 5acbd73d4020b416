"""What `plan` prints: commands, undo, alternatives, plans by hand; and what it folds."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpudoctor.answers import PlanAnswer
from gpudoctor.cli_fix import plan_command
from gpudoctor.model import Sysctl
from gpudoctor.model.error import WrongUsage
from gpudoctor.model.plan import Item, Plan, Step
from gpudoctor.report_plan import preview
from tests.cli_rig import BY_HAND, CHECK, NUMA, Arguments, arguments_for, found, machine_of


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Arguments:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    return arguments_for(machine_of())


def test_plan_shows_commands_undo_risk_and_proof(
    arguments: Arguments, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan_command(arguments(CHECK)) == 0
    said = capsys.readouterr().out
    assert "run   sysctl -w kernel.numa_balancing=0" in said
    assert "undo  sysctl -w kernel.numa_balancing=1" in said
    assert "risk low, needs nothing, runs as root on the host" in said
    assert "proof: seen working on a real kernel" in said


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
    plan = PlanAnswer.model_validate_json(capsys.readouterr().out).plan
    number = script.split()[4]
    assert plan.script.replace(plan.id, number) == script
    assert plan.steps[0].items[0].write in script


def test_alternatives_are_named_and_can_be_chosen(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found(monkeypatch, [NUMA], [Sysctl("vm.swappiness", "10")], [BY_HAND])
    assert plan_command(arguments(CHECK)) == 0
    said = capsys.readouterr().out
    assert "1. sysctl kernel.numa_balancing = 0" in said
    assert f"other ways: {CHECK}:2 = sysctl vm.swappiness = 10" in said
    assert f"other ways: {CHECK}:3 = kernel command line +iommu=pt" in said
    assert plan_command(arguments(f"{CHECK}:2")) == 0
    said = capsys.readouterr().out
    assert "1. sysctl vm.swappiness = 10" in said
    assert f"other ways: {CHECK}:1 = sysctl kernel.numa_balancing = 0" in said
    assert f"{CHECK}:2 =" not in said
    assert plan_command(arguments(f"{CHECK}:9")) == 1
    assert "it has no alternative 9, only 3" in capsys.readouterr().out


@pytest.mark.parametrize("name", [f"{CHECK}:0", f"{CHECK}:", f"{CHECK}:two", f"{CHECK}:1:1"])
def test_an_alternative_is_a_number(arguments: Arguments, name: str) -> None:
    with pytest.raises(WrongUsage, match="named by its number"):
        plan_command(arguments(name))


def test_by_hand_is_printed_with_its_undo(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found(monkeypatch, [BY_HAND])
    assert plan_command(arguments(CHECK)) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"by hand: kernel command line +iommu=pt   [{CHECK}]\n")
    assert "gpudoctor does not run this itself" in said and "risk high, needs nothing" in said
    assert "now: 1; then: 0" in said
    assert "   1. edit this\n   2. update-grub\n   to take it back:\n   1. edit back\n" in said
    assert plan_command(arguments(CHECK, **{"shell": True})) == 0
    out, err = capsys.readouterr()
    assert out == "" and f"{CHECK}: by hand: `gpudoctor plan {CHECK}` prints it" in err


def _plan_of(items: Sequence[Item]) -> Plan:
    step = Step("check", NUMA, tuple(items))
    return Plan("id", "gpu1", "me", "", "", (step,), "", "")


def _item(number: int, before: str) -> Item:
    return Item(f"policy{number}", "r", before, "performance", f"write {number}", f"undo {number}")


def test_many_values_fold_by_what_they_were() -> None:
    items = [_item(n, "schedutil" if n in {7, 9} else "powersave") for n in range(256)]
    said = preview(_plan_of(items))
    assert said.count("powersave -> performance\n     run") == 3
    assert "… and 251 more like it: powersave -> performance (--shell shows all)" in said
    assert "policy7: schedutil -> performance" in said
    assert "policy9: schedutil -> performance" in said
    assert said.count("\n") < 30


def test_many_different_values_fold_too() -> None:
    said = preview(_plan_of([_item(n, str(n)) for n in range(300)]))
    assert "… and 297 more like it, each with its own value from before" in said
    assert said.count("\n") < 20
