"""The demo's simulated engine: the audit's own numbers, what the state changes, honest labels."""

import asyncio
import statistics
from collections.abc import Callable

import pytest

from gpudoctor.bench.figures import figures, tpot, valid
from gpudoctor.bench.sanity import rubbish
from gpudoctor.bench.simulated import SimulatedBeside, open_simulated, seconds_per_token
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.model.bench import Block, Level, Request, Serving
from gpudoctor.model.error import Refusal
from gpudoctor.tables.demo_engine import demo_engine

UNTOUCHED = 95.21e-3
ENGINE = Serving("SGLang", "", "glm-5", simulated=True)
CPU = "/sys/devices/system/cpu"


def bodies(count: int, tokens: int = 128, nonce: str = "") -> list[dict[str, object]]:
    return [{"prompt": f"{nonce}{n}", "max_tokens": tokens} for n in range(count)]


async def run(
    machine: SimulatedMachine, count: int, streams: int = 1, tokens: int = 128, nonce: str = ""
) -> tuple[tuple[Request, ...], float]:
    return await SimulatedBeside(machine, ENGINE).job(bodies(count, tokens, nonce), streams)


def middle(requests: tuple[Request, ...]) -> float:
    return statistics.median(t for r in requests if (t := tpot(r)) is not None)


async def test_the_untouched_demo_is_as_fast_as_the_audit_measured() -> None:
    requests, wall = await run(demo_machine(), 200)
    assert middle(requests) == pytest.approx(UNTOUCHED, rel=0.004)
    whole = statistics.median(128 / (r.last - r.began) for r in requests)
    assert whole == pytest.approx(10.34, rel=0.004)
    assert wall == pytest.approx(200 * 128 / 10.34, rel=0.01)
    said = figures(Level(1, (Block(requests),)))
    assert said.rate == pytest.approx(1 / UNTOUCHED, rel=0.004)
    assert said.server is not None and said.server == pytest.approx(middle(requests), rel=1e-6)


async def test_requests_are_whole() -> None:
    requests, _ = await run(demo_machine(), 4, tokens=64)
    for request in requests:
        assert valid(request, 64) and len(request.times) == 64 == request.tokens
        assert list(request.times) == sorted(request.times)
        assert request.began < request.times[0] and request.last == request.times[-1]
        assert "simulated" in request.text and not rubbish(request.text)
    assert [a.last for a in requests[:-1]] == [b.began for b in requests[1:]]


async def test_noise_is_about_one_percent_and_no_two_runs_are_alike() -> None:
    requests, _ = await run(demo_machine(), 200)
    times = [t for r in requests if (t := tpot(r)) is not None]
    assert 0.005 < statistics.stdev(times) / statistics.mean(times) < 0.015
    other, _ = await run(demo_machine(), 200, nonce="other ")
    again, _ = await run(demo_machine(), 200)
    assert again == requests and other != requests


def numa(machine: SimulatedMachine) -> None:
    machine.write("/proc/sys/kernel/numa_balancing", "0")


def held(machine: SimulatedMachine) -> None:
    machine.files["/dev/cpu_dma_latency"] = (10).to_bytes(4, "little")


def disabled(machine: SimulatedMachine) -> None:
    for cpu in range(256):
        machine.write(f"{CPU}/cpu{cpu}/cpuidle/state2/disable", "1")


def half_disabled(machine: SimulatedMachine) -> None:
    for cpu in range(128):
        machine.write(f"{CPU}/cpu{cpu}/cpuidle/state2/disable", "1")


def powersave(machine: SimulatedMachine) -> None:
    for cpu in range(256):
        machine.write(f"{CPU}/cpufreq/policy{cpu}/scaling_governor", "powersave")


def both(machine: SimulatedMachine) -> None:
    numa(machine)
    held(machine)
    disabled(machine)


def all_offered(machine: SimulatedMachine) -> None:
    both(machine)
    machine.write("/proc/sys/kernel/nmi_watchdog", "0")


def nothing(machine: SimulatedMachine) -> None:
    machine.write("/proc/sys/vm/swappiness", "10")
    machine.write("/proc/sys/vm/dirty_ratio", "10")


