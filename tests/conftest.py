"""Fixtures that any test may ask for, and what every test runs under."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli_rig import arguments, machine
from tests.decode_rig import decode_server
from tests.lab_vm import lab, own_lab

__all__ = ["arguments", "decode_server", "lab", "machine", "no_timer_left", "own_lab", "own_state"]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep snapshots and scripts of a test out of the operator's own store."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def no_timer_left(tmp_path: Path) -> Iterator[None]:
    """End the timers of transactions that a test ran on this machine and did not see through."""
    yield
    for timer in tmp_path.glob("**/run/*.timer"):
        with suppress(OSError, ValueError):
            os.killpg(int(timer.read_text()), signal.SIGKILL)
