"""What our client costs beside an engine: CPU and memory of its process at 200 tokens a second.

    python benchmarks/bench_client_cost.py

The engine is the real server of tests/decode_server on the last core, the client on the first. Its
CPU time is that of the ended process (rusage), less that of one which got no job; its memory the
most it ever had (VmHWM). Cost goes with the number of events, so it is scaled to 200 a second for
each stream (budget 1 % of a core for each stream, 50 MB for the process).
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpudoctor.bench.ask import bodies
from gpudoctor.bench.asking import headers
from gpudoctor.bench.sent import python_command
from gpudoctor.model.bench import Serving
from tests.decode_rig import running_decode_server

PACE, BUDGET_CPU, BUDGET_MB = 200.0, 0.01, 50.0
TOKENS, SECONDS, RUNS = 512, 10.0, 3
# Layers with which this many streams get about 200 tokens a second each, of one thread.
LAYERS = {1: 68, 8: 10}
Row = dict[str, Any]


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Start processes on one core meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def client(job: Row | None) -> tuple[list[Row], float, float]:
    """Run one client process; return what it said, its CPU seconds, and its most memory in MB."""
    before = _cpu()
    command = ["sh", "-c", python_command(sys.executable)]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdin and running.stdout
    text = files("gpudoctor.bench").joinpath("client.py").read_bytes()
    running.stdin.write(b"%d\n%b" % (len(text), text))
    running.stdin.flush()
    said = [json.loads(running.stdout.readline())]
    if job is not None:
        running.stdin.write(json.dumps(job).encode() + b"\n")
        running.stdin.flush()
        said += _until_end(running.stdout)
    status = Path(f"/proc/{running.pid}/status").read_text()
    most = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    running.communicate()  # the end of its input ends it
    return said, _cpu() - before, int(most.split()[1]) / 1000


def _cpu() -> float:
    """Return the CPU seconds of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _until_end(output: IO[bytes]) -> Iterator[Row]:
    for line in output:
        row = json.loads(line)
        yield row
        if "end" in row:
            return


def job(url: str, streams: int, pace: float) -> Row:
    """Return a job of about `SECONDS` for each stream, at so many tokens a second."""
    serving = Serving("llama.cpp", url, "tiny")
    rounds = max(1, round(SECONDS * pace / TOKENS))
    return {
        "job": 1,
        "url": url,
        "path": serving.path,
        "headers": headers(""),
        "bodies": bodies(serving, streams * rounds, TOKENS, 1),
        "streams": streams,
        "stall_seconds": 30.0,
        "request_seconds": 600.0,
    }


def pace_of(said: list[Row]) -> tuple[float, int, float]:
    """Return tokens a second of a stream, all tokens, and wall seconds. Raises for a failure."""
    requests = [row for row in said if "request" in row]
    failed = [row["error"] for row in requests if "error" in row]
    if failed:
        raise SystemExit(f"a request failed: {failed[0]}")
    each = [(row["last"] - row["times"][0]) / (row["tokens"] - 1) for row in requests]
    wall = next(row["wall"] for row in said if "end" in row)
    return 1 / median(each), sum(row["tokens"] for row in requests), wall


def measure(streams: int, empty: float, cores: list[int]) -> None:
    """Print what so many streams cost."""
    layers, parallel = str(LAYERS[streams]), str(streams)
    with pinned(cores[-1]):
        server = running_decode_server("--layers", layers, "--parallel", parallel)
        url = server.__enter__().url
    try:
        with pinned(cores[0]):
            pace = pace_of(client(job(url, streams, 0.0))[0])[0]
            runs = [client(job(url, streams, pace)) for _ in range(RUNS)]
    finally:
        server.__exit__(None, None, None)
    costs = []
    for said, cpu, _ in runs:
        pace, tokens, wall = pace_of(said)
        costs.append((cpu - empty) / tokens)
        of_a_core = (cpu - empty) / wall / streams
        print(
            f"  {streams} x {pace:.0f} tok/s for {wall:.0f} s: {of_a_core:.2%} of a core a stream"
        )
    cost, most = median(costs), max(memory for _, _, memory in runs)
    told = f"{1e6 * cost:.0f} us a token, {cost * PACE:.2%} of a core a stream at {PACE:.0f} tok/s"
    print(f"{streams} streams: {told} (budget {BUDGET_CPU:.0%}), {most:.0f} MB ({BUDGET_MB:.0f})")


def main() -> None:
    """Print what one and eight streams cost."""
    cores = sorted(os.sched_getaffinity(0))
    with pinned(cores[0]):
        starts = [client(None) for _ in range(RUNS)]
    empty = median(cpu for _, cpu, _ in starts)
    most = max(memory for _, _, memory in starts)
    print(f"a client without a job: {empty:.3f} s of CPU, once, {most:.0f} MB")
    for streams in LAYERS:
        measure(streams, empty, cores)


if __name__ == "__main__":
    main()
