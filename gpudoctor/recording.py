"""Answers kept: one side's raw files, listings and tool outputs, and how probes read them again.

`dump` and `load` are the file format of recordings and snapshots: the same schema for both.
"""

import hashlib
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from gpudoctor import __version__
from gpudoctor.evidence_text import pack, unpack
from gpudoctor.formats.bulk import select
from gpudoctor.model import (
    Evidence,
    Files,
    Finding,
    Listing,
    Probe,
    Reason,
    Side,
    Status,
    Tool,
    Unknown,
)
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.error import Refusal, WrongUsage
from gpudoctor.model.place import ContainerRef, parse_container
from gpudoctor.model.snapshot import KeptFinding, Kind
from gpudoctor.rules import digest
from gpudoctor.text import one_line

SCHEMA = 1
_FIRST_LINE = "# gpudoctor snapshot"
_EVIDENCE_LINE = re.compile(rb'^evidence = "[A-Za-z0-9+/=]*"$', re.MULTILINE)
# TOML is parsed in Python, and a dotted key takes the square of its parts: limits far above ours.
_ROW = ("id", "panel", "scope", "status", "summary", "observed", "expected", "impact", "needs")
_MOST_BESIDES, _MOST_DOTS = 2 << 20, 300


@dataclass(slots=True)
class Answers:
    """One side's raw answers. `asked` holds the patterns that were read; None means all there is.

    `files` maps paths to bytes, `listings` paths to `ls -ldn` lines, `tools` probe keys to answers.
    """

    files: dict[str, bytes | Unknown] = field(default_factory=dict)
    listings: dict[str, bytes | Unknown] = field(default_factory=dict)
    tools: dict[str, Evidence] = field(default_factory=dict)
    asked: set[str] | None = None

    def answer(self, probe: Probe) -> Evidence:
        """Return what the probe would have read, or that it was not recorded."""
        if isinstance(probe, Tool):
            return self._tool(probe)
        kept = self.files if isinstance(probe, Files) else self.listings
        return self._entries(probe, kept)

    def keep(self, probe: Probe, evidence: Evidence) -> None:
        """Add one probe's evidence."""
        if isinstance(probe, Tool):
            self.tools[probe.key] = evidence
            return
        kept = self.files if isinstance(probe, Files) else self.listings
        kept.update(evidence.files)
        if self.asked is None:
            self.asked = set()
        self.asked.update(probe.patterns)

    def _tool(self, probe: Tool) -> Evidence:
        if probe.key in self.tools:
            return replace(self.tools[probe.key], key=probe.key, side=probe.side)
        reason = Reason.TOOL_MISSING if self.asked is None else Reason.NOT_IN_RECORDING
        absent = reason is Reason.TOOL_MISSING
        what = f"{probe.name}: not installed" if absent else f"{probe.key} was not recorded"
        problem = Unknown(reason, what)
        return Evidence(probe.key, probe.side, probe.script, problem=problem)

    def _entries(self, probe: Files | Listing, kept: Mapping[str, bytes | Unknown]) -> Evidence:
        command = " ".join(probe.patterns)
        if self.asked is not None and not self.asked.intersection(probe.patterns):
            problem = Unknown(Reason.NOT_IN_RECORDING, f"{probe.patterns[0]} was not recorded")
            return Evidence(probe.key, probe.side, command, problem=problem)
        return entries(probe, select(kept, probe.patterns))


def entries(
    probe: Files | Listing, answers: Mapping[str, bytes | Unknown], seconds: float = 0.0
) -> Evidence:
    """Return the evidence of a files or listing probe; with nothing read, its problem says why."""
    problem = None
    failures = [a for a in answers.values() if isinstance(a, Unknown)]
    if len(failures) == len(answers):
        denied = next((f for f in failures if f.reason is not Reason.NOT_PRESENT), None)
        problem = denied or Unknown(Reason.NOT_PRESENT, f"{probe.patterns[0]}: not there")
    return Evidence(
        probe.key,
        probe.side,
        " ".join(probe.patterns),
        files=answers,
        seconds=seconds,
        problem=problem,
    )


@dataclass(frozen=True, slots=True)
class RecordedAudit:
    """A recording: its header, what was found then, and all that was read, by side.

    `rules` is the digest of the rules that found it (`rules.digest`); empty in older files.
    """

    id: str
    kind: Kind
    label: str
    user: str
    taken: str
    tool: str
    transaction: str
    identity: Identity
    container: ContainerRef | None
    simulated: bool
    sides: Mapping[Side, Answers]
    rules: str = ""
    findings: tuple[KeptFinding, ...] = ()
    problems: tuple[str, ...] = ()


def is_recording(raw: bytes) -> bool:
    """Return whether a file begins as `dump` writes it, damaged or not."""
    return raw.lstrip(b"\xef\xbb\xbf").startswith(b"# gpudoctor snapshot")


