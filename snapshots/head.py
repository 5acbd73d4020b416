"""A snapshot's header, read without parsing what the file holds besides; its checksum is tried."""

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpudoctor.model.audited import Identity
from gpudoctor.model.error import Refusal
from gpudoctor.model.snapshot import Kind, SnapshotHead
from gpudoctor.recording import (
    SCHEMA,
    RecordedAudit,
    identity_in,
    is_recording,
    load,
    what_is_wrong,
)
from gpudoctor.text import one_line

_TOP = re.compile(rb'[^\n]*\nschema = (\d{1,9})\nchecksum = "sha256:([0-9a-f]{64})"\n')
_HEADER = b"\n[header]\n"
_ID = re.compile(r"[0-9a-f]{8,64}")
# TOML is parsed in Python, and a dotted key takes the square of its parts: far above ours.
_LARGEST, _LONGEST_HEADER, _MOST_DOTS = 64 << 20, 64 << 10, 2000


def read_plain(path: Path, name: str) -> tuple[bytes, int]:
    """Return a plain file's bytes and when it was written, in ns; `name` is for sentences.

    Raises Refusal, and FileNotFoundError where there is none.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode):
                raise Refusal(f"{name} is no plain file")
            if about.st_size > _LARGEST:
                raise Refusal(f"{name} is larger than any snapshot ({about.st_size >> 20} MiB)")
            with open(handle, "rb", buffering=0, closefd=False) as stream:
                return stream.readall(), about.st_mtime_ns
        finally:
            os.close(handle)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Refusal(f"{name} cannot be read ({error.strerror})") from error


def head_of(raw: bytes, path: Path, name: str) -> SnapshotHead:
    """Return the header of a file's bytes; `name` is what the operator calls the file.

    Raises Refusal for what is no snapshot, is damaged or cut short, or has a newer schema. Where
    only the checksum does not fit, the header says that the file was altered.
    """
    if not is_recording(raw):
        raise Refusal(f"{name} is no snapshot of gpudoctor's")
    try:
        table = _intact_header(raw)
        if table is None:
            return _head(_kept_header(load(raw, name, verify=False)), path, len(raw), True)
        return _head(table, path, len(raw), False)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise Refusal(f"{name} is damaged: {what_is_wrong(error)}") from error


def when(head: SnapshotHead) -> datetime | None:
    """Return when a snapshot was taken, in UTC, or None where its header tells no time."""
    try:
        taken = datetime.fromisoformat(head.taken)
        return taken.astimezone(UTC) if taken.tzinfo else taken.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _intact_header(raw: bytes) -> Mapping[str, Any] | None:
    """Return the header's table, or nothing where the file is not as `dump` wrote it."""
    top = _TOP.match(raw)
    if top is None or int(top[1]) > SCHEMA:
        return None
    if hashlib.sha256(memoryview(raw)[top.end() :]).hexdigest().encode() != top[2]:
        return None
    start = raw.find(_HEADER) + 1
    end = raw.find(b"\n[", start + len(_HEADER))
    text = raw[start : end if end > 0 else len(raw)]
    if not start or len(text) > _LONGEST_HEADER or text.count(b".") > _MOST_DOTS:
        return None
    table: Mapping[str, Any] = tomllib.loads(text.decode())["header"]
    return table


def _kept_header(kept: RecordedAudit) -> dict[str, Any]:
    names = ("id", "kind", "label", "user", "taken", "tool", "transaction", "simulated")
    who = {f.name: getattr(kept.identity, f.name) for f in fields(Identity)}
    return {n: getattr(kept, n) for n in names} | {"container": str(kept.container or "")} | who


def _head(table: Mapping[str, Any], path: Path, size: int, altered: bool) -> SnapshotHead:
    """Return the header; what a host or an editor wrote into it is made safe text here."""
    said = {name: one_line(str(table[name])) for name in ("id", "label", "user", "taken", "tool")}
    if not _ID.fullmatch(said["id"]):
        raise ValueError("its id is none")
    return SnapshotHead(
        **said,
        kind=Kind(table["kind"]),
        path=str(path),
        size=size,
        identity=safe_identity(identity_in(table)),
        transaction=one_line(str(table["transaction"])),
        container=one_line(str(table["container"])),
        simulated=bool(table["simulated"]),
        altered=altered,
    )


def safe_identity(who: Identity) -> Identity:
    """Return who a host is as safe text: a file may have been edited."""
    return Identity(**{f.name: one_line(getattr(who, f.name)) for f in fields(Identity)})
