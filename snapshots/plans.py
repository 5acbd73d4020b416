"""Plan records: what a transaction set, kept beside its script, for the story after a reboot.

One TOML file a transaction, in its machine's folder. One that is damaged or newer is skipped; a
transaction that was taken back has none any more.
"""

import contextlib
import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from gpudoctor.model import (
    Affinity,
    CgroupLimit,
    Change,
    DeviceNodes,
    GpuSetting,
    LatencyHold,
    Module,
    MountSize,
    OwnFile,
    PciBits,
    ProcessLimit,
    Service,
    Sysctl,
    Sysfs,
)
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Item, Plan, Step
from gpudoctor.model.story import KeptItem, KeptStep, PlanRecord
from gpudoctor.snapshots.head import read_plain
from gpudoctor.snapshots.store import machine_folder, state_home, write_whole

SCHEMA = 1
SUFFIX = ".plan.toml"
_TYPES: dict[str, type[Change]] = {
    kind.__name__: kind
    for kind in (
        Affinity,
        CgroupLimit,
        DeviceNodes,
        GpuSetting,
        LatencyHold,
        Module,
        MountSize,
        OwnFile,
        PciBits,
        ProcessLimit,
        Service,
        Sysctl,
        Sysfs,
    )
}
_FIRST_LINE = "# gpudoctor plan record"
_TOP = re.compile(rb"# gpudoctor plan record\nschema = (\d+)\nchecksum = \"([0-9a-f]{64})\"\n")
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
# TOML is parsed in Python; a record of a thousand CPUs' files has a few hundred kB.
_LARGEST = 8 << 20


def keep(plan: Plan) -> Path:
    """Keep what a plan is about to set and return its file. Raises Refusal."""
    path = machine_folder(plan.machine_id, plan.label) / f"{plan.id}{SUFFIX}"
    write_whole(path, dump(_record(plan)))
    return path


def drop(transaction: str) -> None:
    """Take the record of a transaction away: what it had set was taken back, or never set."""
    if _ID.fullmatch(transaction):
        for path in state_home().glob(f"*/{transaction}{SUFFIX}"):
            with contextlib.suppress(OSError):  # the host's journal says so, too
                path.unlink(missing_ok=True)


def records(machine_id: str, label: str) -> list[PlanRecord]:
    """Return the records of a machine, oldest first, without those that cannot be read."""
    return records_in(machine_folder(machine_id, label))


def records_in(folder: Path) -> list[PlanRecord]:
    """Return the records in a machine's folder, oldest first, without the unreadable ones."""
    found = (_read(path) for path in folder.glob(f"*{SUFFIX}"))
    return sorted((one for one in found if one is not None), key=lambda one: one.applied)


def dump(record: PlanRecord) -> bytes:
    """Return a record as the text of its file."""
    import tomli_w

    table: dict[str, Any] = {
        "id": record.id,
        "label": record.label,
        "operator": record.operator,
        "machine_id": record.machine_id,
        "system_uuid": record.system_uuid,
        "boot_id": record.boot_id,
        "applied": record.applied,
        "step": [_step_table(step) for step in record.steps],
    }
    body = tomli_w.dumps(table).encode()
    digest = hashlib.sha256(body).hexdigest()
    return f'{_FIRST_LINE}\nschema = {SCHEMA}\nchecksum = "{digest}"\n'.encode() + body


def load(raw: bytes) -> PlanRecord | None:
    """Return the record in a file's text; None where it is damaged, altered or newer."""
    top = _TOP.match(raw)
    if top is None or int(top[1]) > SCHEMA:
        return None
    body = raw[top.end() :]
    if hashlib.sha256(body).hexdigest().encode() != top[2]:
        return None
    try:
        return record_of(tomllib.loads(body.decode()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def record_of(table: Mapping[str, Any]) -> PlanRecord:
    """Return the record of a parsed file. Raises KeyError, TypeError or ValueError for none."""
    names = ("id", "label", "operator", "machine_id", "boot_id", "applied")
    plain = {name: str(table[name]) for name in names}
    datetime.fromisoformat(plain["applied"])
    steps = tuple(_kept_step(step) for step in table["step"])
    return PlanRecord(**plain, steps=steps, system_uuid=str(table.get("system_uuid", "")))


def _read(path: Path) -> PlanRecord | None:
    try:
        raw, _ = read_plain(path, path.name)
    except (OSError, Refusal):
        return None
    record = load(raw) if len(raw) <= _LARGEST else None
    return record if record is not None and path.name == f"{record.id}{SUFFIX}" else None


def _record(plan: Plan) -> PlanRecord:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return PlanRecord(
        plan.id,
        plan.label,
        plan.operator,
        plan.machine_id,
        plan.boot_id,
        now,
        tuple(_step(step) for step in plan.steps),
        plan.system_uuid,
    )


def _step(step: Step) -> KeptStep:
    items = tuple(KeptItem(i.name, i.before, i.wanted, i.lasting) for i in step.items)
    return KeptStep(step.check, step.way, step.title, items, step.change)


def _step_table(step: KeptStep) -> dict[str, Any]:
    table: dict[str, Any] = {"check": step.check, "way": step.way, "title": step.title}
    if step.change is not None:
        values = {name: _plain(value) for name, value in asdict(step.change).items()}
        table["change"] = {"type": type(step.change).__name__, **values}
    return table | {"items": list(_item_tables(step.items))}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _item_tables(items: Sequence[KeptItem]) -> Iterator[dict[str, Any]]:
    """Yield items that change alike as one table: hundreds of CPUs have the same three values."""
    for (before, wanted, lasting), some in groupby(items, _alike):
        names = [item.name for item in some]
        yield {"names": names, "before": before, "wanted": wanted, "lasting": lasting}


def _alike(item: KeptItem | Item) -> tuple[str, str, bool]:
    return item.before, item.wanted, item.lasting


def _kept_step(table: Mapping[str, Any]) -> KeptStep:
    items = tuple(_kept_items(table["items"]))
    way = table["way"]
    if not isinstance(way, int) or way < 0:
        raise ValueError("the way is no number")
    change = _change(table["change"]) if "change" in table else None
    return KeptStep(str(table["check"]), way, str(table["title"]), items, change)


def _kept_items(tables: Iterable[Mapping[str, Any]]) -> Iterator[KeptItem]:
    for table in tables:
        for name in table["names"]:
            before, wanted = str(table["before"]), str(table["wanted"])
            yield KeptItem(str(name), before, wanted, table["lasting"] is True)


def _change(table: Mapping[str, Any]) -> Change | None:
    """Return the change, or None for a type or a field that this version does not know."""
    kind = _TYPES.get(str(table["type"]))
    values = {name: value for name, value in table.items() if name != "type"}
    if kind is None or not values.keys() <= {field.name for field in fields(kind)}:
        return None
    hints = get_type_hints(kind)
    return kind(**{name: _typed(value, hints[name]) for name, value in values.items()})


def _typed(value: Any, hint: Any) -> Any:
    """Return a value as its field has it. Raises TypeError for another type."""
    if get_origin(hint) is tuple:
        of = get_args(hint)[0]
        if isinstance(value, list) and all(type(one) is of for one in value):
            return tuple(value)
    elif type(value) is hint:
        return value
    raise TypeError(f"{value!r} is no {hint}")