def dump(result: AuditResult, kind: Kind = Kind.RECORDING, transaction: str = "") -> bytes:
    """Return an audit as the text of one TOML file: header, findings, evidence."""
    import tomli_w

    table = {
        "header": _header(result, kind, transaction),
        "findings": [_finding(finding) for finding in result.findings],
        "evidence": pack(result.evidence, result.asked),
    }
    # Top-level keys go before tables in TOML.
    body = tomli_w.dumps({"evidence": table.pop("evidence")} | table).encode()
    digest = hashlib.sha256(body).hexdigest()
    return f'{_FIRST_LINE}\nschema = {SCHEMA}\nchecksum = "sha256:{digest}"\n'.encode() + body


def load(raw: bytes, name: str = "the recording", verify: bool = True) -> RecordedAudit:
    """Return the audit that a file holds; `name` is what the operator calls it.

    Raises Refusal for a newer schema, a checksum that does not fit (unless `verify` is false), or
    a file that is cut short or no recording.
    """
    try:
        table = _parsed(raw)
        schema = table["schema"]
        if not isinstance(schema, int) or schema < 1:
            raise ValueError("its schema is no number")
    except (ValueError, KeyError, RecursionError) as error:
        raise Refusal(f"{name} is damaged or cut short: {what_is_wrong(error)}") from error
    if schema > SCHEMA:
        raise Refusal(
            f"{name} has schema {schema}, and this gpudoctor {__version__} reads up to {SCHEMA}: "
            "use a newer gpudoctor"
        )
    if verify and not _fits(raw, table):
        raise Refusal(f"{name} was changed after it was written: its checksum does not fit")
    try:
        return _recorded(table)
    except (ValueError, KeyError, TypeError, AttributeError, WrongUsage) as error:
        raise Refusal(f"{name} is damaged: {what_is_wrong(error)}") from error


def what_is_wrong(error: Exception) -> str:
    """Return in a few words why a file does not hold what it should."""
    if isinstance(error, KeyError):
        return f"it has no {one_line(str(error.args[0]), 40)!r}"
    return one_line(str(error), 80)


def _parsed(raw: bytes) -> dict[str, Any]:
    """Return the file's table. Raises ValueError for what `dump` cannot have written."""
    besides = _EVIDENCE_LINE.sub(b"", raw, count=1)
    dots = max(line.count(b".") for line in besides.split(b"\n"))
    if len(besides) > _MOST_BESIDES or dots > _MOST_DOTS:
        raise ValueError("it is larger than any host's")
    return tomllib.loads(raw.decode())


def _fits(raw: bytes, table: Mapping[str, Any]) -> bool:
    body = raw.split(b"\n", 3)[-1]
    return bool(table.get("checksum") == f"sha256:{hashlib.sha256(body).hexdigest()}")


def _header(result: AuditResult, kind: Kind, transaction: str) -> dict[str, Any]:
    return {
        "id": secrets.token_hex(8),
        "kind": str(kind),
        "taken": result.taken,
        "tool": __version__,
        "rules": digest(),
        "label": result.label,
        "user": result.user,
        "transaction": transaction,
        "container": str(result.container or ""),
        "simulated": result.simulated,
        "problems": list(result.problems),
        **asdict(result.identity),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    """Return a finding as plain values, without what explains it alike on every host."""
    verdict = finding.verdict
    row: dict[str, Any] = {
        "id": finding.id,
        "panel": str(finding.panel),
        "scope": finding.scope,
        "status": str(verdict.status),
        "summary": verdict.summary,
        "observed": verdict.observed,
        "expected": verdict.expected,
        "impact": str(verdict.impact),
        "needs": str(verdict.needs),
        "targets": list(verdict.targets),
        "changes": [[change.title for change in option] for option in verdict.changes],
    }
    if verdict.cls is not None:
        row["class"] = str(verdict.cls)
    if verdict.unknown is not None:
        row["reason"] = str(verdict.unknown.reason)
    return row


def _recorded(table: Mapping[str, Any]) -> RecordedAudit:
    header = table["header"]
    sides: dict[Side, Answers] = {}
    for probe, evidence in unpack(table["evidence"]):
        sides.setdefault(probe.side, Answers(asked=set())).keep(probe, evidence)
    container = str(header["container"])
    return RecordedAudit(
        id=str(header["id"]),
        kind=Kind(header["kind"]),
        label=str(header["label"]),
        user=str(header["user"]),
        taken=str(header["taken"]),
        tool=str(header["tool"]),
        transaction=str(header["transaction"]),
        identity=identity_in(header),
        container=parse_container(container) if container else None,
        simulated=bool(header["simulated"]),
        sides=sides,
        rules=str(header.get("rules", "")),
        findings=tuple(kept_finding(row) for row in table.get("findings", ())),
        problems=tuple(map(str, header.get("problems", ()))),
    )


def identity_in(header: Mapping[str, Any]) -> Identity:
    """Return the host that a header names; older ones have no system UUID. Raises KeyError."""
    told = {"system_uuid": "", **header}
    return Identity(**{f.name: str(told[f.name]) for f in fields(Identity)})


def kept_finding(row: Mapping[str, Any]) -> KeptFinding:
    """Return a finding as a file keeps it. Raises KeyError, TypeError or ValueError."""
    plain = {name: str(row[name]) for name in _ROW} | {"status": str(Status(row["status"]))}
    targets = tuple(map(str, row["targets"]))
    return KeptFinding(
        **plain, targets=targets, cls=str(row.get("class", "")), reason=str(row.get("reason", ""))
    )
