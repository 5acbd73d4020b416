"""What the store holds, newest first; a file that is no snapshot is named and skipped."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal, WrongUsage
from gpudoctor.model.snapshot import SnapshotHead, Unreadable
from gpudoctor.recording import RecordedAudit, load
from gpudoctor.snapshots.clones import machines, own
from gpudoctor.snapshots.head import head_of, read_plain, when
from gpudoctor.snapshots.notes import SUFFIX, note_of
from gpudoctor.snapshots.store import in_store, is_folder_name, machine_folder, state_home
from gpudoctor.text import one_line

LAST = "last"
# The other TOML files of ours in a machine's folder: what is pending, and what is a transaction's.
_OTHER = re.compile(r"pending\.toml|\d{8}-\d{6}-[0-9a-f]{6}\b.*")
_NAMED = 5
_BROKEN = "it is a link to a file that is not there"
_Found = tuple[int, SnapshotHead]


def folders() -> list[Path]:
    """Return every machine's folder in the store; none where there is no store yet.

    Raises Refusal (code 1) where the store cannot be read.
    """
    try:
        with os.scandir(state_home()) as entries:
            return sorted(Path(e.path) for e in entries if is_folder_name(e.name) and e.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        where = one_line(str(state_home()), 120)
        raise Refusal(
            f"{where}, where snapshots are kept, cannot be read ({error.strerror})", 1
        ) from error


def all_heads() -> tuple[list[SnapshotHead], list[Unreadable]]:
    """Return the snapshots of all machines, newest first, and what is none. Raises Refusal."""
    return _listed(folders())


def heads(folder: Path) -> tuple[list[SnapshotHead], list[Unreadable]]:
    """Return the snapshots in a machine's folder, newest first, and the files that are none."""
    return _listed([folder])


def reached(known: Iterable[SnapshotHead], host: str | None) -> list[SnapshotHead]:
    """Return the snapshots of the machines once reached by this name; all for None."""
    known = list(known)
    of = machines(known)
    mine = {of[head.path] for head in known if head.label == host}
    return [head for head in known if host is None or of[head.path] in mine]


def named(name: str, host: str | None) -> SnapshotHead:
    """Return the store's snapshot of a name as `find` takes it, of the host where one is given.

    Raises WrongUsage and Refusal as `find` does.
    """
    known, unreadable = all_heads()
    mine = reached(known, host)
    if name == LAST and not mine and (known or unreadable):
        raise WrongUsage(f"{why_none(known, unreadable, host)}: `gpudoctor snapshot list` tells")
    try:
        return find(name, mine)
    except WrongUsage:
        others = (head for head in known if name and head.id.startswith(name.lower()))
        for other in others if host else ():
            if other not in mine:
                raise WrongUsage(f"{other.id} is of {other.label}, not of {host}") from None
        raise


def last_of(result: AuditResult) -> SnapshotHead:
    """Return the newest snapshot of the very machine that an audit read. Raises WrongUsage."""
    who, label = result.identity, one_line(result.label)
    mine = own(heads(machine_folder(who.machine_id, result.label))[0], label, who)
    if mine:
        return mine[0]
    known, unreadable = all_heads()
    if reached(known, label):
        why = f"the snapshots kept of {label} are of another machine than the one that answers now"
    else:
        why = why_none(known, unreadable, label)
    raise WrongUsage(f"{why}: `gpudoctor snapshot list` tells")


def why_none(
    known: Iterable[SnapshotHead], unreadable: Sequence[Unreadable], host: str | None
) -> str:
    """Return why no snapshot is listed, of the host where one is named."""
    labels = ", ".join(dict.fromkeys(head.label for head in known))
    if labels:
        return one_line(f"no snapshot of {host} is kept; there are some of {labels}")
    return "no snapshot can be read" if unreadable else "no snapshot is kept yet"


