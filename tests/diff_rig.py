"""Cases of a diff: the demo host twice, each time with edits that a case file spells out."""

import asyncio
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from functools import cache
from importlib.resources import files
from typing import Any

from gpudoctor.audit import run_audit
from gpudoctor.comparing import compared
from gpudoctor.hosts.simulated import SimulatedMachine, ToolAnswer
from gpudoctor.hosts.simulated_seed import machine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model import Reason, Side, Unknown
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.diff import Compared
from gpudoctor.model.snapshot import Kind
from gpudoctor.recording import RecordedAudit, dump, load

Edits = Mapping[str, Any]
TAKEN = {"old": "2026-01-02T03:04:05+00:00", "new": "2026-01-03T03:04:05+00:00"}


def side(edits: Edits, which: str) -> Compared:
    """Return the demo host with edits as one side of a diff, by way of a file's bytes."""
    return compared(kept(edits, which))


def kept(edits: Edits, which: str) -> RecordedAudit:
    """Return the demo host with edits as a file keeps it."""
    result = replace(audited(edits), taken=TAKEN[which])
    kind = Kind(edits.get("kind", "recording"))
    recorded = load(dump(result, kind, edits.get("transaction", "")))
    if edits.get("no_container"):
        host = {Side.HOST: recorded.sides[Side.HOST]}
        recorded = replace(recorded, sides=host, container=None)
    return replace(recorded, **edits.get("header", {}))


def audited(edits: Edits) -> AuditResult:
    """Return an audit of the demo host with edits; the bare one is made once."""
    result = _bare() if not set(edits) & _CHANGING else _audit(demo(edits))
    panel = edits.get("without_panel", "")
    result = replace(result, findings=tuple(f for f in result.findings if f.panel != panel))
    skipped = set(edits.get("not_asked", ()))
    asked = {key: probe for key, probe in result.asked.items() if key not in skipped}
    return replace(result, asked=asked)


_CHANGING = {"seed", "gpus", "files", "gone", "denied", "tools", "no_tools", "container_files"}


@cache
def _bare() -> AuditResult:
    return _audit(demo({}))


def _audit(host: SimulatedMachine) -> AuditResult:
    return asyncio.run(run_audit(SimulatedTarget(host, NO_WAIT)))


def demo(edits: Edits) -> SimulatedMachine:
    """Return the demo host as a case wants it."""
    text = files("gpudoctor.tables").joinpath("demo.toml").read_text(encoding="utf-8")
    seed = tomllib.loads(text)
    for key, values in edits.get("seed", {}).items():
        seed[key] |= values
    gpus = edits.get("gpus", {})
    seed["gpus"] = [gpu | gpus.get(gpu["bdf"], {}) for gpu in seed["gpus"]]
    seed["gpus"] = [gpu for gpu in seed["gpus"] if not gpu.get("gone")]
    host = machine(seed)
    assert host.container is not None
    _edit(host, edits)
    inside = edits.get("container_files", {})
    host.container.files |= {path: text.encode() for path, text in inside.items()}
    return host


def _edit(host: SimulatedMachine, edits: Edits) -> None:
    for pattern, text in edits.get("files", {}).items():
        found = [path for path in host.files if fnmatch(path, pattern)] or [pattern]
        host.files |= dict.fromkeys(found, text.encode())
    for pattern in edits.get("gone", ()):
        host.files = {p: data for p, data in host.files.items() if not fnmatch(p, pattern)}
        host.listings = {p: line for p, line in host.listings.items() if not fnmatch(p, pattern)}
    for pattern in edits.get("denied", ()):
        denied = [path for path in host.files if fnmatch(path, pattern)]
        host.files |= {p: Unknown(Reason.NO_PERMISSION, f"{p}: denied") for p in denied}
    host.tools |= {key: ToolAnswer(text) for key, text in edits.get("tools", {}).items()}
    for key in edits.get("no_tools", ()):
        host.tools.pop(key)
