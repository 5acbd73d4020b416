"""A recording as a target: probes are answered from what was read once."""

from collections.abc import Awaitable, Mapping, Sequence

from gpudoctor.hosts.side import AnswerSide, SilentSide
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.model import Evidence, Probe, Reason, Side, Unknown
from gpudoctor.model.place import ContainerRef
from gpudoctor.recording import Answers


class RecordedSide:
    """One side of a recording."""

    user = ""

    def __init__(self, answers: Answers) -> None:
        """Take the side's answers."""
        self._answers = answers

    async def start(self) -> None:
        """Do nothing: all is there."""

    def ask(self, probes: Sequence[Probe]) -> list[Awaitable[list[Evidence]]]:
        """Answer all probes at once."""
        return [self._answer(probes)]

    async def _answer(self, probes: Sequence[Probe]) -> list[Evidence]:
        return [self._answers.answer(probe) for probe in probes]

    async def close(self) -> None:
        """Do nothing."""


class RecordedTarget:
    """What was read of a host, kept in files."""

    def __init__(
        self,
        label: str,
        sides: Mapping[Side, Answers],
        container: ContainerRef | None = None,
        simulated: bool = False,
    ) -> None:
        """Take the sides, the container that was entered, and whether the host was the demo's."""
        self.label = label
        self.chosen_container = container
        self.simulated = simulated
        self._sides = sides

    def machine(self) -> SimulatedMachine:
        """Return the host's recorded files as a machine that runs single read texts."""
        kept = self._sides.get(Side.HOST)
        return SimulatedMachine(self.label, dict(kept.files) if kept else {})

    async def connect(self) -> None:
        """Do nothing."""

    def host(self) -> AnswerSide:
        """Return the host's side; with nothing of the host kept, all is not in the recording."""
        return self._side(Side.HOST)

    def container(self, ref: ContainerRef) -> AnswerSide:
        """Return the container's side as it was recorded."""
        return self._side(Side.CONTAINER)

    def _side(self, side: Side) -> AnswerSide:
        if side in self._sides:
            return RecordedSide(self._sides[side])
        return SilentSide(Unknown(Reason.NOT_IN_RECORDING, f"nothing of the {side} was recorded"))

    async def close(self) -> None:
        """Do nothing."""
