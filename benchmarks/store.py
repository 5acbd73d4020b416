"""How long the store takes: 1000 snapshots listed (budget 0.5 s), one written (0.2 s).

Run: python benchmarks/store.py. The snapshots are the demo host's, 8 GPUs; the best of several
runs is printed. What writing takes on disk (fsync) depends on the machine, so it is told apart.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gpudoctor.audit import run_audit
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.model.snapshot import Kind
from gpudoctor.recording import dump
from gpudoctor.snapshots.catalog import all_heads
from gpudoctor.snapshots.notes import set_note
from gpudoctor.snapshots.store import save

RUNS, SNAPSHOTS, NOTES = 5, 1000, 100


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
    result = asyncio.run(run_audit(SimulatedTarget(demo_machine(), NO_WAIT)))
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        making = best(lambda: dump(result, Kind.MANUAL))
        writing = best(lambda: save(result, Kind.MANUAL))
        folder = save(result, Kind.MANUAL).parent
        for number in range(SNAPSHOTS - len(list(folder.iterdir()))):
            Path(folder, f"{number}.toml").write_bytes(dump(result, Kind.MANUAL))
        for head in all_heads()[0][:NOTES]:
            set_note(head, "a note")
        listing = best(all_heads)
        found, unreadable = all_heads()
        assert len(found) == SNAPSHOTS and not unreadable
        size = sum(head.size for head in found) >> 20
    print(f"{SNAPSHOTS} snapshots of 8 GPUs, {size} MiB, {NOTES} notes")
    print(f"list  {listing * 1000:6.1f} ms  (budget 500 ms; each checksum is computed)")
    print(f"write {writing * 1000:6.1f} ms  (budget 200 ms; {making * 1000:.1f} ms to make it)")


if __name__ == "__main__":
    main()
