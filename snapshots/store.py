"""The store: a folder a machine, one file a snapshot, one script a transaction; written whole."""

import contextlib
import hashlib
import os
import re
import secrets
import time
from pathlib import Path

from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Plan
from gpudoctor.model.snapshot import Kind
from gpudoctor.recording import dump
from gpudoctor.text import one_line

_MACHINE_ID = re.compile(r"[0-9a-f]{32}")
_FOLDER = re.compile(r"[0-9a-f]{32}|unnamed-[0-9a-f]{16}")
# No writer takes that long, in seconds; the store may be shared, so a pid tells nothing.
_ABANDONED = 3600


def state_home() -> Path:
    """Return $XDG_STATE_HOME/gpudoctor, or its default in the home directory.

    Raises Refusal (code 1) for a user without one.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "gpudoctor"
    try:
        return Path.home().absolute() / ".local" / "state" / "gpudoctor"
    except RuntimeError as error:
        raise Refusal(
            "where snapshots are kept is not known: this user has no home directory; set HOME, or "
            "XDG_STATE_HOME to an absolute path",
            1,
        ) from error


def machine_folder(machine_id: str, label: str) -> Path:
    """Return a machine's folder; one without a machine id is known by its label."""
    if _MACHINE_ID.fullmatch(machine_id):
        return state_home() / machine_id
    return state_home() / f"unnamed-{hashlib.sha256(label.encode()).hexdigest()[:16]}"


def is_folder_name(name: str) -> bool:
    """Return whether a name in the store is that of a machine's folder."""
    return _FOLDER.fullmatch(name) is not None


def in_store(path: Path) -> bool:
    """Return whether a file lies in a machine's folder of the store."""
    folder = path.absolute().parent
    return is_folder_name(folder.name) and folder.parent == state_home()


def save(result: AuditResult, kind: Kind, transaction: str = "") -> Path:
    """Keep an audit as a snapshot and return its file. Raises Refusal where that cannot be done."""
    who: Identity = result.identity
    taken = re.sub(r"[^0-9T]", "", result.taken.partition("+")[0])
    name = f"{taken}-{kind}-{secrets.token_hex(3)}.toml"
    path = machine_folder(who.machine_id, result.label) / name
    write_whole(path, dump(result, kind, transaction))
    return path


def keep_script(plan: Plan) -> Path:
    """Keep the copy of a transaction's script at the client. Raises Refusal."""
    path = machine_folder(plan.machine_id, plan.label) / f"{plan.id}.sh"
    write_whole(path, plan.script.encode())
    return path


def drop_script(plan: Plan) -> None:
    """Remove the copy: what it did was taken back, and is of no more use."""
    with contextlib.suppress(OSError):
        (machine_folder(plan.machine_id, plan.label) / f"{plan.id}.sh").unlink()


def note_begun(plan: Plan) -> None:
    """Note that a transaction is watched from here; the note outlives a killed client."""
    write_whole(_note(plan.machine_id, plan.label, plan.id), b"")


def note_ended(plan: Plan) -> None:
    """Take the note away: how the transaction ended was seen here. One that stays is told again."""
    with contextlib.suppress(OSError):
        _note(plan.machine_id, plan.label, plan.id).unlink(missing_ok=True)


def unseen(machine_id: str, label: str) -> set[str]:
    """Return the transactions that began from here, and whose end nobody here saw."""
    found = machine_folder(machine_id, label).glob("*.watched")
    return {path.name.removesuffix(".watched") for path in found}


def forget_unseen(machine_id: str, label: str, transaction: str) -> None:
    """Take the note of one transaction away: the operator was told of it."""
    _note(machine_id, label, transaction).unlink(missing_ok=True)


def _note(machine_id: str, label: str, transaction: str) -> Path:
    return machine_folder(machine_id, label) / f"{transaction}.watched"


def write_whole(path: Path, raw: bytes) -> None:
    """Write a file that nobody else can read, on disk before it has its name. Raises Refusal."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_new(new, raw)
        os.replace(new, path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        where = one_line(str(path.parent), 120)
        raise Refusal(
            f"{where}, where snapshots are kept, cannot be written ({error.strerror})", 1
        ) from error


def _write_new(path: Path, raw: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())


def left_over(folder: Path) -> list[Path]:
    """Return what writers that were killed left in a folder, an hour old at least."""
    found = []
    for path in folder.glob(".*.new"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > _ABANDONED:
                found.append(path)
    return sorted(found)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
