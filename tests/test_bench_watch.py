"""What is seen beside a benchmark, on the demo machine."""

import asyncio

import pytest

from gpudoctor.bench.watch import look, running
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.model.bench import Serving

SERVING = Serving("SGLang", "http://127.0.0.1:30000", "m", started=42)


def test_conditions_and_readings_of_the_demo() -> None:
    seen = asyncio.run(look(SimulatedTarget(demo_machine(), NO_WAIT), SERVING))
    assert seen.conditions.values["GPUs"] == "8" and seen.conditions.fixed == {"GPUs"}
    assert seen.conditions.values["engine start"] == "42"
    assert {"SM clock", "temperature", "power"} <= seen.conditions.readings.keys()
    assert not seen.others


@pytest.mark.parametrize(
    ("metrics", "count"),
    [
        ("vllm:num_requests_running{model=\"m\"} 2.0\n", 2),
        ("sglang:num_running_reqs 0\n", 0),
        ("llamacpp:requests_processing 1\n", 1),
        ("process_cpu_seconds_total 3\n", None),
        ("", None),
    ],
)  # fmt: skip
def test_requests_that_an_engine_is_answering(metrics: str, count: int | None) -> None:
    assert running(metrics) == count
