"""From the command line's options to the target they name."""

import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from gpudoctor.hosts.session_script import Sudo
from gpudoctor.hosts.target import LiveTarget, Target
from gpudoctor.model.error import WrongUsage
from gpudoctor.model.place import parse_container

if TYPE_CHECKING:
    from gpudoctor.hosts.simulated import SimulatedMachine


def make_target(
    host: str | None,
    container: str | None,
    ssh_config: str | None,
    files: Sequence[str] | None,
    demo: bool,
    ask_sudo: bool,
    paced: bool = False,
) -> Target:
    """Return the target, not connected. Raises WrongUsage or Refusal with one sentence.

    `paced` lets the demo host answer as slowly as a real one, so that its panels visibly fill.
    """
    ref = parse_container(container) if container else None
    if (files or demo) and (ref or ask_sudo):
        raise WrongUsage("--container and --ask-sudo need a live host, not --from or --demo")
    if files:
        from gpudoctor.intake import recorded_target

        return recorded_target(files)
    if demo:
        return _demo(paced)
    sudo, password = (Sudo.PASSWORD, _sudo_password()) if ask_sudo else (Sudo.QUIET, "")
    if host is None:
        from gpudoctor.hosts.local import LocalTransport

        return LiveTarget(LocalTransport(), ref, sudo, password)
    from gpudoctor.hosts.ssh import SshTransport

    def reach(login: str) -> SshTransport:
        return SshTransport(login, ssh_config)

    return LiveTarget(reach(host), ref, sudo, password, reach)


def _demo(paced: bool) -> Target:
    """Return the demo host; one machine for the life of the process, so that fixes stay."""
    from gpudoctor.hosts.simulated_target import DEMO_PACE, NO_WAIT, SimulatedTarget

    return SimulatedTarget(_demo_machine(), DEMO_PACE if paced else NO_WAIT)


@cache
def _demo_machine() -> "SimulatedMachine":
    from gpudoctor.hosts.simulated_target import demo_machine

    return demo_machine()


@cache
def _sudo_password() -> str:
    """Ask once; kept in memory for re-audits, never stored."""
    from getpass import getpass

    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError as error:
        raise WrongUsage("--ask-sudo asks at a terminal, and there is none here") from error
    return getpass("sudo password on the host: ")
