"""What the writing verbs say when they are cut off: the transaction goes on, and how to undo it."""

import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gpudoctor.answers import FixAnswer, RollbackAnswer
from gpudoctor.cli_fix import fix_command
from gpudoctor.cli_undo import rollback_command
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.model.error import HostUnreachable, Refusal
from gpudoctor.model.plan import Move, State, StateMoved
from tests.cli_rig import CHECK, KNOB, Arguments

FULL = OSError(28, "No space left on device")


def ends_with(fault: Exception, *states: State) -> Callable[..., AsyncIterator[Move]]:
    """Return moves that a fault ends after these states."""

    async def moves(*_: object) -> AsyncIterator[Move]:
        for state in states:
            yield StateMoved(state)
        raise fault

    return moves


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (FULL, "system: No space left on device; no longer watching"),
        (BrokenPipeError(32, "Broken pipe"), "the reader of our output has gone; no longer"),
        (ValueError("oops"), "a fault of its own .ValueError: oops.*; no longer watching"),
    ],
)
def test_a_fault_after_the_first_write_says_that_it_goes_on(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, fault: Exception, says: str
) -> None:
    moves = ends_with(fault, State.APPLYING)
    monkeypatch.setattr("gpudoctor.cli_fix.apply_between_snapshots", moves)
    how = rf"{says}.*transaction \S+ goes on there; to take it back: gpudoctor rollback 2"
    with pytest.raises(Refusal, match=how) as refused:
        fix_command(arguments(CHECK))
    assert refused.value.code == 5


def test_a_fault_before_the_first_move_leaves_open_what_stands(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpudoctor.cli_fix.apply_between_snapshots", ends_with(FULL))
    with pytest.raises(Refusal, match="began is not known: `gpudoctor status` tells") as refused:
        fix_command(arguments(CHECK))
    assert refused.value.code == 5


def test_a_printed_line_that_nobody_takes_is_5_and_the_write_stands(
    arguments: Arguments, machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(_: object, move: object) -> str:
        if isinstance(move, StateMoved) and move.state is State.APPLIED:
            raise FULL
        return ""

    monkeypatch.setattr("gpudoctor.cli_follow.told", told)
    with pytest.raises(Refusal, match="is applied, every value read back; to take") as refused:
        fix_command(arguments(CHECK))
    assert (refused.value.code, machine.text(KNOB)) == (5, "0")


def test_a_rollback_that_is_cut_off_is_5(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fix_command(arguments(CHECK)) == 0
    monkeypatch.setattr("gpudoctor.cli_undo.undo", ends_with(FULL, State.UNDOING))
    with pytest.raises(Refusal, match=r"the undo of \S+ goes on there; `gpudoctor status`") as cut:
        rollback_command(arguments())
    assert cut.value.code == 5


@pytest.mark.parametrize(
    ("fault", "states", "code", "undo"),
    [
        (HostUnreachable("the line is gone"), (State.APPLYING,), 5, True),
        (HostUnreachable("the line is gone"), (), 1, False),
        (FULL, (State.APPLIED,), 5, True),
        (Refusal("no last word", 5), (State.APPLYING,), 5, True),
        (Refusal("its value has moved", 1), (), 1, False),
        (KeyboardInterrupt(), (State.APPLYING,), 130, True),
    ],
)
def test_fix_json_tells_the_moves_of_what_was_cut_off(
    arguments: Arguments,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fault: Exception,
    states: tuple[State, ...],
    code: int,
    undo: bool,
) -> None:
    monkeypatch.setattr("gpudoctor.cli_fix.apply_between_snapshots", ends_with(fault, *states))
    with pytest.raises(Refusal) as refused:
        fix_command(arguments(CHECK, json=True))
    answer = FixAnswer.model_validate_json(capsys.readouterr().out)
    assert (answer.exit_code, answer.error) == (code, refused.value.sentence)
    assert refused.value.code == code
    assert [move.model_dump()["state"] for move in answer.moves] == list(states)
    assert answer.undo == (f"gpudoctor rollback {answer.plan.id}" if undo else "")


def test_drift_is_told_as_json(
    arguments: Arguments,
    machine: SimulatedMachine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def somebody_else(*_: object) -> None:
        machine.files[KNOB] = b"2\n"

    monkeypatch.setattr("gpudoctor.cli_fix.ask", somebody_else)
    with pytest.raises(Refusal, match="is now 2, and was 1"):
        fix_command(arguments(CHECK, json=True))
    answer = FixAnswer.model_validate_json(capsys.readouterr().out)
    assert "is now 2, and was 1" in answer.error
    assert (answer.exit_code, answer.undo, machine.text(KNOB)) == (1, "", "2")


def test_rollback_json_tells_the_moves_of_what_was_cut_off(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fix_command(arguments(CHECK)) == 0
    capsys.readouterr()
    lost = HostUnreachable("the line is gone")
    monkeypatch.setattr("gpudoctor.cli_undo.undo", ends_with(lost, State.UNDOING))
    with pytest.raises(Refusal) as refused:
        rollback_command(arguments(json=True))
    answer = RollbackAnswer.model_validate_json(capsys.readouterr().out)
    assert (answer.exit_code, answer.error) == (5, refused.value.sentence)
    assert [move.model_dump()["state"] for move in answer.moves] == [State.UNDOING]


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_an_output_that_the_caller_closed_changes_nothing(tmp_path: Path, closed: str) -> None:
    fix = f"{shlex.quote(sys.executable)} -m gpudoctor fix {CHECK} --demo --yes --json {closed}"
    done = subprocess.run(
        ["sh", "-c", fix],
        env={"XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(("more", "code"), [([], 1), (["--json"], 5)])
def test_a_full_disk_behind_our_output(tmp_path: Path, more: list[str], code: int) -> None:
    """Before the first write it is 1; after the last, 5 and how it stands."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpudoctor", "fix", CHECK, "--demo", "--yes", *more],
            env={"XDG_STATE_HOME": str(tmp_path)},
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    said = done.stderr.decode()
    assert (done.returncode, said.count("\n")) == (code, 1)
    assert ("nothing was changed: system: No space" if code == 1 else "is applied, every") in said
