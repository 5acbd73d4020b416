"""The conditions under which nvidia-smi is started, by real shells in a made-up root."""

import subprocess
from pathlib import Path

import pytest

from gpudoctor.probes.gpu import NVIDIA_SMI_XML

SHELLS = {"dash": ["dash"], "busybox": ["busybox", "sh"], "bash": ["bash"]}
XID = "[1.0] NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus."
OTHER = "[1.0] NVRM: Xid (PCI:0000:01:00): 31, pid=79, MMU Fault"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root where nvidia-smi may run."""
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    process(tmp_path, 7, "(nvidia-smi) S")
    process(tmp_path, 8, "(other) D")
    (tmp_path / "bin").mkdir()
    program(tmp_path, "nvidia-smi", 'echo "started $*"')
    program(tmp_path, "journalctl", "exit 1")
    program(tmp_path, "dmesg", f"echo '{OTHER}'")
    return tmp_path


def process(root: Path, pid: int, state: str) -> None:
    (root / f"proc/{pid}").mkdir(parents=True)
    (root / f"proc/{pid}/stat").write_text(f"{pid} {state} 1 1\n")


def program(root: Path, name: str, text: str) -> None:
    (root / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (root / "bin" / name).chmod(0o755)


def run(root: Path, shell: list[str]) -> tuple[int, str]:
    """Run the probe's own text, its absolute paths moved under the root."""
    text = NVIDIA_SMI_XML.script
    for folder in ("/sys/", "/dev/nvidiactl", "/proc/"):
        assert folder in text
        text = text.replace(folder, f"{root}{folder}")
    done = subprocess.run(
        [*shell, "-c", f"PATH={root}/bin:$PATH; {text}"], capture_output=True, text=True, timeout=20
    )
    return done.returncode, done.stdout.strip()


@pytest.mark.parametrize("shell", SHELLS.values(), ids=SHELLS)
def test_it_runs_where_nothing_speaks_against_it(root: Path, shell: list[str]) -> None:
    assert run(root, shell) == (0, "started -q -x")


@pytest.mark.parametrize("shell", SHELLS.values(), ids=SHELLS)
@pytest.mark.parametrize(
    ("why", "code"),
    [("no node", 120), ("no module", 121), ("one hangs", 122), ("dmesg", 123), ("journal", 123)],
)
def test_it_is_not_started(root: Path, shell: list[str], why: str, code: int) -> None:
    if why == "dmesg" and shell == SHELLS["busybox"]:
        pytest.skip("busybox runs its own dmesg")
    if why == "no node":
        (root / "dev/nvidiactl").unlink()
    elif why == "no module":
        (root / "sys/module/nvidia").rmdir()
    elif why == "one hangs":
        process(root, 9, "(nvidia-smi) D")
    else:
        program(root, {"dmesg": "dmesg", "journal": "journalctl"}[why], f"echo '{XID}'")
    assert run(root, shell) == (code, "")
    assert code in dict(NVIDIA_SMI_XML.meanings)
