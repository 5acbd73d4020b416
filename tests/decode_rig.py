"""The real decode server as a fixture, and a target that is this machine."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.target import LiveTarget

_APART = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$0" "$@"')
SERVER = Path(__file__).parent / "decode_server"


@dataclass(frozen=True)
class DecodeServer:
    """A running server."""

    url: str
    pid: int


@contextmanager
def running_decode_server(*options: str, apart: bool = False) -> Iterator[DecodeServer]:
    """Start the server on a free port and end it; skip where it cannot be had, fail in CI.

    `apart`, it has a network of its own, as in a container (as root, and installed before).
    """
    words = [*(_APART if apart else ()), str(SERVER / "start.sh"), *options]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert started.stdout and started.stderr
    try:
        line = started.stdout.readline().decode()
        match = re.fullmatch(r"READY (\S+) pid=(\d+)\n", line)
        if match is None:
            started.kill()
            why = f"the decode server does not start: {started.stderr.read().decode()[-400:]}"
            if os.environ.get("CI") == "true":
                pytest.fail(why)
            pytest.skip(why)
        yield DecodeServer(match[1], int(match[2]))
    finally:
        started.terminate()
        started.communicate()


@pytest.fixture(scope="session")
def decode_server() -> Iterator[DecodeServer]:
    """Give a llama.cpp server that takes milliseconds a token, found by its process's title."""
    with running_decode_server("--title", "llama-server", "--layers", "48") as server:
        yield server


def here() -> LiveTarget:
    """Return this machine as a target."""
    return LiveTarget(LocalTransport())
