"""The wake-up latency: taken for real on this machine, and read from every kind of output."""

import ast
import asyncio
import subprocess
from pathlib import Path

import pytest

from gpudoctor.bench import wake
from gpudoctor.bench.waking import PROBE, read_wake_up, wake_up
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import Evidence, Reason, Unknown
from gpudoctor.model.error import HostUnreachable

# `cyclictest -q -h`, as rt-tests print it: µs and how many, zeros too.
HISTOGRAM = """\
# /dev/cpu_dma_latency is left alone
# Histogram
000000 000000
000003 000060
000004 000039
000900 000001
# Total: 000000100
# Min Latencies: 00003
# Histogram Overflows: 00000
"""


def said(stdout: str, stderr: str = "", problem: Unknown | None = None) -> Evidence:
    return Evidence(PROBE.key, stdout=stdout.encode(), stderr=stderr, exit=0, problem=problem)


def test_it_is_taken_here() -> None:
    told = asyncio.run(wake_up(lambda: LiveTarget(LocalTransport())))
    assert not told.unknown and 50 <= len(told.values) <= wake.COUNT
    assert min(told.values) >= 0 and told.unit == "µs"
    assert told.how == "sleeps of 2 ms in python3 on the host, timer slack 1 ns"


def test_what_is_sent_needs_no_more_than_a_minimal_python() -> None:
    tree = ast.parse(Path(wake.__file__).read_text())
    names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    modules = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert {*names, *modules} == {"__future__", "os", "sys", "time"}
    assert Path(wake.__file__).read_text().isascii() and "\n" not in PROBE.script


@pytest.mark.parametrize("there", [True, False])
def test_without_python_cyclictest_takes_it(there: bool, tmp_path: Path) -> None:
    """Only a stand-in lies in the PATH; it shows what it was asked for."""
    if there:
        tool = tmp_path / "cyclictest"
        tool.write_text(f"#!/bin/sh\necho asked $*\n/bin/cat <<'X'\n{HISTOGRAM}X\n")
        tool.chmod(0o755)
    ran = subprocess.run(
        ["/bin/sh", "-c", PROBE.script], env={"PATH": str(tmp_path)}, capture_output=True
    )
    if not there:
        assert ran.returncode == PROBE.meanings[0][0]
        return
    assert b"--default-system" in ran.stdout and b"-i 2000 -l 400" in ran.stdout
    told = read_wake_up(said(ran.stdout.decode()))
    assert sorted(told.values) == [3.0] * 60 + [4.0] * 39 + [900.0]
    assert told.how.startswith("sleeps of 2 ms in cyclictest on the host, timer slack unknown")


GOOD = "by python 3.11.2\nslack 1\nns " + "58000 " * 100 + "\nidle 7 C1\nidle 90 C2\n"


def test_the_idle_states_entered_meanwhile_are_told() -> None:
    told = read_wake_up(said(GOOD))
    assert told.values == (58.0,) * 100
    assert told.beside == "idle states entered meanwhile on all CPUs: C1 7, C2 90"


@pytest.mark.parametrize(
    ("slack", "says"),
    [
        ("slack 50000", "timer slack 50 µs, which is inside"),
        ("slack", "unknown (50 µs by default)"),
    ],
)
def test_a_timer_slack_that_stayed_is_told(slack: str, says: str) -> None:
    assert says in read_wake_up(said(GOOD.replace("slack 1", slack))).how


@pytest.mark.parametrize(
    ("stdout", "why"),
    [
        ("", "cannot be read"),
        ("hello\n", "cannot be read"),
        ("by python 3.11\nns 1 2 x\n", "cannot be read"),
        ("by python 3.11\nns 1 2 3\n", "too few sleeps came of it (3 sleeps in 1.6 s)"),
        ("by cyclictest\nunrecognized option\n", "too few sleeps"),
        ("by cyclictest\n000001 999999999\n", "more sleeps than were asked for"),
    ],
)
def test_what_cannot_be_read_is_unknown_with_its_reason(stdout: str, why: str) -> None:
    told = read_wake_up(said(stdout))
    assert why in told.unknown and not told.values


def test_a_complaint_is_passed_on_in_one_line() -> None:
    told = read_wake_up(said("by cyclictest\n", stderr="FATAL:\nno timers"))
    assert told.unknown == "too few sleeps came of it (FATAL: no timers)"


def test_a_host_that_is_not_reached_is_unknown() -> None:
    class Gone(LocalTransport):
        async def connect(self) -> None:
            raise HostUnreachable("gone")

    assert asyncio.run(wake_up(lambda: LiveTarget(Gone()))).unknown == "gone"
    missing = Unknown(Reason.TOOL_MISSING, "no python3")
    assert read_wake_up(said("", problem=missing)).unknown == "tool-missing: no python3"


def test_the_demo_has_nothing_that_wakes() -> None:
    told = asyncio.run(wake_up(lambda: SimulatedTarget(demo_machine(), NO_WAIT)))
    assert "simulated" in told.unknown
