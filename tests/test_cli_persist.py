"""fix --persist, and plans by hand: what follows a fix, and what gpudoctor never runs."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from gpudoctor.answers import FixAnswer
from gpudoctor.cli_fix import fix_command
from gpudoctor.cli_follow import Following
from gpudoctor.cli_persist import refuse_passing
from gpudoctor.cli_undo import rollback_command
from gpudoctor.fixes.sysctl import SysctlMechanism
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model import Change, Sysctl
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Item, ItemMoved, Plan, State, Step, Transaction
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
    found,
)


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


def test_what_has_no_persistent_form_is_said_and_is_1(
    arguments: Arguments,
    machine: SimulatedMachine,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SysctlMechanism, "persist", lambda *_: None)
    assert fix_command(arguments(CHECK, persist=True)) == 1
    said = capsys.readouterr()
    assert "no persistent form: sysctl kernel.numa_balancing = 0" in said.out
    assert said.out.splitlines()[-1].startswith("to take it back: gpudoctor rollback 2")
    assert "not made to last: sysctl kernel.numa_balancing = 0: there is no" in said.err
    assert machine.text(KNOB) == "0"
    assert rollback_command(arguments(json=True)) == 0
    capsys.readouterr()
    assert fix_command(arguments(CHECK, persist=True, json=True)) == 1
    answer = FixAnswer.model_validate_json(capsys.readouterr().out)
    assert answer.persist is None and answer.not_lasting == ["sysctl kernel.numa_balancing = 0"]
    assert answer.exit_code == 1 and "no persistent form" in answer.error and answer.undo


def test_a_persistent_form_that_cannot_be_planned_is_1(
    arguments: Arguments,
    machine: SimulatedMachine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # the folder of its file is not there
    assert fix_command(arguments(CHECK, persist=True)) == 1
    said = capsys.readouterr()
    assert f"not made to last: {CHECK}: there is no folder /etc/sysctl.d" in said.err
    assert "to take it back: gpudoctor rollback 2" in said.out
    assert machine.text(KNOB) == "0"
    assert rollback_command(arguments(json=True)) == 0
    capsys.readouterr()
    assert fix_command(arguments(CHECK, persist=True, json=True)) == 1
    answer = FixAnswer.model_validate_json(capsys.readouterr().out)
    assert answer.exit_code == 1 and "/etc/sysctl.d" in answer.error and answer.undo


def test_persisting_what_was_kept_before_names_the_way(
    arguments: Arguments, machine: SimulatedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fix_command(arguments(CHECK, json=True)) == 0
    kept = FixAnswer.model_validate_json(capsys.readouterr().out).plan.id
    way = f"`gpudoctor rollback {kept}`, then `gpudoctor fix {CHECK} --persist`"
    says = f"by transaction {kept}, but nothing of ours makes it last: {way}"
    machine.files["/etc/sysctl.d/99-sysctl.conf"] = b"# somebody's\n"
    with pytest.raises(Refusal, match=says) as refused:
        fix_command(arguments(CHECK, persist=True))
    assert refused.value.code == 1
    capsys.readouterr()
    with pytest.raises(Refusal):
        fix_command(arguments(CHECK, persist=True, json=True))
    answer = FixAnswer.model_validate_json(capsys.readouterr().out)
    assert (answer.exit_code, answer.error) == (1, refused.value.sentence)
    assert rollback_command(arguments()) == 0
    assert fix_command(arguments(CHECK, persist=True)) == 0
    assert fix_command(arguments(CHECK, persist=True)) == 0  # once more: ours makes it last
    machine.files["/proc/sys/kernel/random/boot_id"] = b"0b01\n"
    assert fix_command(arguments(CHECK, persist=True)) == 0  # also in a later boot


def test_persisting_what_somebody_else_set_is_refused(
    arguments: Arguments, machine: SimulatedMachine
) -> None:
    machine.files[KNOB] = b"0\n"
    with pytest.raises(Refusal, match="holds now, though by nothing of ours") as refused:
        fix_command(arguments(CHECK, persist=True))
    assert refused.value.code == 1
    assert fix_command(arguments(CHECK)) == 0


FIRST = Transaction(
    "id-1", State.APPLIED, "me", "", ("sysctl",), (CHECK,), "0b00", epoch_ended=False
)
FILE = replace(FIRST, id="id-2", steps=("a file",), lasting=True)
BOTH = replace(FIRST, id="id-3", steps=("sysctl", "a file"), checks=(CHECK, "other"), lasting=True)


@pytest.mark.parametrize(
    ("known", "boot", "lasts"),
    [
        ([], "0b00", False),
        ([FIRST], "0b00", False),
        ([FIRST, FILE], "0b00", True),
        ([FILE], "0b00", True),
        ([BOTH], "0b00", False),  # the file may be the other check's
        ([BOTH], "0b01", True),  # it has outlived a boot
        ([FIRST, BOTH], "0b00", False),
        ([BOTH, FIRST], "0b01", False),
        ([replace(FILE, state=State.UNDONE), FIRST], "0b00", False),
        ([replace(FILE, state=State.UNDO_FAILED)], "0b00", False),
    ],
)
def test_what_makes_a_check_last(
    arguments: Arguments, known: list[Transaction], boot: str, lasts: bool
) -> None:
    plan = Plan("id", "gpu1", "me", "", boot, (), "", "", already=(CHECK,))
    seen = AuditResult("gpu1", "root", Identity("gpu1", "", boot))
    refuse_passing(arguments(), plan, seen, known)  # without --persist it is no question
    told = contextlib.nullcontext() if lasts else pytest.raises(Refusal, match="holds now")
    with told:
        refuse_passing(arguments(persist=True), plan, seen, known)


def test_whether_it_lasts_is_for_root_to_tell(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan("id", "gpu1", "me", "", "0b00", (), "", "", already=(CHECK,))
    seen = AuditResult("gpu1", "uid 1000", Identity("gpu1", "", "0b00"))
    with pytest.raises(Refusal, match="is made to last needs root there") as refused:
        refuse_passing(arguments(persist=True), plan, seen, [])
    assert refused.value.code == 1


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
