"""What a plan needs to know of one Change type, and what most mechanisms have in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from gpudoctor.model import Change, Reason, Unknown

C = TypeVar("C", bound=Change)
Seen = Mapping[str, str | Unknown]
Values = Mapping[str, str]
GONE = "gone"


class Proof(StrEnum):
    """Where a mechanism was seen to write, read back and undo; the strongest place."""

    HARDWARE = "hardware"
    LAB = "lab"
    STAND_IN = "stand-in"

    @property
    def meaning(self) -> str:
        """Return the place in words."""
        return {
            "hardware": "on real hardware",
            "lab": "on a real kernel, in the lab's virtual machine",
            "stand-in": "against a stand-in program only, never on the real thing",
        }[self.value]


class Mechanism(ABC, Generic[C]):
    """How one kind of thing is read, written, undone and made to last.

    Texts are single lines of sh that work in dash and busybox. Values are what a read text prints,
    on one line; a plan, the read-back and the undo on the target compare them as strings. A read
    text that prints `gone` says that what it would read has ended for good (a process, a
    container), and what was set on it with it: nothing is left to undo there.
    """

    proof = Proof.LAB
    # What is written outlives a reboot: an undo in a later boot still puts it back.
    lasting = False

    @abstractmethod
    def reads(self, change: C) -> dict[str, str]:
        """Return the read text of every item of the change, and of what else it must know."""

    @abstractmethod
    def wanted(self, change: C, before: Values) -> dict[str, str]:
        """Return the value that each item shall read as, by name; what it may not touch is left
        out. `before` holds what could be read.
        """

    @abstractmethod
    def write(self, change: C, item: str, before: Values) -> str:
        """Return the text that gives an item its wanted value."""

    @abstractmethod
    def undo(self, change: C, item: str, before: Values) -> str:
        """Return the text that gives an item back the value captured from it."""

    def refuse(self, change: C, now: Seen) -> str:
        """Return one sentence why these values cannot be changed, or an empty string."""
        return unread(now)

    def guard(self, change: C, item: str, before: Values) -> str:
        """Return the text tested before an undo: what it prints is why it must not run now."""
        return ""

    def tolerates(self, change: C) -> str:
        """Return an extended regular expression of complaints that make a write a skip."""
        return ""

    def persist(self, change: C, before: Values) -> Change | None:
        """Return the change that makes this one outlast a reboot, where there is one."""
        return None


def unread(now: Seen, what: str = "") -> str:
    """Return why the first value that could not be read forbids the change, or nothing."""
    for name, value in now.items():
        if isinstance(value, Unknown):
            if value.reason is Reason.NOT_PRESENT:
                return f"{what or name} is not there"
            return f"{what or name} cannot be read there ({value})"
    return ""
