"""Small snapshots in a store of the test's own."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.cli import main
from gpudoctor.model import Class, Evidence, Files, Finding, Impact, Panel, issue
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.snapshot import Kind, SnapshotHead
from gpudoctor.report_snapshots_json import _ANSWERS
from gpudoctor.snapshots.catalog import find
from gpudoctor.snapshots.store import save

MACHINE, OTHER = "a" * 32, "b" * 32
KNOB = "/proc/sys/kernel/numa_balancing"
PROBE = Files("numa-balancing", (KNOB,))


def audit(
    taken: str = "2026-01-02T03:04:05+00:00",
    machine: str = MACHINE,
    label: str = "root@gpu1",
    boot: str = "boot-1",
    knob: bytes = b"1\n",
    problems: tuple[str, ...] = (),
) -> AuditResult:
    """Return an audit of one value, found wrong."""
    verdict = issue("NUMA balancing is on", Class.P0, Impact.LOW, "1", "0")
    finding = Finding(
        "kern-numa-balancing", Panel.KERNEL_KNOBS, "A title", "host", verdict, "why", "source"
    )
    return AuditResult(
        label=label,
        user="root",
        identity=Identity("gpu1", machine, boot, "6.8.0", "Debian", "a box"),
        findings=(finding,),
        evidence={PROBE.key: Evidence(PROBE.key, files={KNOB: knob})},
        asked={PROBE.key: PROBE},
        problems=problems,
        taken=taken,
    )


def kept(result: AuditResult, kind: Kind = Kind.MANUAL, transaction: str = "") -> SnapshotHead:
    """Keep an audit and return its header as the store tells it."""
    return find(str(save(result, kind, transaction)), ())


def altered(head: SnapshotHead, before: bytes, after: bytes) -> Path:
    """Change a snapshot's file by hand."""
    path = Path(head.path)
    raw = path.read_bytes()
    assert before in raw
    path.write_bytes(raw.replace(before, after, 1))
    return path


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Run `gpudoctor snapshot …` and return the exit code and what it printed."""
    try:
        code = main(["snapshot", *argv])
    except SystemExit as end:
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


def answer(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    """Return what a verb prints with --json, which must be its published model."""
    code, out, err = run(capsys, *argv, "--json")
    said = json.loads(out)
    _ANSWERS[argv[0]].model_validate_json(out)
    assert said["version"] == 1 and said.get("exit_code", 0) == code and not err
    return said


def audits(monkeypatch: pytest.MonkeyPatch, result: AuditResult) -> None:
    """Let the next audits of a live host yield this."""

    async def audited(*_: object) -> AuditResult:
        return result

    monkeypatch.setattr("gpudoctor.cli_snapshot._audited", lambda _: result)
    monkeypatch.setattr("gpudoctor.cli_prune.run_audit", audited)
