"""rollback, confirm, status and clean: what they print, what they refuse, and the exit codes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from gpudoctor.answers import CleanAnswer, ConfirmAnswer, RollbackAnswer, StatusAnswer
from gpudoctor.cli_fix import fix_command
from gpudoctor.cli_undo import (
    clean_command,
    confirm_command,
    rollback_command,
    status_command,
)
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model.error import HostUnreachable, Refusal
from gpudoctor.model.plan import ByHand, State, StateMoved, Transaction
from gpudoctor.report_plan import standing
from gpudoctor.snapshots.pending import accept
from gpudoctor.transaction import transactions
from tests.cli_rig import (
    BY_HAND,
    CHECK,
    KNOB,
    RISKY,
    Arguments,
    found,
)

TORN = Transaction("id", State.APPLYING, "", "", (), (), "", written=3)


@pytest.fixture
def waiting(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """Apply with a timer, and return the transaction that now waits."""
    found(monkeypatch, [RISKY])
    assert fix_command(arguments(CHECK, json=True)) == 0
    name: str = json.loads(capsys.readouterr().out)["plan"]["id"]
    return name


def state_of(machine: SimulatedMachine) -> State:
    return asyncio.run(transactions(SimulatedTarget(machine, NO_WAIT)))[-1].state


def test_confirm_keeps_the_one_that_waits(
    arguments: Arguments,
    machine: SimulatedMachine,
    waiting: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert confirm_command(arguments()) == 0
    assert capsys.readouterr().out == f"{waiting}: confirmed: it stays\n"
    assert (machine.text(KNOB), state_of(machine)) == ("0", State.CONFIRMED)
    with pytest.raises(Refusal, match="nothing waits to be confirmed there$") as refused:
        confirm_command(arguments())
    assert refused.value.code == 1
    assert confirm_command(arguments(transaction=waiting, json=True)) == 0  # once more: it stays
    answer = ConfirmAnswer.model_validate_json(capsys.readouterr().out)
    assert (answer.transaction, answer.state) == (waiting, State.CONFIRMED)


def test_a_confirmed_one_can_be_rolled_back(
    arguments: Arguments, machine: SimulatedMachine, waiting: str
) -> None:
    confirm_command(arguments())
    assert rollback_command(arguments()) == 0
    assert (machine.text(KNOB), state_of(machine)) == ("1", State.UNDONE)


def test_confirm_after_the_undo_is_refused(arguments: Arguments, waiting: str) -> None:
    assert rollback_command(arguments()) == 0
    with pytest.raises(Refusal, match="nothing waits.*the last one was undone"):
        confirm_command(arguments())
    with pytest.raises(Refusal, match="nothing to confirm") as refused:
        confirm_command(arguments(transaction=waiting))
    assert refused.value.code == 1


def test_confirm_after_the_timer_is_refused(
    arguments: Arguments, machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, [RISKY])
    monkeypatch.setattr("gpudoctor.cli_ask._SHORTEST", 0)
    fix_command(arguments(CHECK, confirm_within="1s"))
    while state_of(machine) is not State.UNDONE:
        pass
    assert machine.text(KNOB) == "1"
    with pytest.raises(Refusal, match="nothing waits to be confirmed there"):
        confirm_command(arguments())


@pytest.mark.parametrize("verb", [confirm_command, rollback_command])
def test_a_transaction_that_does_not_exist_is_refused(
    arguments: Arguments, verb: Callable[..., int]
) -> None:
    with pytest.raises(Refusal, match="no transaction 'nonsense' there") as refused:
        verb(arguments(transaction="nonsense"))
    assert refused.value.code == 1


def test_a_foreign_value_makes_the_undo_5(
    arguments: Arguments, machine: SimulatedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    fix_command(arguments(CHECK))
    machine.files[KNOB] = b"2\n"
    assert rollback_command(arguments(json=True)) == 5
    assert machine.text(KNOB) == "2"
    out = capsys.readouterr().out
    answer = RollbackAnswer.model_validate_json(out[out.index("{") :])
    assert answer.exit_code == 5
    assert rollback_command(arguments()) == 5
    assert "LEFT ALONE, somebody else set it to 2" in capsys.readouterr().out


def test_status_tells_what_waits_and_what_is_by_hand(
    arguments: Arguments, waiting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    accept("a" * 32, "gpu1", [ByHand(CHECK, BY_HAND)], "0b00")
    assert status_command(arguments(read_only=True, host="gpu1")) == 0
    said = capsys.readouterr().out
    assert said.startswith("gpu1: 1 transaction\n")
    assert f"{waiting} (waits to be confirmed: taken back in " in said
    assert f"to keep it: gpudoctor --host gpu1 confirm {waiting}" in said
    assert f"to take it back: gpudoctor --host gpu1 rollback {waiting}" in said
    assert f"by hand: kernel command line +iommu=pt [{CHECK}], accepted 2" in said
    assert status_command(arguments(json=True)) == 0
    answer = StatusAnswer.model_validate_json(capsys.readouterr().out)
    (one,) = answer.transactions
    assert one.stands and one.timer is not None and 0 < one.timer <= 60
    assert answer.machine_id == "a" * 32 and answer.pending[0].undo == ["edit back"]


@pytest.mark.parametrize(
    ("state", "interrupted", "told"),
    [
        (State.APPLIED, False, True),
        (State.UNDOING, False, False),
        (State.UNDOING, True, True),
    ],
)
def test_status_tells_how_to_take_back_what_nobody_goes_on_with(
    arguments: Arguments,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: State,
    interrupted: bool,
    told: bool,
) -> None:
    async def known(*_: object) -> list[Transaction]:
        return [replace(TORN, state=state, interrupted=interrupted)]

    monkeypatch.setattr("gpudoctor.cli_undo.transactions", known)
    assert status_command(arguments()) == 0
    assert ("to take it back: gpudoctor rollback id" in capsys.readouterr().out) is told


def test_status_of_a_clean_host(arguments: Arguments, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_command(arguments()) == 0
    assert capsys.readouterr().out == "gpu1: nothing of ours is there\n"


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (replace(TORN, interrupted=True), "interrupted while applying, 3 values still written"),
        (replace(TORN, epoch_ended=True), "undone by the reboot since then"),
        (replace(TORN, state=State.UNDO_FAILED), "the undo is incomplete"),
        (replace(TORN, state=State.PLANNED), "planned, nothing was written"),
    ],
)
def test_how_a_transaction_stands(one: Transaction, words: str) -> None:
    assert standing(one) == words


def test_clean_keeps_what_stands(
    arguments: Arguments, machine: SimulatedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fix_command(arguments(CHECK)) == rollback_command(arguments()) == 0
    assert fix_command(arguments(CHECK)) == 0
    capsys.readouterr()
    assert clean_command(arguments()) == 1
    said = capsys.readouterr().out
    assert "goes: 2" in said and "stays, for its undo: 2" in said and "removed: 2" in said
    assert rollback_command(arguments()) == 0
    capsys.readouterr()
    assert clean_command(arguments(json=True)) == 0
    answer = CleanAnswer.model_validate_json(capsys.readouterr().out)
    assert len(answer.removed) == 1 and answer.stays == []
    assert not [path for path in machine.files if "gpudoctor" in path]
    assert clean_command(arguments()) == 0
    assert "nothing of ours is there" in capsys.readouterr().out


def test_clean_forgets_only_when_told_to(
    arguments: Arguments, machine: SimulatedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    fix_command(arguments(CHECK))
    capsys.readouterr()
    assert clean_command(arguments(json=True)) == 1
    answer = CleanAnswer.model_validate_json(capsys.readouterr().out)
    assert answer.removed == [] and answer.stays[0].state is State.APPLIED
    assert clean_command(arguments(forget=True)) == 0
    assert "FORGOTTEN, its changes stay and cannot be undone" in capsys.readouterr().out
    assert machine.text(KNOB) == "0"
    with pytest.raises(Refusal, match="nothing of ours is applied"):
        rollback_command(arguments())


def test_clean_never_forgets_what_waits(
    arguments: Arguments, machine: SimulatedMachine, waiting: str
) -> None:
    with pytest.raises(Refusal, match=f"{waiting} waits to be confirmed"):
        clean_command(arguments(forget=True))
    assert rollback_command(arguments()) == 0
    assert machine.text(KNOB) == "1"


def test_clean_asks_first(arguments: Arguments, machine: SimulatedMachine) -> None:
    assert fix_command(arguments(CHECK)) == rollback_command(arguments()) == 0
    with pytest.raises(Refusal, match="give --yes"):
        clean_command(arguments(yes=False))
    assert [path for path in machine.files if "gpudoctor" in path]


@pytest.mark.parametrize("verb", [confirm_command, rollback_command, clean_command])
def test_read_only_refuses(
    arguments: Arguments, machine: SimulatedMachine, waiting: str, verb: Callable[..., int]
) -> None:
    with pytest.raises(Refusal, match="--read-only refuses every write") as refused:
        verb(arguments(read_only=True))
    assert refused.value.code == 1
    assert state_of(machine) is State.APPLIED


@pytest.mark.parametrize(
    ("verb", "what", "words"),
    [
        (rollback_command, "cli_undo.undo", "goes on there; `gpudoctor status`"),
        (confirm_command, "cli_undo.confirm", "interrupted: `gpudoctor status`"),
        (fix_command, "cli_fix.apply_between_snapshots", "goes on there; to take it back: gpud"),
    ],
)
def test_an_interrupt_tells_how_to_go_on(
    arguments: Arguments,
    monkeypatch: pytest.MonkeyPatch,
    waiting: str,
    verb: Callable[..., int],
    what: str,
    words: str,
) -> None:
    async def moves(*_: object) -> AsyncIterator[StateMoved]:
        raise KeyboardInterrupt
        yield

    async def answer(*_: object) -> StateMoved:
        raise KeyboardInterrupt

    if verb is fix_command:
        confirm_command(arguments())
        rollback_command(arguments())
    monkeypatch.setattr(f"gpudoctor.{what}", answer if verb is confirm_command else moves)
    with pytest.raises(Refusal, match=words) as refused:
        verb(arguments(CHECK))
    assert refused.value.code == 130


def test_a_line_lost_after_the_first_write_is_no_mere_refusal(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> AsyncIterator[StateMoved]:
        yield StateMoved(State.APPLYING)
        raise HostUnreachable("the line is gone")

    monkeypatch.setattr("gpudoctor.cli_fix.apply_between_snapshots", lost)
    with pytest.raises(Refusal, match="the line is gone; no longer watching") as refused:
        fix_command(arguments(CHECK))
    assert refused.value.code == 5
