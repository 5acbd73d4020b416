"""Command lines on a simulated machine whose findings a test makes up, and on a terminal."""

import argparse
import contextlib
import io
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model import Change, Class, Finding, Impact, Panel, Sysctl, Worked, issue
from gpudoctor.model.audited import AuditResult, Identity

CHECK = "kern-numa-balancing"
KNOB = "/proc/sys/kernel/numa_balancing"
SWAP = "/proc/sys/vm/swappiness"
NODE = "/sys/devices/system/node/node"
FILES = {
    KNOB: "1\n",
    SWAP: "60\n",
    "/proc/sys/kernel/hostname": "gpu1\n",
    "/proc/sys/kernel/random/boot_id": "0b00\n",
    f"{NODE}0/cpulist": "0-63\n",
    f"{NODE}0/meminfo": "Node 0 MemTotal:       792000000 kB\n",
    f"{NODE}1/cpulist": "64-127\n",
    f"{NODE}1/meminfo": "Node 1 MemTotal:       792000000 kB\n",
}
NUMA = Sysctl("kernel.numa_balancing", "0")
RISKY = Sysctl("kernel.numa_balancing", "0", risk="medium", caution="it may sting")
BY_HAND = Worked(
    "kernel command line +iommu=pt", ("edit this", "update-grub"), ("edit back",), risk="high"
)
Arguments = Callable[..., argparse.Namespace]


def machine_of(files: dict[str, str] = FILES) -> SimulatedMachine:
    """Return a machine with these files."""
    return SimulatedMachine("gpu1", {path: text.encode() for path, text in files.items()})


def arguments_for(machine: SimulatedMachine) -> Arguments:
    """Return how to make a command line's arguments for it."""

    def made(*checks: str, **more: object) -> argparse.Namespace:
        options: dict[str, object] = {
            "checks": list(checks),
            "yes": True,
            "json": False,
            "shell": False,
            "forget": False,
            "transaction": None,
            "make_target": lambda: SimulatedTarget(machine, NO_WAIT),
        }
        return argparse.Namespace(**(options | more))

    return made


def found(
    monkeypatch: pytest.MonkeyPatch,
    *options: Sequence[Change],
    simulated: bool = True,
    user: str = "root",
) -> None:
    """Let `plan` and `fix` find one issue of CHECK with these alternatives."""
    verdict = issue(
        "x", Class.P0, Impact.LOW, "1", "0", changes=tuple(tuple(option) for option in options)
    )
    finding = Finding(CHECK, Panel.KERNEL_KNOBS, "", "host", verdict, "", "")
    who = Identity("gpu1", "a" * 32, "0b00")
    result = AuditResult("gpu1", user, who, findings=(finding,), simulated=simulated)

    async def audit(*_: object) -> AuditResult:
        return result

    for module in ("cli_fix", "cli_undo", "loop"):
        monkeypatch.setattr(f"gpudoctor.{module}.run_audit", audit)


@dataclass
class Terminal:
    """A Python program on a terminal of its own, and what it has printed there."""

    ours: int
    process: "subprocess.Popen[bytes]"
    said: str = ""
    read: int = 0

    def until(self, words: str, seconds: float = 40) -> None:
        """Read until the words come after those waited for before; fail where they do not."""
        end = time.monotonic() + seconds
        while words not in self.said[self.read :]:
            left = end - time.monotonic()
            ready = left > 0 and select.select([self.ours], [], [], left)[0]
            assert ready and self._more(), f"{words!r} did not come: {self.said}"
        self.read = self.said.index(words, self.read) + len(words)

    def type(self, text: str) -> None:
        """Type at the terminal."""
        os.write(self.ours, text.encode())

    def end(self) -> int:
        """Read to the end and return the exit code."""
        while self._more():
            pass
        return self.process.wait(timeout=60)

    def _more(self) -> bool:
        with contextlib.suppress(OSError):
            raw = os.read(self.ours, 1 << 16)
            self.said += raw.decode().replace("\r\n", "\n")
            return bool(raw)
        return False


@contextlib.contextmanager
def terminal(program: str, *argv: str, state: Path, term: str = "xterm") -> Iterator[Terminal]:
    """Run a program on a terminal, its state below a folder; it is ended in the end."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program, *argv],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"XDG_STATE_HOME": str(state), "TERM": term},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimulatedMachine:
    """Return a machine to fix, with nobody at the terminal."""
    monkeypatch.delenv("GPUDOCTOR_TRACEBACK", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    return machine_of()


@pytest.fixture
def arguments(machine: SimulatedMachine) -> Arguments:
    """Return how to make a command line's arguments for the machine."""
    return arguments_for(machine)
