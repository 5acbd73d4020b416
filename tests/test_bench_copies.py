"""nvbandwidth and nccl-tests: their outputs, as they print them; no GPU is here."""

import asyncio
import os
from pathlib import Path

import pytest

from gpudoctor.bench.copies import bandwidths, collectives, copies
from gpudoctor.cli import main
from gpudoctor.formats.nccl_tests import Collective, parse_collectives
from gpudoctor.formats.nvbandwidth import parse_bandwidths, parse_version
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import Evidence
from gpudoctor.model.bench import Witness
from gpudoctor.model.place import parse_container

OUTPUTS = Path(__file__).parent / "copies"
# output.cpp and inline_common.h of v0.8, two GPUs that reach each other one way only.
BANDWIDTH = (OUTPUTS / "nvbandwidth.txt").read_text()
# src/util.cu of 2.19; rows of older ones have no root.
REDUCE = (OUTPUTS / "all_reduce_perf.txt").read_text()
OLD = (OUTPUTS / "all_reduce_perf_old.txt").read_text()
CORPUS = Path(__file__).parents[1].parent / "shared" / "corpus" / "runtime"


def said(stdout: str, code: int = 0, stderr: str = "") -> Evidence:
    return Evidence("it", stdout=stdout.encode(), stderr=stderr, exit=code)


def by_name(found: tuple[Witness, ...]) -> dict[str, Witness]:
    return {one.name: one for one in found}


def test_copies_are_read_by_pair_and_what_is_none_is_left_out() -> None:
    assert parse_version(BANDWIDTH) == "v0.8"
    assert parse_bandwidths(BANDWIDTH) == {
        "host_to_device_memcpy_ce": {"CPU 0 -> GPU 0": 26.13, "CPU 0 -> GPU 1": 55.7},
        "device_to_host_memcpy_ce": {"CPU 0 <- GPU 0": 57.02, "CPU 0 <- GPU 1": 57.01},
        "device_to_device_memcpy_read_ce": {"GPU 0 -> GPU 1": 53.22},
    }


def test_collectives_are_read_out_of_place_by_their_titles() -> None:
    assert parse_collectives(REDUCE)[0] == Collective(16384, 21.4, 0.77)
    assert [row.bus for row in parse_collectives(REDUCE)] == [0.77, 17.44, 41.88]
    assert parse_collectives(OLD) == (Collective(1024, 36.07, 0.05),)


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not beside the repository")
def test_published_outputs_are_read() -> None:
    log = (CORPUS / "nvbandwidth" / "superbench-nvbandwidth.log").read_text()
    assert parse_version(log) == "v0.6"
    assert parse_bandwidths(log)["device_to_host_memcpy_ce"] == {
        "CPU 0 <- GPU 0": 295.15,
        "CPU 0 <- GPU 1": 312.11,
    }
    log = (CORPUS / "nccl-tests" / "superbench-nccl_allreduce.log").read_text()
    assert parse_collectives(log)[-1] == Collective(8589934592, 63896.0, 235.26)


def test_what_was_waived_is_unknown_and_the_rest_is_told() -> None:
    waived = BANDWIDTH.replace("Running device_to_device_memcpy_read_ce.", "Waived: ")
    found = by_name(bandwidths(said(waived), "on the host"))
    assert "waived" in found["device_to_device_memcpy_read_ce"].unknown
    one = found["host_to_device_memcpy_ce"]
    assert one.values == (26.13, 55.7) and one.labels == ("CPU 0 -> GPU 0", "CPU 0 -> GPU 1")
    assert one.how == "nvbandwidth v0.8 on the host, copies of 64 MiB" and one.unit == "GB/s"


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (said("x\n[CUDA_ERROR_OUT_OF_MEMORY] out of memory in expression\n", 1), "OUT_OF_MEMORY"),
        (said("", 1, "no CUDA-capable device is detected"), "no CUDA-capable device"),
        (said("Running host_to_device_memcpy_ce.\n"), "no line names its version"),
        (said("nvbandwidth Version: v0.8\n"), "waived it, or it failed"),
        (said(BANDWIDTH.replace("26.13", "nan").replace("55.70", "1e9")), "waived it"),
    ],
)
def test_a_run_without_copies_is_unknown_with_its_reason(evidence: Evidence, why: str) -> None:
    first = bandwidths(evidence, "on the host")[0]
    assert why in first.unknown and not first.values


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (said("out of memory\n", 3), "it failed: out of memory"),
        (said("# nothing\n"), "printed no results: # nothing"),
        (said(REDUCE.replace("21.40", "x")), "'x' stands where a number belongs"),
        (said(REDUCE.replace("0.77     N/A    21.02", "inf")), "'inf' stands"),
    ],
)
def test_a_collective_that_failed_is_unknown(evidence: Evidence, why: str) -> None:
    (one,) = collectives(evidence, "on the host")
    assert why in one.unknown


def test_times_and_bandwidths_of_collectives_by_size() -> None:
    time, bus = collectives(said(REDUCE), "in the engine's container")
    assert time.labels == bus.labels == ("16 KiB", "1 MiB", "64 MiB")
    assert (time.values[0], time.unit) == (21.4, "µs") and bus.values[2] == 41.88
    assert bus.how == "all_reduce_perf in the engine's container, out of place"


def stand_in(folder: Path, name: str, output: str) -> None:
    """Put a tool in a folder: it prints an output, and what it was asked for as its last line."""
    (folder / f"{name}.txt").write_text(output)
    tool = folder / name
    tool.write_text(f'#!/bin/sh\n[ -t 0 ] && exit 9\ncat {tool}.txt\necho "asked: $*"\n')
    tool.chmod(0o755)


def test_tools_are_asked_for_little_on_every_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stand-ins at the end of the PATH, over a real session; no container of that name is here."""
    stand_in(tmp_path, "nvbandwidth", BANDWIDTH)
    stand_in(tmp_path, "all_reduce_perf", "nothing")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tmp_path}")
    ref = parse_container("docker:none-of-that-name")
    found = by_name(asyncio.run(copies(lambda: LiveTarget(LocalTransport()), ref, 2)))
    assert found["host_to_device_memcpy_ce"].how.endswith("on the host, copies of 64 MiB")
    asked = found["all_reduce bus bandwidth"].unknown
    assert "asked: -b 16K -e 64M -f 64 -g 2 -c 0" in asked


def test_what_is_not_there_is_unknown() -> None:
    found = by_name(asyncio.run(copies(lambda: LiveTarget(LocalTransport()), None, 1)))
    assert "nvbandwidth is not installed there" in found["device_to_host_memcpy_ce"].unknown
    assert "fewer than two GPUs" in found["all_reduce bus bandwidth"].unknown


def test_the_demo_copies_nothing() -> None:
    target = SimulatedTarget(demo_machine(), NO_WAIT)
    found = asyncio.run(copies(lambda: target, None, 8))
    assert len(found) == 4 and all("simulated" in one.unknown for one in found)


def test_only_the_option_runs_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--demo", "--streams", "1"]) == 0
    assert "all_reduce" not in capsys.readouterr().out
    assert main(["bench", "--demo", "--streams", "1", "--copies"]) == 0
    told = capsys.readouterr().out
    assert "wake-up latency: unknown" in told and "all_reduce bus bandwidth: unknown" in told
