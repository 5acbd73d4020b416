"""A Docker daemon of the test's own, with one busybox container; only where CI=true allows it."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

NAME = "gpd-test"


@dataclass(frozen=True)
class Docker:
    """A running daemon: its socket, and the host pid of the container's first process."""

    socket: str
    pid: int


def require_docker() -> None:
    """Skip where nobody allowed a daemon to be started; fail in CI where it cannot be."""
    if os.environ.get("CI") != "true":
        pytest.skip("starts a Docker daemon: only with CI=true in the environment")
    missing = [t for t in ("dockerd", "docker", "busybox", "tar") if shutil.which(t) is None]
    if os.geteuid() != 0:
        missing.append("root")
    if missing:
        pytest.fail(f"CI=true, and this machine lacks {', '.join(missing)}")


@contextmanager
def running_docker(folder: Path) -> Iterator[Docker]:
    """Start the daemon and the container, and take both away again."""
    socket = f"unix://{folder}/sock"
    words = ["dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none"]
    words += ["--storage-driver=vfs", f"--data-root={folder}/data", f"--exec-root={folder}/exec"]
    words += [f"--pidfile={folder}/pid", "-H", socket]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        _wait_for(daemon, socket, folder / "log")
        yield Docker(socket, _container(socket, folder))
    finally:
        subprocess.run(["docker", "-H", socket, "rm", "-f", NAME], capture_output=True, check=False)
        daemon.terminate()
        daemon.wait(20)


def _wait_for(daemon: "subprocess.Popen[bytes]", socket: str, log: Path) -> None:
    end = time.monotonic() + 30
    while daemon.poll() is None and time.monotonic() < end:
        asked = subprocess.run(["docker", "-H", socket, "ps"], capture_output=True, check=False)
        if asked.returncode == 0:
            return
        time.sleep(0.1)
    pytest.fail(f"dockerd did not start: {log.read_text('utf-8', 'replace')[-500:]}")


def _container(socket: str, folder: Path) -> int:
    """Run a container of busybox alone and return its first process's pid on the host."""
    root = folder / "root"
    (root / "bin").mkdir(parents=True)
    busybox = shutil.which("busybox") or ""
    libraries = subprocess.run(["ldd", busybox], capture_output=True, text=True, check=False).stdout
    for library in re.findall(r"/\S+", libraries):
        copy = root / library.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, copy)
    shutil.copy(busybox, root / "bin/busybox")
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout
    for name in names.split():
        if not (root / "bin" / name).exists():
            (root / "bin" / name).symlink_to("busybox")
    docker = ["docker", "-H", socket]
    archive = subprocess.run(["tar", "-C", str(root), "-c", "."], capture_output=True, check=True)
    _run([*docker, "import", "-", "gpd-test:1"], archive.stdout)
    _run([*docker, "run", "-d", "--network=none", f"--name={NAME}", "gpd-test:1", "sleep", "9999"])
    return int(_run([*docker, "inspect", "-f", "{{.State.Pid}}", NAME]))


def _run(words: list[str], data: bytes = b"") -> bytes:
    return subprocess.run(words, input=data, capture_output=True, check=True).stdout
