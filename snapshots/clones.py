"""Which snapshots are of which machine: clones of one image share a machine id, and so a folder."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from gpudoctor.model.audited import Identity
from gpudoctor.model.snapshot import SnapshotHead

# A machine's folder, and where several share it, what tells this one from the others.
Machine = tuple[Path, str]


def are_two(one: str, other: str) -> bool:
    """Return whether two system UUIDs are known, and so are those of two machines."""
    return "" != one != other != ""


def machines(heads: Iterable[SnapshotHead]) -> dict[str, Machine]:
    """Return by path which machine each snapshot is of.

    A folder is one machine's, unless two system UUIDs are known in it. Then one that tells none is
    of the machine that was reached by the same name, or else has its hostname.
    """
    folders: dict[Path, list[SnapshotHead]] = {}
    for head in heads:
        folders.setdefault(Path(head.path).parent, []).append(head)
    return {
        head.path: (folder, name)
        for folder, some in folders.items()
        for head, name in zip(some, _names(some), strict=True)
    }


def own(heads: Sequence[SnapshotHead], label: str, who: Identity) -> list[SnapshotHead]:
    """Return those of one folder's snapshots that are of the machine which answers by `label`."""
    if not heads:
        return []
    now = replace(heads[0], label=label, identity=who, path=f"{Path(heads[0].path).parent}/now")
    of = machines([*heads, now])
    return [head for head in heads if of[head.path] == of[now.path]]


def _names(heads: Sequence[SnapshotHead]) -> list[str]:
    uuids = {head.identity.system_uuid for head in heads} - {""}
    if len(uuids) < 2:
        return [""] * len(heads)
    labels = _known_by(heads, lambda head: head.label)
    hostnames = _known_by(heads, lambda head: head.identity.hostname)
    return [
        head.identity.system_uuid
        or labels.get(head.label)
        or hostnames.get(head.identity.hostname)
        or head.label
        for head in heads
    ]


def _known_by(
    heads: Iterable[SnapshotHead], name_of: Callable[[SnapshotHead], str]
) -> dict[str, str]:
    """Return the system UUID by name, where only one was ever told under it."""
    found: dict[str, set[str]] = {}
    for head in heads:
        if name_of(head) and head.identity.system_uuid:
            found.setdefault(name_of(head), set()).add(head.identity.system_uuid)
    return {name: next(iter(uuids)) for name, uuids in found.items() if len(uuids) == 1}