@pytest.mark.parametrize(
    ("change", "factor"),
    [
        (nothing, 1.0),
        (numa, 0.982),
        (held, 0.991),
        (disabled, 0.991),
        (half_disabled, 0.9955),
        (both, 0.982 * 0.991),
        (all_offered, 0.982 * 0.991 * 0.995),
        (powersave, 1.06),
    ],
)
async def test_the_machines_state_counts(
    change: Callable[[SimulatedMachine], None], factor: float
) -> None:
    machine = demo_machine()
    assert seconds_per_token(machine) == pytest.approx(UNTOUCHED)
    change(machine)
    assert seconds_per_token(machine) == pytest.approx(UNTOUCHED * factor)
    requests, _ = await run(machine, 200)
    assert middle(requests) == pytest.approx(UNTOUCHED * factor, rel=0.004)


async def test_the_state_is_read_anew_for_each_job() -> None:
    machine = demo_machine()
    beside = SimulatedBeside(machine, ENGINE)
    before, _ = await beside.job(bodies(100), 1)
    powersave(machine)
    after, _ = await beside.job(bodies(100), 1)
    assert middle(after) / middle(before) == pytest.approx(1.06, rel=0.01)


def test_effects_are_modest_and_every_file_is_there() -> None:
    machine = demo_machine()
    for effect in demo_engine().effects:
        assert abs(effect.change) <= 0.06
        for one in effect.any:
            near = [p for p in machine.files if p.startswith(one.path.split("*")[0])]
            assert near, one.path
    gains = sum(e.change for e in demo_engine().effects if e.change < 0)
    assert -0.05 < gains < 0


@pytest.mark.parametrize(("streams", "rate"), [(1, 10.5), (10, 66.0), (256, 719.0)])
async def test_streams_share_the_machine(streams: int, rate: float) -> None:
    requests, _ = await run(demo_machine(), streams, streams, 32)
    assert {r.began for r in requests} == {0.0}
    assert streams / middle(requests) == pytest.approx(rate, rel=0.02)


async def test_no_stream_takes_two_requests_at_a_time() -> None:
    requests, wall = await run(demo_machine(), 9, 4, 16)
    for at in (0.1, 1.0, 2.0, 3.0):
        assert sum(r.began <= at < r.last for r in requests) <= 4
    assert wall == max(r.last for r in requests)


async def test_pieces_are_told_as_they_come() -> None:
    told: list[tuple[float, int]] = []
    requests, wall = await SimulatedBeside(demo_machine(), ENGINE).job(
        bodies(2, 64), 1, lambda at, pieces: told.append((at, pieces))
    )
    assert told == sorted(told) and told[-1] == (wall, 128)
    assert all(b[0] - a[0] <= 0.2501 for a, b in zip(told, told[1:], strict=False))


async def test_it_waits_only_where_it_is_paced() -> None:
    loop = asyncio.get_running_loop()
    slow = asyncio.create_task(SimulatedBeside(demo_machine(), ENGINE, paced=1.0).job(bodies(9), 1))
    begun = loop.time()
    await run(demo_machine(), 9)
    assert not slow.done()
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    assert loop.time() - begun < 30  # of 111 simulated seconds
    begun = loop.time()
    _, wall = await SimulatedBeside(demo_machine(), ENGINE, paced=0.01).job(bodies(1), 1)
    assert loop.time() - begun >= wall / 100 - 0.005


async def test_a_request_beyond_its_limit_has_failed() -> None:
    (request,), wall = await SimulatedBeside(demo_machine(), ENGINE).job(
        bodies(1), 1, request_seconds=5.0
    )
    assert request.failure is not None and request.failure.kind == "slow"
    assert wall == 5.0 and 0 < len(request.times) < 128


@pytest.mark.parametrize("streams", [0, 1, 8])
async def test_no_bodies_are_no_requests(streams: int) -> None:
    assert await SimulatedBeside(demo_machine(), ENGINE).job([], streams) == ((), 0.0)


async def test_only_what_is_simulated_is_simulated() -> None:
    target = SimulatedTarget(demo_machine(), NO_WAIT)
    async with open_simulated(target, ENGINE) as beside:
        assert beside.path == "simulated"
    with pytest.raises(Refusal):
        async with open_simulated(target, Serving("SGLang", "", "glm-5")):
            pass
