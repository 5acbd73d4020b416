"""The simulated machine as a target, and the demo host."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from zlib import crc32

from gpudoctor.hosts.bulk import bulk_groups
from gpudoctor.hosts.side import AnswerSide, SilentSide
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.model import Evidence, Probe, Reason, Tool, Unknown
from gpudoctor.model.place import ContainerRef

# Seconds after which the quickest and the slowest answers of the demo come.
DEMO_PACE = (0.05, 0.6)
NO_WAIT = (0.0, 0.0)


class SimulatedSide:
    """A machine's side; answers come after a while of their own, the same in every audit."""

    user = "root"

    def __init__(self, machine: SimulatedMachine, pace: tuple[float, float]) -> None:
        """Take the machine and the shortest and longest delay in seconds."""
        self._machine = machine
        self._pace = pace

    async def start(self) -> None:
        """Wait as long as a login takes."""
        await asyncio.sleep(self._pace[0])

    def ask(self, probes: Sequence[Probe]) -> list[Awaitable[list[Evidence]]]:
        """Return the jobs of a live side: every tool its own, files and listings in bulk."""
        jobs: list[Awaitable[list[Evidence]]] = [
            self._answer([p], p.slow) for p in probes if isinstance(p, Tool)
        ]
        return jobs + [self._answer(group, False) for group in bulk_groups(probes)]

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def _answer(self, probes: Sequence[Probe], slow: bool) -> list[Evidence]:
        seconds = self._delay(probes[0].key, slow)
        await asyncio.sleep(seconds)
        return [replace(self._machine.answer(probe), seconds=seconds) for probe in probes]

    def _delay(self, key: str, slow: bool) -> float:
        """Return seconds between the shortest and the longest; slow tools in the upper half."""
        shortest, longest = self._pace
        share = crc32(key.encode()) % 1000 / 1000
        return shortest + (longest - shortest) * ((1 + share) / 2 if slow else share / 2)


class SimulatedTarget:
    """A view on a simulated machine; many targets may share one, whose state they then share."""

    simulated = True
    chosen_container: ContainerRef | None = None

    def __init__(self, machine: SimulatedMachine, pace: tuple[float, float] = DEMO_PACE) -> None:
        """Take the machine, and the shortest and longest delay of an answer in seconds."""
        self.machine = machine
        self.pace = pace

    @property
    def label(self) -> str:
        """Return the machine's name for the operator."""
        return self.machine.label

    async def connect(self) -> None:
        """Do nothing: it is always there."""

    def host(self) -> AnswerSide:
        """Return the host's side."""
        return SimulatedSide(self.machine, self.pace)

    def container(self, ref: ContainerRef) -> AnswerSide:
        """Return the container's side; any other than the machine's own is not there."""
        inside = self.machine.container
        if inside is None or self.machine.ref != ref:
            return SilentSide(Unknown(Reason.NOT_PRESENT, f"there is no container {ref}"))
        return SimulatedSide(inside, self.pace)

    async def close(self) -> None:
        """Do nothing: the machine lives on."""


def demo_machine() -> SimulatedMachine:
    """Return a fresh demo host, as the seed `tables/demo.toml` describes it."""
    from gpudoctor.hosts.simulated_seed import load_demo

    return load_demo()
