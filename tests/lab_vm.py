"""The lab VM as a fixture: a real Linux host over real SSH, one for a whole test run.

Its image lies in $GPUDOCTOR_LAB or in .lab/ (built by tests/lab/build.sh). Without one the tests
are skipped, saying so; with CI=true that is a failure.
"""

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpudoctor.hosts.local import LocalChannel, LocalTransport

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "tests" / "lab"


class LabTransport(LocalTransport):
    """The ssh client of this machine as a transport, for one user of the lab."""

    def __init__(self, config: Path, login: str, options: Sequence[str] = ()) -> None:
        """Take the ssh_config that run.sh wrote, the host name in it, and more options."""
        self.label = login
        self._command = shlex.join(["ssh", "-F", str(config), *options, login])

    async def open(self, command: str) -> LocalChannel:
        """Start a command line of the login shell there."""
        return await super().open(f"exec {self._command} {shlex.quote(command)}")


@dataclass(frozen=True)
class Lab:
    """A running VM; `config` names its users: lab (root), lab-ops (sudo), lab-viewer."""

    config: Path

    def run(self, command: str, login: str = "lab", seconds: float = 90) -> str:
        """Return what a command prints there, within so many seconds. Raises where it fails."""
        line = ["ssh", "-F", str(self.config), *self._shared, login, command]
        return subprocess.run(
            line, check=True, capture_output=True, text=True, timeout=seconds
        ).stdout.strip()

    def settle(self) -> None:
        """Wait until a boot is through and its container runs, as it was when the tests began."""
        self.run(
            "systemctl is-system-running --wait; lxc-wait -n gpu -s RUNNING -t 120; "
            "for n in $(seq 60); do lxc-attach -n gpu -- systemctl is-system-running && break; "
            "sleep 1; done",
            seconds=300,
        )

    def transport(self, login: str = "lab", shared: bool = False) -> LabTransport:
        """Return a transport of its own connection, or one over the connection that `run` uses."""
        return LabTransport(self.config, login, self._shared if shared else ())

    def leave(self) -> None:
        """End the shared connections."""
        for login in ("lab", "lab-ops", "lab-viewer"):
            line = ["ssh", "-F", str(self.config), *self._shared, "-O", "exit", login]
            subprocess.run(line, capture_output=True, timeout=20)

    @property
    def _shared(self) -> list[str]:
        """Return ssh's options for one connection a login: emulated, a key exchange takes long."""
        socket = f"ControlPath={self.config.parent}/%n.ssh"
        return ["-o", "ControlMaster=auto", "-o", socket, "-o", "ControlPersist=yes"]


def image() -> Path | None:
    """Return the folder of the built image, where there is one."""
    image = Path(os.environ.get("GPUDOCTOR_LAB") or ROOT / ".lab")
    return image if (image / "disk.qcow2").exists() else None


@contextmanager
def started(run: Path, **env: str) -> Iterator[Lab]:
    """Give a VM of one's own, started in a folder with options of run.sh, and stop it."""
    found = image()
    if found is None:
        why = "no lab image: build one with tests/lab/build.sh .lab, or name it in $GPUDOCTOR_LAB"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    made = subprocess.run(
        [SCRIPTS / "run.sh", found, run],
        capture_output=True,
        text=True,
        timeout=400,
        env=os.environ | env,
    )
    if made.returncode:
        pytest.fail(f"the lab VM did not start: {made.stderr[-2000:]}")
    vm = Lab(run / "ssh_config")
    try:
        yield vm
        vm.leave()
    finally:
        subprocess.run([SCRIPTS / "stop.sh", run], capture_output=True, timeout=60)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Give the VM that all share (started in about 10 s) until the last test."""
    with started(tmp_path_factory.mktemp("lab")) as vm:
        yield vm


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    """Give a VM of the test's own, which it may reboot or spoil."""
    run = tmp_path / "own-lab"
    run.mkdir()
    with started(run) as vm:
        yield vm