def find(name: str, known: Sequence[SnapshotHead]) -> SnapshotHead:
    """Return the snapshot of an id, the beginning of one, `last` or a file's path.

    `known` is newest first. Raises WrongUsage where there is none, or more than one; Refusal for a
    file that cannot be read or is no snapshot.
    """
    if name == LAST:
        if not known:
            raise WrongUsage("there is no snapshot in the store yet: `gpudoctor snapshot take`")
        return known[0]
    if "/" not in name and name:
        exact = [head for head in known if head.id == name.lower()]
        fitting = exact or [head for head in known if head.id.startswith(name.lower())]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise WrongUsage(_ambiguous(name, fitting))
    return _of_file(name)


def load_head(head: SnapshotHead, verify: bool = True) -> RecordedAudit:
    """Return what a snapshot holds. Raises Refusal, where `verify` also for an altered file."""
    name = one_line(head.path, 200)
    try:
        raw = read_plain(Path(head.path), name)[0]
    except FileNotFoundError as error:
        raise Refusal(f"{name} is gone: it was removed since it was listed") from error
    try:
        return load(raw, name, verify)
    except Refusal as refusal:
        if verify and head.altered:
            raise Refusal(f"{refusal.sentence}; --force takes it as it is") from refusal
        raise


def _listed(places: Iterable[Path]) -> tuple[list[SnapshotHead], list[Unreadable]]:
    found: list[_Found] = []
    unreadable: list[Unreadable] = []
    for folder in places:
        try:
            names = set(os.listdir(folder))
        except FileNotFoundError:
            continue
        except OSError as error:
            unreadable.append(Unreadable(str(folder), f"it cannot be read ({error.strerror})"))
            continue
        for name in sorted(filter(_may_be_one, names)):
            try:
                found.append(_found(folder / name, names))
            except FileNotFoundError:
                if (folder / name).is_symlink():  # else it was pruned in this moment
                    unreadable.append(Unreadable(str(folder / name), _BROKEN))
            except Refusal as refusal:
                unreadable.append(Unreadable(str(folder / name), refusal.sentence))
    found.sort(key=_age, reverse=True)
    return [head for _, head in found], unreadable


def _age(one: _Found) -> tuple[datetime, int]:
    """Return what sorts by age; what tells no time is the oldest."""
    return when(one[1]) or datetime.min.replace(tzinfo=UTC), one[0]


def _may_be_one(name: str) -> bool:
    return name.endswith(".toml") and not name.startswith(".") and not _OTHER.fullmatch(name)


def _found(path: Path, beside: set[str]) -> _Found:
    """Return a file's header, and when it was written: two may be taken in one second."""
    shown = one_line(path.name, 80)
    raw, written = read_plain(path, shown)
    head = head_of(raw, path, shown)
    noted = path.name + SUFFIX in beside
    return written, _with_note(head, path) if noted else head


def _with_note(head: SnapshotHead, path: Path) -> SnapshotHead:
    return replace(head, note=note_of(path))


def _of_file(name: str) -> SnapshotHead:
    path, shown = Path(name), one_line(name, 200)
    try:
        raw = read_plain(path, shown)[0] if name else b""
    except FileNotFoundError:
        raw = b""
    if not raw and not path.is_file():
        raise WrongUsage(
            f"no snapshot {shown!r} in the store, and no file: `gpudoctor snapshot list` names them"
        )
    head = head_of(raw, path.absolute(), shown)
    return _with_note(head, path) if in_store(path) else head


def _ambiguous(name: str, fitting: Sequence[SnapshotHead]) -> str:
    ids = list(dict.fromkeys(head.id for head in fitting))
    if len(ids) == 1:
        files = ", ".join(one_line(head.path, 200) for head in fitting[:_NAMED])
        return f"snapshot {name} is in more than one file: {files}; name one by its file"
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    named = ", ".join(ids[:_NAMED])
    return f"{name!r} fits {len(ids)} snapshots: {named}{more}; give more of it"
