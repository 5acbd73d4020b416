"""Worked plans that an operator accepted: what they promise, and what a later audit finds of it.

One TOML file a machine, in the client's store. What was found done is told for a day, then dropped.
"""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal
from gpudoctor.model.finding import Status
from gpudoctor.model.pending import Outcome, Pending, PendingTold
from gpudoctor.model.plan import ByHand
from gpudoctor.snapshots.store import machine_folder, write_whole
from gpudoctor.text import one_line

SCHEMA = 1
_TOLD_FOR = timedelta(days=1)


def accept(machine_id: str, label: str, by_hand: Sequence[ByHand], boot_id: str) -> None:
    """Keep worked plans as pending; one of the same check replaces the older. Raises Refusal."""
    new = [_pending(plan, boot_id) for plan in by_hand]
    names = {(one.check, one.what) for one in new}
    path = _path(machine_id, label)
    kept = [one for one in _load(path) if (one.check, one.what) not in names]
    _save(path, [*kept, *new])


def pending(machine_id: str, label: str) -> list[Pending]:
    """Return what is pending on a machine, oldest first; an unreadable file counts as nothing."""
    return [one for one in _load(_path(machine_id, label)) if not _is_old(one)]


def tell_pending(result: AuditResult) -> tuple[PendingTold, ...]:
    """Return what an audit finds of the plans accepted on its machine, and keep what is done."""
    who = result.identity
    try:
        path = _path(who.machine_id, result.label)
    except Refusal:  # a user without a home, and so without plans: the audit goes on
        return ()
    kept = _load(path)
    current = [one for one in kept if not _is_old(one)]
    told = tuple(_told(one, result) for one in current)
    found = [_dated(one) for one in told]
    if found != kept:
        try:
            _save(path, found)
        except Refusal:  # told all the same; it will be told once more
            pass
    return told


def _pending(plan: ByHand, boot_id: str) -> Pending:
    return Pending(
        plan.check,
        plan.change.title,
        _now(),
        boot_id,
        plan.observed,
        plan.expected,
        str(plan.needs),
        plan.targets,
        plan.change.commands,
        plan.change.undo,
    )


def _told(one: Pending, result: AuditResult) -> PendingTold:
    mine = [f.verdict for f in result.findings if f.id == one.check]
    about = [v for v in mine if not one.targets or not v.targets or {*one.targets} & {*v.targets}]
    issue = next((v for v in about if v.status is Status.ISSUE), None)
    unread = next((v for v in about if v.status is Status.UNKNOWN), None)
    if not about or (issue is None and unread is not None):
        why = unread.summary if unread else "its panel was not read"
        return PendingTold(one, Outcome.UNKNOWN, f"whether it was done cannot be told: {why}")
    if issue is None:
        return PendingTold(one, Outcome.DONE, f"done: {about[0].summary}")
    if issue.observed != one.observed:
        said = f"{issue.observed} now, {one.observed} before, {one.expected} expected"
        return PendingTold(one, Outcome.DIFFERENTLY, f"changed, and still an issue: {said}")
    rebooted = bool(result.identity.boot_id and result.identity.boot_id != one.boot_id)
    how = "although the host was rebooted since" if rebooted else "the host was not rebooted since"
    return PendingTold(one, Outcome.NOT_YET, f"not done: still {issue.observed}; {how}")


def _dated(told: PendingTold) -> Pending:
    """Return the plan with the time at which it was first found done."""
    if told.outcome is Outcome.DONE and not told.pending.done:
        return replace(told.pending, done=_now())
    return told.pending


def _is_old(one: Pending) -> bool:
    if not one.done:
        return False
    return datetime.now(UTC) - datetime.fromisoformat(one.done) > _TOLD_FOR


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _path(machine_id: str, label: str) -> Path:
    return machine_folder(machine_id, label) / "pending.toml"


def _load(path: Path) -> list[Pending]:
    try:
        table = tomllib.loads(path.read_text())
        if table.get("schema") != SCHEMA:
            return []
        return [_read(entry) for entry in table["plan"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _read(entry: dict[str, Any]) -> Pending:
    if entry.get("done"):
        datetime.fromisoformat(entry["done"])
    values: dict[str, Any] = {
        key: tuple(map(str, value)) if isinstance(value, list) else str(value)
        for key, value in entry.items()
    }
    return Pending(**values)


def _save(path: Path, plans: Iterable[Pending]) -> None:
    import tomli_w

    tables = [{key: _plain(value) for key, value in asdict(one).items()} for one in plans]
    write_whole(path, tomli_w.dumps({"schema": SCHEMA, "plan": tables}).encode())


def _plain(value: str | tuple[str, ...]) -> str | list[str]:
    if isinstance(value, str):
        return one_line(value, 2000)
    return [one_line(item, 2000) for item in value]
