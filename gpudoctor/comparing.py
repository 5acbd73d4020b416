"""From a snapshot, a recording or an audit to what a diff compares: its values and its findings."""

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from gpudoctor import __version__
from gpudoctor.bench.verdict import compare
from gpudoctor.model import Probe, Side
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.bench import BenchRun
from gpudoctor.model.diff import Compared, Diff
from gpudoctor.model.probe import Evidence
from gpudoctor.model.snapshot import KeptFinding, Kind, SnapshotHead
from gpudoctor.recording import Answers, RecordedAudit
from gpudoctor.rejudged import as_kept, rejudged
from gpudoctor.rules import digest
from gpudoctor.snapshots.benchmarks import kept_runs
from gpudoctor.snapshots.catalog import find, load_head
from gpudoctor.snapshots.compared import values
from gpudoctor.snapshots.diff import diff
from gpudoctor.snapshots.diff_remarks import is_same_machine
from gpudoctor.snapshots.head import safe_identity
from gpudoctor.text import one_line

Source = SnapshotHead | Path | str | RecordedAudit | AuditResult


def compared(source: Source, verify: bool = True) -> Compared:
    """Return one side of a diff, its findings by today's rules; may be called on an event loop.

    A path is a file's, text one too. Raises Refusal for a file that cannot be read; for one that
    was altered unless `verify` is false.
    """
    if isinstance(source, AuditResult):
        return _of_audit(source)
    if isinstance(source, RecordedAudit):
        return _of_recorded(source, _head(source))
    head = source if isinstance(source, SnapshotHead) else find(_as_path(source), ())
    return _of_recorded(load_head(head, verify), head)


def differing(old: Compared, new: Compared) -> Diff:
    """Return what differs, and what benchmarks that were taken meanwhile say of it."""
    found = diff(old, new)
    said = _benchmark_moved(old.head, new.head)
    return replace(found, remarks=(*found.remarks, said)) if said else found


def _benchmark_moved(old: SnapshotHead, new: SnapshotHead) -> str:
    """Return how the benchmark moved between the two, in one sentence, or nothing."""
    if not old.identity.machine_id or not is_same_machine(old, new):
        return ""
    before, after = _run_of(old), _run_of(new)
    if before is None or after is None or before.id == after.id:
        return ""
    told = compare([before], after)
    lead = f"benchmark {before.id} -> {after.id}: {told.judgement}"
    if told.ratio is None or told.low is None or told.high is None:
        return f"{lead} ({one_line(told.why, 200)})"
    span = f"{told.low - 1:+.1%} to {told.high - 1:+.1%}"
    return f"{lead}, time per token {told.ratio - 1:+.1%} ({span})"


def _run_of(head: SnapshotHead) -> BenchRun | None:
    """Return the run that tells of a snapshot's time: of its transaction, else the last by then."""
    who = head.identity
    for run in kept_runs(who.machine_id, head.label, who.system_uuid):
        mine = head.kind is Kind.AFTER and head.transaction and run.transaction == head.transaction
        if mine or (run.taken <= head.taken and run.boot_id == who.boot_id):
            return run
    return None


def _as_path(source: Path | str) -> str:
    return str(Path(source).absolute())


def _of_audit(result: AuditResult) -> Compared:
    """Return an audit of this moment as it would be read back from a file."""
    found, unread = values(_sides(result.evidence, result.asked))
    head = SnapshotHead(
        id="",
        kind=Kind.RECORDING,
        label=one_line(result.label),
        user=one_line(result.user),
        taken=result.taken,
        tool=__version__,
        path="",
        size=0,
        identity=safe_identity(result.identity),
        container=one_line(str(result.container or "")),
        simulated=result.simulated,
    )
    return Compared(head, found, _findings(result), unread)


def _sides(evidence: Mapping[str, Evidence], asked: Mapping[str, Probe]) -> dict[Side, Answers]:
    sides: dict[Side, Answers] = {}
    for key, answer in evidence.items():
        probe = asked.get(key)
        if probe is None:
            continue
        patterns = getattr(probe, "patterns", ())
        if answer.problem is not None and not answer.files:
            answer = replace(answer, files=dict.fromkeys(patterns, answer.problem))
        sides.setdefault(probe.side, Answers(asked=set())).keep(probe, answer)
    return sides


def _of_recorded(kept: RecordedAudit, head: SnapshotHead) -> Compared:
    found, unread = values(kept.sides)
    same = kept.rules == digest()
    findings = tuple(map(_safe_finding, kept.findings)) if same else _today(kept)
    return Compared(head, found, findings, unread)


def _today(kept: RecordedAudit) -> tuple[KeptFinding, ...]:
    """Judge a recording anew, in a thread of its own: the caller's may run an event loop."""
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(lambda: asyncio.run(rejudged(kept))).result()
    return _findings(result)


def _findings(result: AuditResult) -> tuple[KeptFinding, ...]:
    return tuple(_safe_finding(as_kept(finding)) for finding in result.findings)


def _head(kept: RecordedAudit) -> SnapshotHead:
    return SnapshotHead(
        id=one_line(kept.id),
        kind=kept.kind,
        label=one_line(kept.label),
        user=one_line(kept.user),
        taken=one_line(kept.taken),
        tool=one_line(kept.tool),
        path="",
        size=0,
        identity=safe_identity(kept.identity),
        transaction=one_line(kept.transaction),
        container=one_line(str(kept.container or "")),
        simulated=kept.simulated,
    )


def _safe_finding(finding: KeptFinding) -> KeptFinding:
    """Return a finding whose texts are safe: a file may have been edited."""
    return replace(
        finding,
        id=one_line(finding.id),
        summary=one_line(finding.summary, 2000),
        observed=one_line(finding.observed, 2000),
        targets=_lines(finding.targets),
    )


def _lines(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(one_line, texts))
