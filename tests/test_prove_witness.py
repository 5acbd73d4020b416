"""The wake-up latency in the turns of `prove`: with the fix on and without, beside tokens."""

import json
from collections.abc import Callable

import pytest

from gpudoctor import prove
from gpudoctor.cli import main
from gpudoctor.hosts.target import Target
from gpudoctor.model.bench import Moved, Witness
from gpudoctor.model.error import Refusal
from gpudoctor.report_prove import ProofModel, plain
from tests.test_prove import IDLE, NUMA, Rig

HOLDER = "/run/systemd/units/invocation:gpudoctor-latency.service"


def planted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, fast: float, unknown: str = ""
) -> list[bool]:
    """Plant sleeps of a host that wakes in 60 µs, and in `fast` while its latency is held."""
    asked: list[bool] = []

    async def wake_up(make_target: Callable[[], Target]) -> Witness:
        held = HOLDER in rig.machine.files
        asked.append(held)
        if unknown:
            return Witness("wake-up latency", "µs", unknown=unknown)
        return Witness("wake-up latency", "µs", (fast if held else 60.0,) * 50, "sleeps")

    monkeypatch.setattr(prove, "wake_up", wake_up)
    return asked


def test_a_fix_of_idle_states_is_witnessed_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig([IDLE, NUMA])
    asked = planted(rig, monkeypatch, 7.0)
    proof = rig.prove(60)
    idle, numa = proof.proved
    assert numa.witnessed is None and idle.witnessed is not None
    assert idle.witnessed.moved is Moved.BETTER
    assert sorted(asked) == [False] * proof.rounds + [True] * proof.rounds
    assert len(idle.witnessed.after.values) == 50 * proof.rounds
    told = plain(proof)
    assert "wake-up latency p50 60.0 -> 7.0, p99 60.0 -> 7.0 µs: improved" in told
    assert "how fast an idle CPU answers, not how fast decode is" in told


def test_a_fix_that_changes_no_waking_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig([IDLE])
    planted(rig, monkeypatch, 59.0)
    assert "59.0 µs: no difference seen" in plain(rig.prove(60))


def test_without_such_a_fix_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig([NUMA])
    asked = planted(rig, monkeypatch, 7.0)
    assert "the value read back is the evidence" in plain(rig.prove(60)) and not asked


def test_a_host_that_cannot_tell_is_proved_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig([IDLE])
    planted(rig, monkeypatch, 7.0, "no python3")
    proof = rig.prove(60)
    assert "wake-up latency: not measured (no python3)" in plain(proof)
    assert proof.proved[0].comparison is not None


def test_registers_are_sent_to_the_bandwidth_tools() -> None:
    with pytest.raises(Refusal, match="`gpudoctor bench --copies` before and after"):
        Rig(["pcie-max-read-req"]).arms()


def test_the_json_of_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", IDLE, "--demo", "--yes", "--json", "--budget", "30s"]) == 0
    told = ProofModel.model_validate(json.loads(capsys.readouterr().out))
    witness = told.proved[0].witness
    assert witness is not None and "simulated" in witness.unknown and witness.now is None
