"""Host keys that the operator has accepted: known_hosts files as OpenSSH reads them."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.model.error import Refusal, UnknownHostKey

if TYPE_CHECKING:
    from asyncssh import SSHKey
    from asyncssh.known_hosts import SSHKnownHosts

USER_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
GLOBAL_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_SSH_PORT = 22
Matches = tuple[Sequence[object], ...]


@dataclass(frozen=True, slots=True)
class KnownHosts:
    """The lines of some known_hosts files, in order, with where each stands."""

    lines: tuple[tuple[Path, int, str], ...]

    def trusted(self, name: str) -> Matches:
        """Return what asyncssh wants: host, CA and revoked keys (and X.509) known for a name."""
        return tuple(self._all().match(name, "", None))

    def keys(self, name: str) -> "list[SSHKey]":
        """Return the host keys known for a name."""
        return list(self._all().match(name, "", None)[0])

    def where(self, name: str) -> str:
        """Return file and line of the first key known for a name; empty where there is none."""
        for path, number, line in self.lines:
            if _parsed([line]).match(name, "", None)[0]:
                return f"{path}:{number}"
        return ""

    def _all(self) -> "SSHKnownHosts":
        return _parsed(line for _, _, line in self.lines)


def _parsed(lines: Iterable[str]) -> "SSHKnownHosts":
    """Parse lines; a damaged one is skipped, as OpenSSH does, instead of failing them all."""
    from asyncssh import import_known_hosts

    kept = list(lines)
    try:
        return import_known_hosts("\n".join(kept))
    except ValueError:
        return import_known_hosts("\n".join(line for line in kept if _sound(line)))


def _sound(line: str) -> bool:
    from asyncssh import import_known_hosts

    try:
        import_known_hosts(line)
    except ValueError:
        return False
    return True


def read_known_hosts(paths: Iterable[Path]) -> KnownHosts:
    """Read the files that exist; one that cannot be read trusts nobody."""
    lines: list[tuple[Path, int, str]] = []
    for path in paths:
        try:
            text = path.read_text("utf-8", "replace")
        except OSError:
            continue
        lines += [(path, n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    return KnownHosts(tuple(lines))


def entry_name(host: str, port: int) -> str:
    """Return how known_hosts names a host: with its port where that is not 22."""
    return host.lower() if port == _SSH_PORT else f"[{host.lower()}]:{port}"


def trust(error: UnknownHostKey, known_hosts: Path) -> None:
    """Add the key that the operator accepted to a known_hosts file, safely on disk.

    Raises Refusal where the file cannot be written.
    """
    line = f"{entry_name(error.host, error.port)} {error.key.strip()}\n"
    try:
        known_hosts.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(known_hosts, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "r+b") as file:
            old = file.read()
            broken = old and not old.endswith(b"\n")
            if line.encode() not in old:
                file.write(b"\n" * bool(broken) + line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise Refusal(f"{known_hosts} cannot be written: {problem.strerror}") from problem
