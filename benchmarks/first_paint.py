"""Measure exec to first paint: `python benchmarks/first_paint.py [N] [ARGUMENT…]`.

Runs `python -m gpudoctor ARGUMENT…` N times (default 7) on a pseudo-terminal, and prints the time
until the first frame (the bytes of the product's name), in seconds: best, median, budget 0.35.
"""

import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import sys
import termios
import time

BUDGET = 0.35
_LIMIT = 10.0
_MARK = b"gpudoctor"


def first_paint(arguments: list[str], size: tuple[int, int] = (80, 24)) -> tuple[float, float]:
    """Return seconds from exec to the first frame, and CPU seconds. Raises TimeoutError (10 s)."""
    start = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has its bytecode
        os.execv(sys.executable, [sys.executable, "-m", "gpudoctor", *arguments])
    columns, rows = size
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    try:
        _wait_for(terminal, _MARK, start + _LIMIT)
        return time.perf_counter() - start, _cpu_seconds(child)
    finally:
        os.kill(child, signal.SIGTERM)
        os.close(terminal)
        os.waitpid(child, 0)


def _cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wait_for(terminal: int, mark: bytes, deadline: float) -> None:
    seen = b""
    while mark not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.perf_counter()))
        if not ready:
            raise TimeoutError(f"no first frame; the terminal got {seen[-200:]!r}")
        seen += os.read(terminal, 65536)


def main() -> None:
    """Print the best and the median of N runs."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    runs = [first_paint(sys.argv[2:]) for _ in range(number)]
    times = [seconds for seconds, _ in runs]
    best, median = min(times), statistics.median(times)
    print(f"first paint: best {best:.3f} s, median {median:.3f} s of {number}; budget {BUDGET} s")
    print(f"CPU until then: {min(cpu for _, cpu in runs):.2f} s (on a busy machine, compare this)")


if __name__ == "__main__":
    main()
