"""Make a running server really slower: slow.py PID PERCENT SECONDS [PERIOD_MS=40].

It is stopped for a share of every period: with 5 its times grow by about 5 % for so many seconds.
"""

import os
import signal
import sys
import time

pid, pct, secs = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
period = float(sys.argv[4]) / 1e3 if len(sys.argv) > 4 else 0.04
off = period * pct / (100 + pct)
end = nxt = time.perf_counter()
end += secs
try:
    while time.perf_counter() < end:
        os.kill(pid, signal.SIGSTOP)
        until = time.perf_counter() + off
        while time.perf_counter() < until:
            time.sleep(0.0002)
        os.kill(pid, signal.SIGCONT)
        nxt += period
        time.sleep(max(0.0, nxt - time.perf_counter()))
except ProcessLookupError:
    pass
finally:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass
