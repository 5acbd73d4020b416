"""Slow a process down while files say so: slow_while.py PID (FILE VALUE SHARE)...

It is stopped for a share of every period: the sum (below 1) of the shares of files that hold their
value. Prints which do (1) and do not (0), in order, each time that this changes.
"""

import itertools
import os
import signal
import sys
import time

PERIOD = 0.2


def holds(path: str, value: str) -> bool:
    """Return whether a file holds a value."""
    with open(path) as file:
        return file.read().strip() == value


def main(pid: int, *words: str) -> None:
    """Slow it down until it ends, or a signal ends this."""
    rules = list(zip(*[iter(words)] * 3, strict=True))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    told = None
    begun = time.monotonic()
    for turn in itertools.count(1):
        now = [holds(path, value) for path, value, _ in rules]
        if now != told:
            print("".join(str(int(one)) for one in now), flush=True)
            told = now
        share = sum(float(rule[2]) for rule, held in zip(rules, now, strict=True) if held)
        if share:
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(share * PERIOD)
            finally:
                os.kill(pid, signal.SIGCONT)
        time.sleep(max(0.0, begun + turn * PERIOD - time.monotonic()))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
