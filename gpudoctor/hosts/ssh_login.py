"""One SSH login: who is trusted, which keys are offered, and how a failure is told."""

import asyncio
from collections.abc import Mapping
from shlex import quote
from typing import TYPE_CHECKING

import asyncssh

from gpudoctor.hosts.known_hosts import KnownHosts, Matches, read_known_hosts
from gpudoctor.hosts.ssh_settings import (
    KEEPALIVE_COUNT,
    KEEPALIVE_SECONDS,
    LOGIN_SECONDS,
    Settings,
)
from gpudoctor.hosts.ssh_words import silent, unreachable
from gpudoctor.model.error import HostUnreachable, UnknownHostKey

if TYPE_CHECKING:
    from asyncssh import SSHClientConnection, SSHKey


class LoginAttempt:
    """One try at one host; strict about its key, and able to say what failed."""

    def __init__(self, settings: Settings, tunnel: "SSHClientConnection | None") -> None:
        """Take the settings and the jump host's connection, if there is one."""
        self._settings = settings
        self._tunnel = tunnel
        self._known = KnownHosts(())
        self._shown: SSHKey | None = None
        self._connected = False
        self._timer: asyncio.Timeout | None = None

    async def login(self) -> "SSHClientConnection":
        """Log in within the limits. Raises HostUnreachable or UnknownHostKey."""
        settings = self._settings
        files = (*settings.user_known_hosts, *settings.global_known_hosts)
        self._known = await asyncio.to_thread(read_known_hosts, files)
        try:
            async with asyncio.timeout(settings.connect_seconds) as self._timer:
                return await self._connect()
        except TimeoutError:
            seconds = LOGIN_SECONDS if self._connected else settings.connect_seconds
            raise silent(settings, self._connected, seconds) from None
        except asyncssh.HostKeyNotVerifiable as error:
            raise self._refused_key(error) from None
        except asyncssh.KeyExchangeFailed as error:
            raise self._no_common_key() or unreachable(error, settings) from None
        except (asyncssh.Error, OSError, ValueError) as error:
            raise unreachable(error, settings, self._offered) from None

    async def _connect(self) -> "SSHClientConnection":
        settings = self._settings
        options = await asyncssh.SSHClientConnectionOptions.construct(
            config=list(settings.config) or None,
            host=settings.login.host,
            port=settings.login.port or (),
            username=settings.login.user or (),
            client_factory=lambda: _Witness(self),
            known_hosts=self._trusted,
            tunnel=self._tunnel,
            proxy_command=self._proxy(),
            connect_timeout=None,
            login_timeout=0,
            keepalive_interval=KEEPALIVE_SECONDS,
            keepalive_count_max=KEEPALIVE_COUNT,
            agent_forwarding=False,
            x11_forwarding=False,
            command=None,
            request_pty=False,
            encoding=None,
            utf8_decode_errors="replace",
            **self._keys(),
        )
        self._options = options
        return await asyncssh.connect(
            settings.login.host, config=None, tunnel=self._tunnel, options=options
        )

    def _proxy(self) -> list[str] | None:
        """Return the ProxyCommand as a shell runs it, its complaints unheard.

        asyncssh takes its stderr for SSH data, and that pipe's end for the connection's: fd 3
        keeps the pipe open.
        """
        command = self._settings.proxy_command
        if not command or self._tunnel is not None:
            return None
        return ["sh", "-c", f"exec 3>&2 2>/dev/null; exec {command}"]

    def _keys(self) -> Mapping[str, object]:
        """Return which keys to offer: files that exist; the agent's own by their public halves."""
        settings = self._settings
        if not settings.identities and not settings.missing_identities:
            return {}
        if settings.identities_only and not settings.identities:
            names = ", ".join(map(str, settings.missing_identities))
            what = f"{names}, the only key allowed for {settings.place}, does not exist: create it"
            raise HostUnreachable(f"{what} or correct IdentityFile in the SSH configuration")
        keys = {"client_keys": [str(p) for p in settings.identities], "ignore_encrypted": True}
        if settings.identities_only:
            halves = [p.with_name(p.name + ".pub") for p in settings.identities]
            both = zip(settings.identities, halves, strict=True)
            keys["agent_identities"] = [str(h if h.exists() else p) for p, h in both]
        return keys

    def connected(self) -> None:
        """Give the login its own time, now that the server has taken the connection."""
        self._connected = True
        if self._timer is not None:
            self._timer.reschedule(asyncio.get_running_loop().time() + LOGIN_SECONDS)

    def shown(self, key: "SSHKey") -> bool:
        """Keep the key that the known hosts do not cover; accept one known without its port.

        OpenSSH, too, takes a key that is known for the same name at the usual port.
        """
        self._shown = key
        return not self._settings.alias and key in self._known.keys(self._settings.host.lower())

    def _trusted(self, _host: str, _address: str, _port: int) -> Matches:
        return self._known.trusted(self._settings.known_as)

    @property
    def _offered(self) -> str:
        """Return the key files and the agent, as far as they were offered."""
        options = getattr(self, "_options", None)
        files = [str(path) for path in self._settings.identities]
        if options is None:
            return ", ".join(files)
        names = [key.get_comment() for key in options.client_keys or []] if not files else files
        return ", ".join([*names, *(["the agent's keys"] if options.agent_path else [])])

    def _refused_key(self, error: asyncssh.HostKeyNotVerifiable) -> HostUnreachable:
        settings, key = self._settings, self._shown
        name = settings.known_as
        if key is None:
            return HostUnreachable(f"the host key of {settings.place} is refused: {error.reason}")
        print_ = key.get_fingerprint()
        if self._known.keys(name):
            return self._changed(f"showed {print_}")
        host, port = (settings.alias, 22) if settings.alias else (settings.host, settings.port)
        text = key.export_public_key("openssh").decode().split()
        sentence = (
            f"{settings.place} is not in {settings.user_known_hosts[0]}: its key is {print_}; "
            f"compare it with the host's own, then accept it (ssh {settings.login.host} asks once)"
        )
        return UnknownHostKey(sentence, host, port, " ".join(text[:2]), print_)

    def _no_common_key(self) -> HostUnreachable | None:
        """Return the refusal where a key is known, and the server has none of its kind."""
        if not self._known.keys(self._settings.known_as):
            return None
        return self._changed("showed no key of that kind")

    def _changed(self, what: str) -> HostUnreachable:
        settings = self._settings
        name = settings.known_as
        return HostUnreachable(
            f"the host key of {settings.place} is not the one in {self._known.where(name)} (it "
            f"{what}): if the host was reinstalled, remove it with ssh-keygen -R {quote(name)}; if "
            "not, somebody may be listening in"
        )


class _Witness(asyncssh.SSHClient):
    """Tells the attempt what happens on its connection."""

    def __init__(self, attempt: LoginAttempt) -> None:
        self._attempt = attempt

    def connection_made(self, conn: "SSHClientConnection") -> None:
        self._attempt.connected()

    def validate_host_public_key(self, host: str, addr: str, port: int, key: "SSHKey") -> bool:
        return self._attempt.shown(key)
