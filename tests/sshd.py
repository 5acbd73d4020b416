"""A real OpenSSH server on loopback, with users of its own; only where CI=true allows it."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

OPS, PW, VIEWER = "gpd-ops", "gpd-pw", "gpd-viewer"
_SUDOERS = Path("/etc/sudoers.d/gpd-test")
_RULES = f"{OPS} ALL=(ALL) NOPASSWD: ALL\n{PW} ALL=(ALL) ALL\n"


@dataclass
class Sshd:
    """A running sshd; `passwords` are those of the users made for it."""

    folder: Path
    port: int
    process: "subprocess.Popen[bytes]"
    passwords: dict[str, str] = field(default_factory=dict)

    def config(self, user: str, port: int | None = None) -> Path:
        """Write the client's configuration for a user, through another port if given."""
        path = self.folder / f"config-{user}-{port or self.port}"
        path.write_text(
            f"Host target\n HostName 127.0.0.1\n Port {port or self.port}\n User {user}\n"
            f" HostKeyAlias gpd-test\n UserKnownHostsFile {self.folder}/known_hosts\n"
            f" IdentityFile {self.folder}/id\n IdentitiesOnly yes\n"
        )
        return path

    def log(self) -> str:
        """Return what the server logged so far."""
        return (self.folder / "log").read_text("utf-8", "replace")

    def sessions(self) -> list[int]:
        """Return the pids of the server's processes that serve a connection."""
        return [pid for pid in _descendants(self.process.pid) if _name(pid) == "sshd"]


def require_ci() -> None:
    """Skip where nobody allowed users and servers to be made; fail in CI where they cannot be."""
    if os.environ.get("CI") != "true":
        pytest.skip("makes users and starts an sshd: only with CI=true in the environment")
    missing = [t for t in ("useradd", "sudo", "ssh-keygen") if shutil.which(t) is None]
    if not Path("/usr/sbin/sshd").exists():
        missing.append("sshd")
    if os.geteuid() != 0:
        missing.append("root")
    if missing:
        pytest.fail(f"CI=true, and this machine lacks {', '.join(missing)}")


@contextmanager
def running_sshd(folder: Path) -> Iterator[Sshd]:
    """Make the users, start the server on a free port, and take all of it away again."""
    for name in ("host", "id"):
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name))
    passwords = {user: _make_user(user, folder / "id.pub") for user in (OPS, PW, VIEWER)}
    _SUDOERS.write_text(_RULES)
    _SUDOERS.chmod(0o440)
    made = not Path("/run/sshd").exists()
    Path("/run/sshd").mkdir(exist_ok=True)
    server = _start(folder)
    server.passwords = passwords
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait(10)
        _SUDOERS.unlink(missing_ok=True)
        for user in passwords:
            subprocess.run(["userdel", "-rf", user], capture_output=True, check=False)
        if made:
            shutil.rmtree("/run/sshd", ignore_errors=True)


@contextmanager
def sudoers(extra: str) -> Iterator[None]:
    """Add a line to our sudoers file for a while."""
    _SUDOERS.write_text(f"{extra}\n{_RULES}")
    try:
        yield
    finally:
        _SUDOERS.write_text(_RULES)


@contextmanager
def login_shell(user: str, shell: str, rc: str, text: str) -> Iterator[None]:
    """Give a user a login shell and a start-up file for a while."""
    found = shutil.which(shell)
    if found is None:
        pytest.fail(f"CI=true, and this machine lacks {shell}")
    path = Path(f"/home/{user}") / rc
    path.parent.mkdir(parents=True, exist_ok=True)
    old = path.read_text() if path.exists() else None
    path.write_text(text)
    _run("usermod", "-s", found, user)
    try:
        yield
    finally:
        _run("usermod", "-s", "/bin/bash", user)
        path.write_text(old) if old is not None else path.unlink()


def _start(folder: Path) -> Sshd:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    (folder / "authorized").write_bytes((folder / "id.pub").read_bytes())
    key = (folder / "host.pub").read_text().split()
    (folder / "known_hosts").write_text(f"gpd-test {key[0]} {key[1]}\n")
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile .ssh/authorized_keys {folder}/authorized\nStrictModes no\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\n"
        "LogLevel VERBOSE\nMaxStartups 100\n"
    )
    words = ["/usr/sbin/sshd", "-D", "-f", str(folder / "sshd_config"), "-E", str(folder / "log")]
    server = Sshd(folder, port, subprocess.Popen(words))
    _wait_for_port(port)
    return server


def _wait_for_port(port: int) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    pytest.fail("sshd did not start")


def _make_user(user: str, public_key: Path) -> str:
    subprocess.run(["userdel", "-rf", user], capture_output=True, check=False)
    _run("useradd", "-m", "-s", "/bin/bash", user)
    password = secrets.token_hex(12)
    subprocess.run(["chpasswd"], input=f"{user}:{password}".encode(), check=True)
    keys = Path(f"/home/{user}/.ssh/authorized_keys")
    keys.parent.mkdir(exist_ok=True)
    keys.write_bytes(public_key.read_bytes())
    _run("chown", "-R", user, str(keys.parent))
    return password


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and _parent(int(folder.name)) == pid:
            found += [int(folder.name), *_descendants(int(folder.name))]
    return found


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
