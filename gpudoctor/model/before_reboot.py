"""Before a reboot: what it will bring and take, a line for each thing, on one page."""

from dataclasses import dataclass
from enum import StrEnum

from gpudoctor.model.fact import Reason


class Outlook(StrEnum):
    """What is to be said of one thing before the reboot."""

    READY = "ready"
    LOOK = "look"
    LOST = "will-be-lost"
    UNKNOWN = "unknown"


class Topic(StrEnum):
    """What a line is about."""

    KERNEL = "kernel"
    COMMAND_LINE = "kernel-command-line"
    MODULE = "nvidia-module"
    INITRAMFS = "initramfs"
    MAJORS = "device-majors"
    START = "start-at-boot"
    TUNINGS = "tunings"
    BY_HAND = "by-hand"
    UPDATES = "updates"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing: what is to be expected, in one sentence, and what to do about it.

    `commands` are for this host, to be run as root there; `read` names what it rests on, with the
    values. `stops`: a reboot now would lose the GPUs or the host. `reason` is why it is unknown.
    """

    topic: Topic
    outlook: Outlook
    sentence: str
    todo: str = ""
    commands: tuple[str, ...] = ()
    read: str = ""
    stops: bool = False
    reason: Reason | None = None

    @property
    def order(self) -> tuple[bool, int]:
        """Return the sort key of the page: what stops the reboot first, what is ready last."""
        return (not self.stops, _ORDER.index(self.outlook))


_ORDER = (Outlook.LOOK, Outlook.LOST, Outlook.UNKNOWN, Outlook.READY)


@dataclass(frozen=True, slots=True)
class BeforeReboot:
    """The page: its lines in the order in which they should be read.

    `kernel` runs now; `coming` boots next, empty where that is not certain. `problems` are what the
    audit itself could not read, in sentences.
    """

    label: str
    lines: tuple[Line, ...]
    kernel: str = ""
    coming: str = ""
    problems: tuple[str, ...] = ()

    def of(self, outlook: Outlook) -> list[Line]:
        """Return the lines of one outlook, in the page's order."""
        return [line for line in self.lines if line.outlook is outlook]

    @property
    def incomplete(self) -> bool:
        """Return whether something could not be told."""
        return bool(self.problems or self.of(Outlook.UNKNOWN))

    @property
    def exit_code(self) -> int:
        """Return 1 with something to look at or to lose, else 3 when incomplete, else 0."""
        if self.of(Outlook.LOOK) or self.of(Outlook.LOST):
            return 1
        return 3 if self.incomplete else 0

    @property
    def verdict(self) -> str:
        """Return the page in one sentence."""
        stops = sum(line.stops for line in self.lines)
        counts = ", ".join(f"{len(self.of(o))} {_WORDS[o]}" for o in _ORDER)
        if stops:
            return f"do not reboot yet: {stops} would lose the GPUs or the host; {counts}"
        return counts


_WORDS = {
    Outlook.LOOK: "to look at",
    Outlook.LOST: "will be lost",
    Outlook.UNKNOWN: "unknown",
    Outlook.READY: "ready",
}
