"""The real decode server on the lab VM and in its container, as units of their own systemd."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpudoctor.formats.prometheus import totals
from tests.decode_rig import SERVER, running_decode_server
from tests.lab_own import HOME, PYTHON, interpreter, removed, sent
from tests.lab_vm import Lab

PROGRAM = f"{HOME}/bin/llama-server"
_ROOTFS = "/var/lib/lxc/gpu/rootfs"
_MODEL = "tiny-2.gguf"
_UNIT = "decode-server"
_INSIDE = "lxc-attach -n gpu -- "
_LINK = "/usr/local/bin/python3"
_ENVIRONMENT = {
    "PYTHONPATH": HOME,
    "DECODE_SERVER_HOME": HOME,
    "LD_LIBRARY_PATH": f"{HOME}/lib",
}


@dataclass(frozen=True)
class LabServer:
    """A running server: its address in its own network, and its pid as the host sees it."""

    lab: Lab
    url: str
    pid: int
    key: str

    def counter(self, name: str) -> float:
        """Return one of the server's own counters; it runs on the host."""
        text = (
            "import sys, urllib.request as ask; to, key = sys.argv[1:]; "
            "asked = ask.Request(to, headers={'Authorization': 'Bearer ' + key}); "
            "print(ask.urlopen(asked).read().decode())"
        )
        words = [PYTHON, "-c", text, f"{self.url}/metrics", self.key]
        return totals(self.lab.run(shlex.join(words)))[f"llamacpp:{name}"]


def until(condition: str) -> str:
    """Return sh text that ends once a condition holds, and fails where it never does."""
    return f"for n in $(seq 300); do {condition} && break; sleep 0.1; done; {condition}"


def serving_installed(lab: Lab) -> None:
    """Copy this Python, the server and its model to the VM and, as hard links, its container.

    Skips where they cannot be had here, or do not run there; fails in CI.
    """
    with running_decode_server():  # makes the environment and the model where there are none
        home = _decode_server_home()
    interpreter(lab)
    (package,) = home.glob("venv/lib/python*/site-packages/xllamacpp")
    sent(lab, package.parent, [package.name], "--exclude=__pycache__")
    openmp = _openmp(package)
    sent(lab, openmp.parent, [openmp.name], "--transform=s:^:lib/:", "-h")
    sent(lab, home, [_MODEL])
    sent(lab, SERVER, ["serve.py"])
    lab.run(
        f"ln -s {Path(PYTHON).name} {PROGRAM}; mkdir -p {_ROOTFS}/opt; "
        f"cp -al {HOME} {_ROOTFS}{HOME}"
    )


def _openmp(package: Path) -> Path:
    """Return the OpenMP library that the server loads here; the lab has none."""
    (binary,) = package.glob("*.so")
    told = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout
    return Path(re.findall(r"libgomp\S* => (\S+)", told)[0])


def _decode_server_home() -> Path:
    """Return where start.sh has put the environment."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Path(os.environ.get("DECODE_SERVER_HOME") or cache / "decode-server")


def serving_removed(lab: Lab) -> None:
    """Take all of it away, in the container too."""
    lab.run(f"rm -rf {_ROOTFS}{HOME}")
    removed(lab)


@contextmanager
def whole_python(lab: Lab) -> Iterator[None]:
    """Let the host's python3 be a whole one; the lab's own lacks most of its library."""
    lab.run(f"ln -s {PYTHON} {_LINK}")
    try:
        yield
    finally:
        lab.run(f"rm {_LINK}")


@contextmanager
def serving(lab: Lab, *options: str, key: str = "", contained: bool = False) -> Iterator[LabServer]:
    """Start the server on a free port of the host's loopback, or of its container's, and end it."""
    attach, root = (_INSIDE, _ROOTFS) if contained else ("", "")
    words = [*options, "--api-key", key] if key else [*options]
    out = f"{HOME}/{_UNIT}.out"
    run = _unit(_UNIT, out, [PROGRAM, f"{HOME}/serve.py", *words])
    try:
        ready = lab.run(
            f"rm -f {root}{out}; {attach}{run}; {until(f'grep -qs READY {root}{out}')}; "
            f"sed -n 's/^READY \\([^ ]*\\).*/\\1/p' {root}{out}; {_pid_of(root or '/')}"
        ).split()
        yield LabServer(lab, ready[0], int(ready[1]), key)
    finally:
        lab.run(f"{attach}systemctl stop {_UNIT} 2>/dev/null || :")


def _pid_of(root: str) -> str:
    """Return sh text that prints the pid of the server whose root directory this is."""
    mine = "$(stat -Lc %d:%i /proc/$p/root)"
    return (
        f'for p in $(pgrep -x llama-server); do [ "{mine}" = "$(stat -c %d:%i {root})" ] && '
        "echo $p; done; :"
    )


def _unit(name: str, out: str, words: list[str]) -> str:
    """Return the command that starts a unit; it outlives the login that starts it."""
    settings = [f"-E{name}={value}" for name, value in _ENVIRONMENT.items()]
    output = f"StandardOutput=file:{out}"
    return shlex.join(
        ["systemd-run", "-q", "--collect", f"--unit={name}", *settings, "-p", output, *words]
    )
