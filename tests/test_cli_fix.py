"""plan and fix on a simulated machine: what they print, and the exit codes."""

import json
from dataclasses import replace

import pytest

from gpudoctor.answers import FixAnswer
from gpudoctor.cli_ask import confirm_seconds, refuse_unfinished
from gpudoctor.cli_fix import fix_command
from gpudoctor.cli_undo import confirm_command, rollback_command
from gpudoctor.fixes.mechanism import Proof
from gpudoctor.fixes.sysctl import SysctlMechanism
from gpudoctor.hosts.recorded import RecordedTarget
from gpudoctor.hosts.side import AnswerSide, SilentSide
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model import Reason, Side, Unknown
from gpudoctor.model.error import HostUnreachable, Refusal, WrongUsage
from gpudoctor.model.place import ContainerRef
from gpudoctor.model.plan import State, Transaction
from gpudoctor.recording import Answers
from tests.cli_rig import (
    CHECK,
    FILES,
    KNOB,
    NUMA,
    RISKY,
    Arguments,
    found,
)


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
    raw = capsys.readouterr().out
    FixAnswer.model_validate_json(raw)
    said = json.loads(raw)
    assert (said["version"], said["exit_code"], said["confirm"]) == (1, 0, "")
    assert said["undo"] == f"gpudoctor rollback {said['plan']['id']}"
    assert [m.get("state") or m["phase"] for m in said["moves"]] == [
        *("applying", "intent", "done", "applied")
    ]
    assert rollback_command(arguments(transaction=said["plan"]["id"], json=True)) == 0
    assert json.loads(capsys.readouterr().out)["moves"][-1]["state"] == "undone"


def test_a_risky_step_gets_the_timer_and_returns_where_nobody_can_be_asked(
    arguments: Arguments,
    machine: SimulatedMachine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found(monkeypatch, [RISKY], simulated=False)
    assert fix_command(arguments(CHECK, host="root@gpu1")) == 0
    said = capsys.readouterr().out
    assert "caution: it may sting" in said
    assert "Unless it is confirmed within 60 s, the target takes all of it" in said
    assert "the target takes everything back in 60 s, unless confirmed" in said
    assert "NOT KEPT YET" in said and "gpudoctor --host root@gpu1 confirm 2" in said
    with pytest.raises(Refusal, match="still waits to be confirmed.*confirm.*rollback") as refused:
        fix_command(arguments(CHECK))  # already so, though not for long
    assert refused.value.code == 1
    assert confirm_command(arguments()) == 0
    assert machine.text(KNOB) == "0"


@pytest.mark.parametrize(("given", "seconds"), [("0", 0), ("5s", 5), ("2m", 120), ("90s", 90)])
def test_the_timer_is_as_long_as_asked(
    arguments: Arguments,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: str,
    seconds: int,
) -> None:
    found(monkeypatch, [RISKY])
    assert fix_command(arguments(CHECK, confirm_within=given, json=True)) == 0
    answer = FixAnswer.model_validate_json(capsys.readouterr().out)
    assert answer.plan.confirm_within == seconds
    assert answer.confirm == (f"gpudoctor confirm {answer.plan.id}" if seconds else "")


@pytest.mark.parametrize("given", ["60", "1h", "4s", "61m", "-5s", "5 s", "", "s", "²s", "1.5m"])
def test_a_strange_time_is_wrong_usage(given: str) -> None:
    with pytest.raises(WrongUsage, match="--confirm-within wants"):
        confirm_seconds(given)


def test_an_interrupted_transaction_comes_first(arguments: Arguments) -> None:
    torn = Transaction("id-1", State.APPLYING, "me", "", (), (), "", interrupted=True)
    with pytest.raises(Refusal, match="id-1 was interrupted there while applying.*rollback id-1"):
        refuse_unfinished(arguments(), [torn])
    refuse_unfinished(arguments(), [replace(torn, interrupted=False, state=State.APPLIED)])


def test_inside_a_container_is_not_the_host(
    arguments: Arguments, machine: SimulatedMachine
) -> None:
    machine.files["/run/systemd/container"] = b"docker\n"
    with pytest.raises(Refusal, match=r"inside a container \(docker\).*its host") as refused:
        fix_command(arguments(CHECK))
    assert refused.value.code == 1
    assert machine.text(KNOB) == "1"


def test_what_was_seen_with_a_stand_in_only_is_asked_twice(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []
    monkeypatch.setattr(SysctlMechanism, "proof", Proof.STAND_IN)
    monkeypatch.setattr("gpudoctor.cli_fix.ask", lambda _, question: questions.append(question))
    assert fix_command(arguments(CHECK)) == 0
    assert questions[0] == "Apply 1 change to gpu1?"
    assert "against a stand-in program only" in questions[1] and len(questions) == 2


@pytest.mark.parametrize(("running", "words"), [(0, "no request"), (5, "5 requests")])
def test_the_question_tells_how_busy_the_engine_is(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, running: int, words: str
) -> None:
    from gpudoctor.cli_target import make_target

    def demo() -> object:
        return make_target(None, None, None, None, demo=True, ask_sudo=False)

    questions: list[str] = []
    monkeypatch.setattr("gpudoctor.cli_fix.ask", lambda _, question: questions.append(question))
    monkeypatch.setattr("gpudoctor.cli_fix.DECODE_SPEED", _speed(running))
    assert fix_command(arguments(CHECK, make_target=demo, demo=True)) == 0
    assert f"(its engine serves {words} now)?" in questions[0]
    rollback_command(arguments(make_target=demo))


def _speed(running: int) -> object:
    from gpudoctor.model import Reader
    from gpudoctor.probes.server_metrics import DecodeSpeed

    return Reader("engine", (), lambda: DecodeSpeed(1.0, running, None))


def test_a_write_that_is_ignored_is_4(
    arguments: Arguments, machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimulatedMachine, "write", lambda *_: None)
    assert fix_command(arguments(CHECK)) == 4
    assert machine.text(KNOB) == "1"


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


def test_without_root_the_plan_is_shown_and_refused(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found(monkeypatch, [NUMA], user="uid 1000")
    with pytest.raises(Refusal, match="needs root there, and we are only uid 1000") as refused:
        fix_command(arguments(CHECK))
    assert refused.value.code == 1
    assert "1. sysctl kernel.numa_balancing = 0" in capsys.readouterr().out


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
    arguments: Arguments,
    machine: SimulatedMachine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found(monkeypatch)
    assert fix_command(arguments(CHECK)) == 1
    assert "gpudoctor does not change this itself: see `gpudoctor explain`" in (
        capsys.readouterr().out
    )
    assert machine.text(KNOB) == "1"


def test_a_check_that_does_not_exist_is_wrong_usage(arguments: Arguments) -> None:
    with pytest.raises(WrongUsage, match="no check 'nonsense'"):
        fix_command(arguments("nonsense"))
