"""Fixes turned on and off on the demo's machine: what is measured, and how the host is left."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from gpudoctor import cli_target
from gpudoctor.audit import run_audit
from gpudoctor.bench import simulated
from gpudoctor.bench.measure import Wish
from gpudoctor.bench.run import FULL, Run
from gpudoctor.capture import Captured, capture_chosen
from gpudoctor.cli import main
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.bench import Block, Failure, Judgement, Proof, Request
from gpudoctor.model.error import HostUnreachable, Refusal
from gpudoctor.model.plan import StateMoved
from gpudoctor.prove import Arm, provable, prove, rounds_within
from gpudoctor.report_prove import ProofModel, plain
from gpudoctor.transaction import transactions

NUMA, IDLE = "kern-numa-balancing", "kern-cstate-exit"
KNOB = "/proc/sys/kernel/numa_balancing"


class Rig:
    """The demo's machine, audited, with the fixes of some checks captured."""

    def __init__(self, checks: Sequence[str]) -> None:
        self.machine: SimulatedMachine = demo_machine()
        self.result: AuditResult = asyncio.run(run_audit(self.target()))
        self.captured: Captured = asyncio.run(capture_chosen(self.target(), self.result, checks))
        self.checks = checks

    def target(self) -> SimulatedTarget:
        return SimulatedTarget(self.machine, NO_WAIT)

    def arms(self) -> list[Arm]:
        return provable(self.result, self.captured, self.checks)

    def prove(self, budget: float = 3600) -> Proof:
        return asyncio.run(
            prove(
                self.target,
                self.result,
                self.captured,
                self.arms(),
                Wish(full=True),
                budget,
                lambda progress: None,
            )
        )

    def state(self) -> dict[str, object]:
        """Return all files but what the machine counts by itself."""
        return {p: self.machine.files[p] for p in self.machine.paths() if "/gpudoctor/" not in p}


def test_each_fix_gets_its_own_effect_and_the_host_is_as_before() -> None:
    rig = Rig([NUMA, IDLE])
    before = rig.state()
    proof = rig.prove()
    assert rig.state() == before
    assert asyncio.run(transactions(rig.target())) == []
    assert [one.check for one in proof.proved] == [NUMA, IDLE]
    assert proof.rounds == 16 and len(proof.off) == 16 and not proof.stopped
    for one in proof.proved:
        assert len(one.blocks) == 16 and one.comparison is not None
        assert one.comparison.low is not None and one.comparison.low < 1
        assert one.comparison.judgement is not Judgement.SLOWER
    assert "SIMULATED" in plain(proof) and "as it was before" in plain(proof)


