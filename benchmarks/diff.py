"""How long a diff takes: two full 8-GPU snapshots, from their files (budget 0.3 s).

Run: python benchmarks/diff.py. Clocks are noisy; the best of several runs is printed, and the share
of each part, which is what to compare between two versions. The process's start is not counted.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gpudoctor.audit import run_audit
from gpudoctor.comparing import compared
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.recording import dump
from gpudoctor.report_diff import plain
from gpudoctor.snapshots.diff import diff

RUNS = 7
GOVERNOR = "/scaling_governor"


def best(what: Callable[[], object]) -> float:
    """Return the shortest of several runs, in seconds."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        what()
        times.append(time.perf_counter() - start)
    return min(times)


def keep(host: SimulatedMachine, path: Path) -> Path:
    """Write an audit of a host as a file."""
    path.write_bytes(dump(asyncio.run(run_audit(SimulatedTarget(host, NO_WAIT)))))
    return path


def changed() -> SimulatedMachine:
    """Return the demo host with another governor on all CPUs, another kernel and fewer lanes."""
    host = demo_machine()
    governors = [path for path in host.files if path.endswith(GOVERNOR)]
    host.files |= dict.fromkeys(governors, b"schedutil\n")
    host.files["/proc/sys/kernel/osrelease"] = b"6.8.12-18-pve\n"
    host.files["/sys/bus/pci/devices/0000:41:00.0/current_link_width"] = b"8\n"
    return host


def main() -> None:
    """Print the times."""
    with tempfile.TemporaryDirectory() as folder:
        old = keep(demo_machine(), Path(folder) / "old.toml")
        new = keep(changed(), Path(folder) / "new.toml")
        reading = best(lambda: (compared(old), compared(new)))
        sides = compared(old), compared(new)
        comparing = best(lambda: plain(diff(*sides)))
    total = reading + comparing
    print(f"two snapshots, 8 GPUs, 256 CPUs, {len(sides[0].values)} values each")
    print(f"read both  {reading * 1000:6.1f} ms  {reading / total:4.0%}")
    print(f"compare    {comparing * 1000:6.1f} ms  {comparing / total:4.0%}")
    print(f"total      {total * 1000:6.1f} ms  (budget 300 ms)")


if __name__ == "__main__":
    main()
