"""What gpudoctor never runs itself: worked plans with the exact commands for the host at hand."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from gpudoctor.fixes.mechanism import Seen
from gpudoctor.model import Change, Worked

C = TypeVar("C", bound=Change)


class Recipe(ABC, Generic[C]):
    """How a change is worked out by hand: from what is read there to commands and their undo."""

    @abstractmethod
    def reads(self, change: C) -> dict[str, str]:
        """Return the text of everything that the commands depend on, by name."""

    @abstractmethod
    def worked(self, change: C, now: Seen) -> Worked | str:
        """Return the commands for this host, or one sentence why they cannot be told."""


class GivenRecipe(Recipe[Worked]):
    """A plan whose commands the check knows already."""

    def reads(self, change: Worked) -> dict[str, str]:
        """Return nothing: it depends on nothing more."""
        return {}

    def worked(self, change: Worked, now: Seen) -> Worked | str:
        """Return it as it is."""
        return change