def test_a_fix_that_makes_it_slower_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is planted with an engine that the fix slows down by a tenth."""
    rig = Rig([NUMA])
    whole = Run.block

    async def planted(run: Run, streams: int = 1) -> Block:
        block = await whole(run, streams)
        slow = 1.1 if rig.machine.text(KNOB) == "0" else 1.0
        return replace(block, requests=tuple(slowed(one, slow) for one in block.requests))

    monkeypatch.setattr(Run, "block", planted)
    proof = rig.prove()
    (one,) = proof.proved
    assert one.comparison is not None and one.comparison.judgement is Judgement.SLOWER
    assert rig.machine.text(KNOB) == "1" and "apply what helped" not in plain(proof)


def slowed(request: Request, by: float) -> Request:
    first = request.times[0]
    times = tuple(first + (at - first) * by for at in request.times)
    return replace(request, times=times, last=first + (request.last - first) * by)


def test_an_interruption_leaves_the_host_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig([NUMA])
    before = rig.state()
    turns = 0

    async def cut(run: Run, streams: int = 1) -> Block:
        nonlocal turns
        turns += 1
        if rig.machine.text(KNOB) == "0":
            raise asyncio.CancelledError
        return Block((Request(0.0, (1.0, 1.1), 1.1, 2, finish="length"),))

    monkeypatch.setattr(Run, "block", cut)
    with pytest.raises(asyncio.CancelledError):
        rig.prove()
    assert turns and rig.state() == before
    assert asyncio.run(transactions(rig.target())) == []


def test_a_host_that_is_lost_is_said_to_take_the_fix_back_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def lost(*_: object) -> AsyncIterator[StateMoved]:
        none: tuple[StateMoved, ...] = ()
        for move in none:
            yield move
        raise HostUnreachable("the connection was lost")

    monkeypatch.setattr("gpudoctor.prove.undo", lost)
    with pytest.raises(Refusal, match="was lost: the host itself takes 2.* back, within") as told:
        Rig([NUMA]).prove()
    assert told.value.code == 5


def test_an_engine_that_dies_ends_it_and_what_was_measured_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig([NUMA])
    before, whole, blocks = rig.state(), Run.block, 0

    async def dying(run: Run, streams: int = 1) -> Block:
        nonlocal blocks
        blocks += 1
        if blocks > 9:
            return Block((Request(failure=Failure("unreachable")),))
        return await whole(run, streams)

    monkeypatch.setattr(Run, "block", dying)
    proof = rig.prove()
    assert "answered no more" in proof.stopped and rig.state() == before
    assert len(proof.off) + len(proof.proved[0].blocks) == 9


def test_a_proof_that_was_cut_short_says_so_and_applies_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def dead(run: Run, streams: int = 1) -> Block:
        return Block((Request(failure=Failure("unreachable")),))

    monkeypatch.setattr(Run, "block", dead)
    assert main(["prove", NUMA, "--demo", "--yes", "--keep", "faster"]) == 3
    assert "stopped early: the engine answered no more" in capsys.readouterr().out


def test_turns_that_cannot_be_tidied_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def busy(*_: object, **__: object) -> None:
        raise Refusal("the target was not cleaned: busy", 1)

    monkeypatch.setattr("gpudoctor.prove.clean", busy)
    proof = Rig([NUMA]).prove(60)
    assert proof.proved[0].comparison and not proof.stopped
    assert "not cleaned: busy (`gpudoctor clean`" in plain(proof)


def test_a_value_that_somebody_moved_meanwhile_drops_the_fix_and_is_left_alone() -> None:
    rig = Rig([NUMA, IDLE])
    rig.machine.files[KNOB] = b"2\n"
    moved, other = rig.prove(60).proved
    assert moved.comparison is None and "could not be turned on" in moved.failed
    assert "not measured" in plain(rig.prove(60))
    assert other.comparison is not None and rig.machine.text(KNOB) == "2"


@pytest.mark.parametrize(
    ("check", "why"),
    [
        ("pcie-max-read-req", "does not act at once"),
        ("kern-governor", "nothing to turn on"),
        (f"{NUMA}:9", "no alternative 9"),
    ],
)
def test_what_cannot_be_turned_on_and_off_is_refused(check: str, why: str) -> None:
    with pytest.raises(Refusal, match=why):
        Rig([check]).arms()


def test_rounds_fit_the_budget() -> None:
    assert rounds_within(300, 5.0, 1, FULL) == 16
    assert rounds_within(300, 5.0, 4, FULL) == 8
    assert rounds_within(30, 5.0, 4, FULL) == 4


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        ([NUMA, "--budget", "5"], 2, "--budget wants a time"),
        ([NUMA, "--budget", "5s"], 2, "from 30s to 60m"),
        (["no-such-check"], 2, "no-such-check"),
        ([NUMA], 1, "nobody can be asked"),
        ([NUMA, "--read-only"], 1, "--read-only refuses"),
        ([NUMA, "--from", "/dev/null"], 1, "/dev/null"),
    ],
)
def test_bad_input_changes_nothing(
    argv: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [] if "--from" in argv else ["--demo"]
    assert main(["prove", *argv, *more]) == code
    assert says in capsys.readouterr().err


def test_it_is_told_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", NUMA, "--demo", "--yes", "--json", "--budget", "30s"]) == 0
    told = ProofModel.model_validate(json.loads(capsys.readouterr().out))
    assert told.simulated and told.proved[0].verdict is not None
    assert told.proved[0].blocks == told.rounds == told.blocks_without


@pytest.mark.parametrize(("slow_on", "kept"), [("1", True), ("0", False)])
def test_what_was_faster_is_kept_where_wished(
    slow_on: str,
    kept: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The engine is planted to be a fifth slower while the knob is on, or off."""

    def planted(machine: SimulatedMachine) -> float:
        return 0.012 if machine.text(KNOB) == slow_on else 0.010

    machine = demo_machine()
    monkeypatch.setattr(cli_target, "_demo_machine", lambda: machine)
    monkeypatch.setattr(simulated, "seconds_per_token", planted)
    assert main(["prove", NUMA, "--demo", "--yes", "--keep", "faster"]) == 0
    said = capsys.readouterr().out
    assert ("  faster: " in said) is kept and ("every value read back" in said) is kept
    assert machine.text(KNOB) == ("0" if kept else "1")


def test_json_of_the_proof_alone_keeps_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", NUMA, "--demo", "--yes", "--keep", "faster", "--json"]) == 2
    assert "--keep applies fixes" in capsys.readouterr().err
