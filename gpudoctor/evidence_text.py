"""Evidence as one line of text and back: compressed JSON in base64, bytes kept exactly."""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from gpudoctor.model import Evidence, Files, Listing, Probe, Reason, Side, Tool, Unknown

# Far above any host's; without limits a file of a few hundred KB takes gigabytes of memory.
_LARGEST = 128 << 20
_MOST_VALUES = 4_000_000
_KINDS: dict[str, type[Files] | type[Listing] | type[Tool]] = {
    "files": Files,
    "listing": Listing,
    "tool": Tool,
}


def pack(evidence: Mapping[str, Evidence], asked: Mapping[str, Probe]) -> str:
    """Return all evidence that a probe asked for, as text."""
    rows = [_row(asked[key], answer) for key, answer in evidence.items() if key in asked]
    raw = json.dumps(rows, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(raw, 6)).decode()


def unpack(text: str) -> list[tuple[Probe, Evidence]]:
    """Return the probes and their evidence. Raises ValueError for what `pack` did not make."""
    try:
        stream = zlib.decompressobj()
        raw = stream.decompress(base64.b64decode(text, validate=True), _LARGEST)
        if stream.unconsumed_tail or not stream.eof:
            raise ValueError("its evidence is cut short, or larger than any host's")
        if sum(raw.count(sign) for sign in (b"[", b"{", b",", b'"')) > _MOST_VALUES:
            raise ValueError("its evidence holds more values than any host's")
        return [_answer(row) for row in json.loads(raw)]
    except (zlib.error, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"its evidence cannot be read ({type(error).__name__})") from error


def _row(probe: Probe, answer: Evidence) -> dict[str, Any]:
    """Return one answer as JSON values; bytes become characters one to one."""
    row: dict[str, Any] = {
        "kind": next(name for name, kind in _KINDS.items() if isinstance(probe, kind)),
        "key": answer.key,
        "side": answer.side,
        "command": answer.command,
        "seconds": answer.seconds,
    }
    if isinstance(probe, Tool):
        row |= {"stdout": answer.stdout.decode("latin-1"), "stderr": answer.stderr}
        row |= {"exit": answer.exit, "name": probe.name}
    else:
        row["patterns"] = probe.patterns
        row["files"] = {path: _value(data) for path, data in answer.files.items()}
    if answer.problem is not None:
        row["problem"] = _value(answer.problem)
    return row


def _value(data: bytes | Unknown) -> str | list[str]:
    if isinstance(data, Unknown):
        return [data.reason, data.detail]
    return data.decode("latin-1")


def _data(value: str | list[str]) -> bytes | Unknown:
    if isinstance(value, str):
        return value.encode("latin-1")
    return _unknown(value)


def _unknown(value: Iterable[str]) -> Unknown:
    reason, detail = value
    return Unknown(Reason(reason), detail)


def _answer(row: dict[str, Any]) -> tuple[Probe, Evidence]:
    key, side = str(row["key"]), Side(row["side"])
    problem = _unknown(row["problem"]) if "problem" in row else None
    probe: Probe
    if row["kind"] == "tool":
        probe = Tool(key, str(row["name"]), str(row["command"]), side=side)
        stdout, stderr = row["stdout"].encode("latin-1"), str(row["stderr"])
        files: dict[str, bytes | Unknown] = {}
    else:
        kind = Files if row["kind"] == "files" else Listing
        patterns = tuple(str(pattern) for pattern in row["patterns"])
        probe, stdout, stderr = kind(key, patterns, side=side), b"", ""
        files = {str(path): _data(value) for path, value in row["files"].items()}
        if problem is not None and not files:
            files = dict.fromkeys(patterns, problem)  # so that the probe is answered alike again
    evidence = Evidence(
        key,
        side,
        str(row["command"]),
        stdout,
        stderr,
        row.get("exit"),
        float(row["seconds"]),
        files,
        problem,
    )
    return probe, evidence
