"""Benchmarks kept: one TOML file a run beside a machine's snapshots, its requests packed."""

import base64
import json
import re
import tomllib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from gpudoctor.model.bench import (
    BenchRun,
    Block,
    Conditions,
    Failure,
    Level,
    Request,
    Serving,
    Witness,
)
from gpudoctor.model.error import Refusal
from gpudoctor.model.place import parse_container
from gpudoctor.model.probe import Side
from gpudoctor.snapshots.clones import are_two
from gpudoctor.snapshots.store import machine_folder, write_whole
from gpudoctor.text import one_line

SCHEMA = 1
_MOST = 32 << 20
_PLAIN = (
    "id", "taken", "label", "machine_id", "boot_id", "tokens_asked", "full", "path", "stopped",
    "snapshot", "transaction",
)  # fmt: skip
_SERVING = ("kind", "url", "model", "path", "version", "pid", "started", "api_key_env", "simulated")


def keep_run(run: BenchRun) -> Path:
    """Keep a run and return its file. Raises Refusal where that cannot be done."""
    taken = re.sub(r"[^0-9T]", "", run.taken.partition("+")[0])
    path = machine_folder(run.machine_id, run.label) / f"{taken}-bench-{run.id}.toml"
    write_whole(path, dump_run(run))
    return path


def kept_runs(machine_id: str, label: str, system_uuid: str = "") -> Iterator[BenchRun]:
    """Yield a machine's runs, newest first; a file that is damaged or newer is left out.

    So is a run of a clone: of the machine id, but known to have another system UUID.
    """
    for path in sorted(machine_folder(machine_id, label).glob("*-bench-*.toml"), reverse=True):
        try:
            run = load_run(path.read_bytes(), path.name)
        except (OSError, Refusal):
            continue
        if not are_two(run.system_uuid, system_uuid):
            yield run


def dump_run(run: BenchRun) -> bytes:
    """Return a run as the text of one TOML file."""
    import tomli_w

    serving = {name: getattr(run.serving, name) for name in _SERVING}
    serving |= {
        "flags": list(run.serving.flags),
        "refused": list(run.serving.refused),
        "container": str(run.serving.container or ""),
        "side": str(run.serving.side),
    }
    table = {
        "schema": SCHEMA,
        **{name: getattr(run, name) for name in _PLAIN},
        "system_uuid": run.system_uuid,
        "remarks": list(run.remarks),
        "levels": _packed(run.levels),
        "serving": serving,
        "conditions": {
            "values": dict(run.conditions.values),
            "fixed": sorted(run.conditions.fixed),
            "readings": dict(run.conditions.readings),
        },
        "witnesses": [asdict(one) for one in run.witnesses],
    }
    return b"# gpudoctor benchmark\n" + tomli_w.dumps(table).encode()


def load_run(raw: bytes, name: str) -> BenchRun:
    """Return the run that a file holds. Raises Refusal for a damaged or newer one."""
    try:
        table = tomllib.loads(raw.decode())
        if int(table["schema"]) > SCHEMA:
            raise Refusal(f"{one_line(name, 120)} was written by a newer gpudoctor")
        return _run(table)
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error, RecursionError) as error:
        raise Refusal(f"{one_line(name, 120)} is damaged: {one_line(str(error), 80)}") from error


def _run(table: Mapping[str, Any]) -> BenchRun:
    kept, conditions = table["serving"], table["conditions"]
    serving = Serving(
        **{name: kept[name] for name in _SERVING},
        flags=tuple(map(str, kept["flags"])),
        refused=tuple(map(str, kept["refused"])),
        container=parse_container(kept["container"]) if kept["container"] else None,
        side=Side(kept["side"]),
    )
    return BenchRun(
        **{name: table[name] for name in _PLAIN},
        system_uuid=str(table.get("system_uuid", "")),
        serving=serving,
        remarks=tuple(map(str, table["remarks"])),
        levels=_unpacked(table["levels"]),
        conditions=Conditions(
            {str(k): str(v) for k, v in conditions["values"].items()},
            frozenset(map(str, conditions["fixed"])),
            {str(k): str(v) for k, v in conditions["readings"].items()},
        ),
        witnesses=tuple(map(_witness, table.get("witnesses", ()))),
    )


def _witness(row: Mapping[str, Any]) -> Witness:
    texts = {name: str(row[name]) for name in ("name", "unit", "how", "beside", "unknown")}
    values, labels = tuple(map(float, row["values"])), tuple(map(str, row["labels"]))
    if bool(values) == bool(texts["unknown"]) or (labels and len(labels) != len(values)):
        raise ValueError("a direct measurement in it has lost values")
    return Witness(**texts, values=values, labels=labels)


def _packed(levels: tuple[Level, ...]) -> str:
    rows = [
        {"streams": level.streams, "blocks": [_block_row(block) for block in level.blocks]}
        for level in levels
    ]
    return base64.b64encode(zlib.compress(json.dumps(rows).encode(), 6)).decode()


def _block_row(block: Block) -> dict[str, Any]:
    requests = [{k: v for k, v in asdict(r).items() if v is not None} for r in block.requests]
    return {"seconds": block.seconds, "foreign": block.foreign, "requests": requests}


def _unpacked(text: str) -> tuple[Level, ...]:
    unpacking = zlib.decompressobj()
    raw = unpacking.decompress(base64.b64decode(text, validate=True), _MOST)
    if unpacking.unconsumed_tail:
        raise ValueError("it is larger than any run")
    return tuple(
        Level(int(row["streams"]), tuple(_block(b, int(row["streams"])) for b in row["blocks"]))
        for row in json.loads(raw)
    )


def _block(row: Mapping[str, Any], streams: int) -> Block:
    requests = tuple(_request(one) for one in row["requests"])
    return Block(requests, streams, float(row["seconds"]), str(row["foreign"]))


def _request(row: Mapping[str, Any]) -> Request:
    known = {field.name for field in fields(Request)}
    values = {name: value for name, value in row.items() if name in known}
    values["times"] = tuple(map(float, row["times"]))
    if "failure" in row:
        values["failure"] = Failure(**row["failure"])
    return Request(**values)
