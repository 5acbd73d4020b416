"""A host's shell for what changes it: live over a session that comes back, or simulated."""

import asyncio
import time

from gpudoctor.hosts.session import Job, JobAnswer
from gpudoctor.hosts.side import LiveSide
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import SimulatedTarget
from gpudoctor.hosts.target import LiveTarget, Target
from gpudoctor.model import Reason
from gpudoctor.model.error import Refusal

RECONNECT_SECONDS = 60.0
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0


class LiveShell:
    """A session of its own on a live host."""

    def __init__(self, target: LiveTarget) -> None:
        """Take a target that is not connected."""
        self._target = target
        self._side: LiveSide | None = None

    @property
    def user(self) -> str:
        """Return whom the host lets us be."""
        return self._side.user if self._side else ""

    async def open(self) -> None:
        """Log in and start the session, once. Raises HostUnreachable or Refusal."""
        if self._side is not None:
            return
        await self._target.connect()
        side = self._target.host()
        await side.start()
        self._side = side

    async def run(
        self, text: str, cap: int = 1 << 20, limit: float = 10.0, err_cap: int = 4000
    ) -> JobAnswer:
        """Run one line of sh, caps in bytes of output and complaints, `limit` in seconds.

        Never raises.

        It is ended gently: a plan's texts may run nvidia-smi, which must never be killed.
        """
        assert self._side is not None
        return await self._side.session.run(Job(text, limit, cap, err_cap, gentle=True))

    async def reopen(self, seconds: float = RECONNECT_SECONDS) -> None:
        """Log in again after a lost line, trying for that long. Raises HostUnreachable."""
        end, wait = time.monotonic() + seconds, _FIRST_WAIT
        while True:
            await self.close()
            try:
                return await self.open()
            except Refusal:
                if time.monotonic() + wait > end:
                    raise
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT)

    async def close(self) -> None:
        """End the session and log out."""
        if self._side is not None:
            await self._side.close()
            self._side = None
        await self._target.close()


class SimulatedShell:
    """The demo machine's interpreter."""

    user = "root"

    def __init__(self, machine: SimulatedMachine) -> None:
        """Take the machine."""
        self.machine = machine

    async def close(self) -> None:
        """Do nothing: the machine lives on."""


async def open_shell(target: Target) -> LiveShell | SimulatedShell:
    """Return the host's shell, opened. Raises HostUnreachable, or Refusal for a recording."""
    if isinstance(target, SimulatedTarget):
        return SimulatedShell(target.machine)
    if not isinstance(target, LiveTarget):
        raise Refusal("a recording cannot be changed: name the host itself", 1)
    shell = LiveShell(target)
    try:
        await shell.open()
    except BaseException:
        await asyncio.shield(shell.close())
        raise
    return shell


def require_root(user: str, what: str) -> None:
    """Raise a Refusal where the host does not let us be root; nobody (`""`) reads a recording."""
    if not user:
        raise Refusal("a recording cannot be changed: name the host itself", 1)
    if user != "root":
        raise Refusal(
            f"{what} needs root there, and we are only {user}: "
            "log in as root, or allow sudo (--ask-sudo asks for its password)",
            1,
        )


def is_lost(answer: JobAnswer) -> bool:
    """Return whether the line to the host broke before the answer came."""
    return answer.lost is not None and answer.lost.reason is Reason.DISCONNECTED
