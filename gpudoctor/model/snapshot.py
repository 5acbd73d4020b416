"""Snapshots as data: what the store knows of each without reading what it holds."""

from dataclasses import dataclass, field
from enum import StrEnum

from gpudoctor.model.audited import Identity


class Kind(StrEnum):
    """Why an audit was kept."""

    RECORDING = "recording"
    BEFORE = "before"
    AFTER = "after"
    MANUAL = "manual"
    BOOT = "boot"


@dataclass(frozen=True, slots=True)
class SnapshotHead:
    """A snapshot's header; `note` is the operator's, `size` is in bytes.

    `altered`: the file was changed after it was written. `label` is the name by which the host was
    reached, `transaction` the one whose before or after it is.
    """

    id: str
    kind: Kind
    label: str
    user: str
    taken: str
    tool: str
    path: str
    size: int
    identity: Identity = field(default_factory=Identity)
    transaction: str = ""
    note: str = ""
    container: str = ""
    simulated: bool = False
    altered: bool = False


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file in the store that is no snapshot we can read, and why, in one sentence."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class KeptFinding:
    """A finding as a snapshot keeps it: judged then, by the rules of then."""

    id: str
    panel: str
    scope: str
    status: str
    summary: str
    observed: str
    expected: str
    impact: str
    needs: str
    targets: tuple[str, ...] = ()
    cls: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Otherwise:
    """A check of which today's rules say something else than those that judged the snapshot."""

    check: str
    then: str
    today: str
