"""Timed sleeps: sent as text to a host's python3 and run there. Built-in modules only.

It prints by how many nanoseconds each sleep was too long, and how often all CPUs of the host
entered each idle state meanwhile. Python 3.7 or newer.
"""

from __future__ import annotations

import os
import sys
import time

# Longer than the target residency of servers' deep idle states (600 to 1000 microseconds).
SECONDS = 0.002
COUNT = 400
# Not told: the CPU has just run our start, and the kernel predicts idle times from the last ones.
FIRST = 20
# Seconds for all, on a machine that takes longer over each.
MOST = 1.6
CPUS = "/sys/devices/system/cpu"


def read(path: str) -> str:
    """Return a file's text without its newline; empty where it cannot be read."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def entered() -> dict[str, int]:
    """Return how often all CPUs together entered each idle state since boot, by its name."""
    told: dict[str, int] = {}
    for cpu in os.listdir(CPUS):
        folder = f"{CPUS}/{cpu}/cpuidle"
        if cpu[3:].isdigit() and os.path.isdir(folder):
            for state in os.listdir(folder):
                name, usage = read(f"{folder}/{state}/name"), read(f"{folder}/{state}/usage")
                if usage.isdigit():
                    told[name] = told.get(name, 0) + int(usage)
    return told


def sleeps() -> list[float]:
    """Return by how many seconds each sleep was too long."""
    found: list[float] = []
    end = time.monotonic() + MOST
    while len(found) < FIRST + COUNT and time.monotonic() < end:
        begun = time.monotonic()
        time.sleep(SECONDS)
        found.append(time.monotonic() - begun - SECONDS)
    return found[FIRST:]


if __name__ == "__main__":
    BEFORE = entered()
    FOUND = sleeps()
    AFTER = entered()
    print("by python", sys.version.split()[0])
    print("slack", read("/proc/self/timerslack_ns"))
    print("ns", *[round(one * 1e9) for one in FOUND])
    for NAME in sorted(AFTER):
        print("idle", AFTER[NAME] - BEFORE.get(NAME, 0), NAME)
