"""How one SSH host is reached: the operator's words, completed by the SSH configuration."""

import getpass
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gpudoctor.hosts.known_hosts import GLOBAL_FILES, USER_FILES, entry_name
from gpudoctor.model.error import HostUnreachable, WrongUsage

CONNECT_SECONDS = 10.0
LOGIN_SECONDS = 20.0
KEEPALIVE_SECONDS = 15
KEEPALIVE_COUNT = 3
_LOGIN = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?"
    r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^@:\s\[\]/-][^@:\s\[\]/]*)|(?P<bare>[0-9A-Fa-f:.]+))"
    r"(?::(?P<port>\d{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class Login:
    """`[user@]host[:port]` as the operator wrote it; what is not said is left to the config."""

    host: str
    user: str | None = None
    port: int | None = None


def parse_login(text: str) -> Login:
    """Parse `[user@]host[:port]`; an IPv6 address stands bare or in brackets. Raises WrongUsage."""
    match = _LOGIN.fullmatch(text.strip())
    port = int(match["port"]) if match and match["port"] else None
    if match is None or not (port is None or 0 < port < 65536):
        raise WrongUsage(f"an SSH host is written [user@]host[:port], not {text!r}")
    return Login(match["six"] or match["host"] or match["bare"], match["user"], port)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything about one login that we decide ourselves instead of leaving it to asyncssh."""

    login: Login
    config: tuple[Path, ...]
    host: str
    port: int
    user: str
    alias: str
    user_known_hosts: tuple[Path, ...]
    global_known_hosts: tuple[Path, ...]
    jumps: tuple[Login, ...]
    proxy_command: str
    identities: tuple[Path, ...]
    missing_identities: tuple[Path, ...]
    identities_only: bool
    connect_seconds: float

    @property
    def known_as(self) -> str:
        """Return the name under which known_hosts keeps this host."""
        return self.alias.lower() if self.alias else entry_name(self.host, self.port)

    @property
    def place(self) -> str:
        """Return host and port for the operator."""
        same = self.login.host == self.host
        return (self.login.host if same else f"{self.login.host} ({self.host})") + (
            "" if self.port == 22 else f" port {self.port}"
        )


def resolve(login: Login, config: Path | None) -> Settings:
    """Complete a login by the SSH configuration. Raises HostUnreachable with one sentence."""
    paths = _config_paths(config)
    said = _options(login, paths)
    identities = [Path(p).expanduser() for p in _list(said, "IdentityFile")]
    only = bool(said.get("IdentitiesOnly"))
    return Settings(
        login=login,
        config=tuple(paths),
        host=str(said.get("Hostname") or login.host),
        port=int(cast(int, said.get("Port") or 22)),
        user=str(said.get("User") or getpass.getuser()),
        alias=str(said.get("HostKeyAlias") or ""),
        user_known_hosts=_user_known_hosts(said),
        global_known_hosts=_files(said, "GlobalKnownHostsFile", GLOBAL_FILES),
        jumps=_jumps(str(said.get("ProxyJump") or ""), login),
        proxy_command=str(said.get("ProxyCommand") or ""),
        identities=tuple(p for p in identities if p.exists()),
        missing_identities=tuple(p for p in identities if not p.exists()),
        identities_only=only,
        connect_seconds=_seconds(said.get("ConnectTimeout")),
    )


def _config_paths(config: Path | None) -> list[Path]:
    if config is None:
        default = Path("~/.ssh/config").expanduser()
        return [default] if default.is_file() else []
    try:
        config.read_bytes()
    except OSError as error:
        what = f"the SSH configuration {config} cannot be read: {error.strerror}"
        raise HostUnreachable(what, 2) from None
    return [config]


def _options(login: Login, paths: Sequence[Path]) -> Mapping[str, object]:
    """Return what the configuration says for this host, by directive."""
    from asyncssh.config import SSHClientConfig

    user, port = login.user or (), login.port or ()
    try:
        read = SSHClientConfig.load(
            None, list(paths), False, False, False, getpass.getuser(), user, login.host, port
        )
    except (ValueError, OSError) as error:
        raise HostUnreachable(f"the SSH configuration is not understood: {error}") from None
    except KeyError:
        raise HostUnreachable("the local user has no name: set USER in the environment") from None
    return read.get_options(False)


def _list(said: Mapping[str, object], name: str) -> list[str]:
    return [str(value) for value in cast("list[object]", said.get(name) or [])]


def _user_known_hosts(said: Mapping[str, object]) -> tuple[Path, ...]:
    """Return the operator's files; `none` and /dev/null keep nothing, so the usual ones stand in.

    asyncssh would check no key at all for `none`.
    """
    return _files(said, "UserKnownHostsFile", ()) or _files({}, "", USER_FILES)


def _files(said: Mapping[str, object], name: str, default: Sequence[str]) -> tuple[Path, ...]:
    home = str(Path.home())
    chosen = _list(said, name) if name in said else list(default)
    kept = [p.replace("%d", home) for p in chosen if p.lower() not in ("none", "/dev/null")]
    return tuple(Path(p).expanduser() for p in kept)


def _jumps(text: str, login: Login) -> tuple[Login, ...]:
    """Return ProxyJump's hops; a hop to the host itself (`Host *`) is no hop."""
    hops = [parse_login(hop.removeprefix("ssh://")) for hop in text.split(",") if hop.strip()]
    return tuple(hop for hop in hops if hop.host != login.host)


def _seconds(said: object) -> float:
    try:
        return min(float(str(said)), 60.0) if said else CONNECT_SECONDS
    except ValueError:
        return CONNECT_SECONDS
