"""Mechanisms: how one kind of thing is read, written and undone; one module a Change type."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from gpudoctor.fixes.sysctl import SysctlMechanism
from gpudoctor.model import Change, Sysctl, Unknown

C = TypeVar("C", contravariant=True)


class Mechanism(Protocol[C]):
    """What a plan needs to know of one Change type. Texts are single lines of sh.

    Values are what a read text prints, on one line; a plan, the read-back and the undo on the
    target compare them as strings.
    """

    def reads(self, change: C) -> dict[str, str]:
        """Return the read text of every item that the change touches, by the item's name."""
        ...

    def seen(self, change: C, files: Mapping[str, bytes | Unknown]) -> dict[str, str | Unknown]:
        """Return what the read texts would print, given the files that the audit read."""
        ...

    def refuse(self, change: C, now: Mapping[str, str | Unknown]) -> str:
        """Return one sentence why these values cannot be changed, or an empty string."""
        ...

    def wanted(self, change: C, before: Mapping[str, str]) -> dict[str, str]:
        """Return the value that each item shall read as, given those before."""
        ...

    def write(self, change: C, item: str, wanted: str) -> str:
        """Return the text that gives an item its wanted value."""
        ...

    def undo(self, change: C, item: str, before: str) -> str:
        """Return the text that gives an item back the value captured from it."""
        ...


_MECHANISMS: dict[type, Mechanism[Any]] = {Sysctl: SysctlMechanism()}


def mechanism_of(change: Change) -> Mechanism[Any]:
    """Return the mechanism of a Change's type."""
    return _MECHANISMS[type(change)]
