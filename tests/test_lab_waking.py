"""The wake-up latency on the lab's real kernel, by its minimal python3: with and without a hold.

An emulated CPU leaves its idle states at once, so that no test here looks at how long it took.
"""

import asyncio
import re

import pytest

from gpudoctor.bench.waking import wake_up
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import LatencyHold
from gpudoctor.model.bench import Witness
from gpudoctor.model.plan import State
from tests.lab_change import applied, cleaned, plan_on, undone
from tests.lab_vm import Lab


def taken(lab: Lab, login: str = "lab") -> Witness:
    return asyncio.run(wake_up(lambda: LiveTarget(lab.transport(login))))


def entered(one: Witness) -> dict[str, int]:
    """Return how often each idle state was entered meanwhile."""
    return {name: int(count) for name, count in re.findall(r"([^:,]+) (\d+)", one.beside)}


@pytest.mark.parametrize("login", ["lab", "lab-ops", "lab-viewer"])
def test_it_is_taken_there_by_anybody(lab: Lab, login: str) -> None:
    one = taken(lab, login)
    assert not one.unknown and len(one.values) >= 50
    assert one.how == "sleeps of 2 ms in python3 on the host, timer slack 1 ns"
    assert sum(entered(one).values()) > 0


def test_it_is_taken_while_the_latency_is_held(lab: Lab) -> None:
    plan = plan_on(lab, (LatencyHold(10),))
    try:
        assert applied(lab, plan) is State.APPLIED
        held = taken(lab)
        assert undone(lab, plan) is State.UNDONE
    finally:
        cleaned(lab)
    free = taken(lab)
    assert free.how == held.how and entered(free).keys() == entered(held).keys()
