"""How long judging takes: the demo host's recording, loaded and judged whole (budget 0.3 s).

Run: python benchmarks/judging.py. Clocks are noisy; the best of several runs is printed, and the
share of each part, which is what to compare between two versions.
"""

import asyncio
import time
from collections.abc import Callable

from gpudoctor.audit import run_audit
from gpudoctor.hosts.recorded import RecordedTarget
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.recording import dump, load

RUNS = 7


def best(what: Callable[[], object]) -> float:
    """Return the shortest of several runs, in seconds."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        what()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print the times."""
    raw = dump(asyncio.run(run_audit(SimulatedTarget(demo_machine(), NO_WAIT))))
    kept = load(raw)

    def judged() -> object:
        target = RecordedTarget(kept.label, kept.sides, kept.container, kept.simulated)
        return asyncio.run(run_audit(target))

    loading, judging = best(lambda: load(raw)), best(judged)
    total = loading + judging
    print(f"recording {len(raw) / 1024:.0f} KiB, 8 GPUs, 256 CPUs")
    print(f"load  {loading * 1000:6.1f} ms  {loading / total:4.0%}")
    print(f"judge {judging * 1000:6.1f} ms  {judging / total:4.0%}")
    print(f"total {total * 1000:6.1f} ms  (budget 300 ms)")


if __name__ == "__main__":
    main()
