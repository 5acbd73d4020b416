"""The facts of an audit, read by the page before a reboot: what was not asked is unknown, too."""

from collections.abc import Mapping
from typing import TypeVar

from gpudoctor.model import Evidence, Facts, Reader, Reason, Unknown
from gpudoctor.probes.reboot import BOOT_TOOLS, Dates
from gpudoctor.text import one_line

T = TypeVar("T")


class Read:
    """The facts of one audit's evidence."""

    def __init__(self, evidence: Mapping[str, Evidence]) -> None:
        """Take the evidence by probe key."""
        self._facts = Facts(evidence)

    def __call__(self, reader: Reader[T]) -> T | Unknown:
        """Return a fact, or why it is unknown: also that this audit did not ask for it."""
        if not self._facts.ready(reader):
            return Unknown(Reason.NOT_MEASURED, f"{reader.key} was not asked for in this audit")
        return self._facts[reader]


def why(value: Unknown) -> str:
    """Return an unknown's own words on one line."""
    return one_line(value.detail or str(value.reason), 240)


def newer(one: Dates, than: Dates) -> bool:
    """Return whether a file changed after another was made.

    Packages keep the dates of their files' content, so the inode's date counts too.
    """
    return one.content > than.content or one.inode > max(than.content, than.inode)


def tools(read: Read) -> frozenset[str]:
    """Return which tools that write boot files are there; none where that was not read."""
    found = read(BOOT_TOOLS)
    return frozenset() if isinstance(found, Unknown) else found
