"""What went wrong with an SSH login, in one sentence that says what to do."""

import errno
import re
import socket

from gpudoctor.hosts.ssh_settings import Settings
from gpudoctor.model.error import HostUnreachable
from gpudoctor.text import one_line

_ROUTE = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}


def unreachable(error: Exception, settings: Settings, offered: str = "") -> HostUnreachable:
    """Return the refusal for what a login raised; `offered` names the keys that were tried."""
    return HostUnreachable(one_line(_sentence(error, settings, offered), 400))


def silent(settings: Settings, connected: bool, seconds: float) -> HostUnreachable:
    """Return the refusal for a server that does not answer, or not as an SSH server does."""
    if connected:
        what = (
            f"{settings.place} took the connection and did not finish the login within "
            f"{seconds:g} s: is an SSH server on that port, and is it healthy?"
        )
    else:
        what = (
            f"{settings.place} did not answer within {seconds:g} s: is it up, and does a "
            f"firewall let port {settings.port} through?"
        )
    return HostUnreachable(what)


def _sentence(error: Exception, settings: Settings, offered: str) -> str:
    import asyncssh

    place = settings.place
    if isinstance(error, asyncssh.PermissionDenied):
        return _refused_login(settings, offered)
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return (
            f"{place} and this client share no way to talk ({error.reason}): compare Ciphers, "
            "KexAlgorithms, MACs and HostKeyAlgorithms on both ends"
        )
    if isinstance(error, asyncssh.ChannelOpenError):
        return f"{place} cannot be reached through the jump host: {error.reason}"
    if isinstance(error, asyncssh.ConnectionLost):
        return _lost(settings)
    if isinstance(error, asyncssh.Error):
        return f"{place} broke off the login: {error.reason}"
    if isinstance(error, asyncssh.KeyImportError):
        files = ", ".join(map(str, settings.identities)) or "the default key files"
        return f"a key for {place} cannot be used ({error}): check {files}"
    if isinstance(error, OSError):
        return _os_sentence(error, settings)
    return f"{place}: the SSH configuration is not understood: {error}"


def _os_sentence(error: OSError, settings: Settings) -> str:
    place = settings.place
    if isinstance(error, socket.gaierror):
        return (
            f"{settings.host} is not a known host name: check the spelling, DNS, or HostName in "
            "the SSH configuration"
        )
    # asyncio folds one error for each address into a text.
    numbers = {error.errno, *map(int, re.findall(r"\[Errno (\d+)\]", str(error)))}
    if errno.ECONNREFUSED in numbers:
        return f"{place} refused the connection: is sshd running there, on that port?"
    if numbers & _ROUTE:
        return f"there is no route to {place}: check the network, VPN and address"
    if settings.proxy_command and isinstance(error, FileNotFoundError | PermissionError):
        return f"the ProxyCommand for {place} cannot be started: {error}"
    if isinstance(error, ConnectionError):
        return _lost(settings)
    if error.filename:
        return f"{error.filename}, which the login to {place} needs, cannot be read: check it"
    return f"{place} cannot be reached: {error.strerror or error}"


def _lost(settings: Settings) -> str:
    if settings.proxy_command:
        return (
            f"the ProxyCommand for {settings.place} ended before the login: try it by hand: "
            f"{settings.proxy_command}"
        )
    return (
        f"{settings.place} closed the connection during the login: is an SSH server on that port, "
        "and does its log say why?"
    )


def _refused_login(settings: Settings, offered: str) -> str:
    hint = "load the right key with ssh-add, or name it with IdentityFile in the SSH configuration"
    missing = ", ".join(map(str, settings.missing_identities))
    gone = f"; {missing} does not exist" if missing else ""
    tried = f"tried {offered}" if offered else "no usable key was found here"
    return f"{settings.place} refused the login of {settings.user} ({tried}{gone}): {hint}"
