"""Case files: raw answers of a host in, findings out (design section 11).

A case is `tests/checks/<panel>/<name>.toml`:

    checks = ["check-id", …]          the checks that are judged
    base = "demo"                     optional: start from the demo host's answers, not empty
    gone = ["/path", "tool-key"]      answers taken away from the base
    [files]        path = text        [files-hex] path = hex bytes
    [denied]       path = "reason"    the path exists and cannot be read (no permission)
    [listings]     path = `ls -ldn` line
    [tools.KEY]    stdout, stderr, exit, problem (a reason)
    [container.files] …               the same tables for the container's side
    [[expect]]     id, status, and any of class, impact, needs, reason, targets, changes, says
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudoctor.model import Evidence, Facts, Later, Probe, Reason, Side, Unknown
from gpudoctor.recording import Answers

FOLDER = Path(__file__).parent / "checks"


@dataclass(frozen=True)
class Case:
    """One case file and where it lies."""

    path: Path
    data: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"


def cases() -> list[Case]:
    return [Case(p, tomllib.loads(p.read_text())) for p in sorted(FOLDER.glob("*/*.toml"))]


def answers(table: dict[str, Any], base: Answers | None = None) -> Answers:
    """Return one side's answers: the base, less what is gone, with the case's own on top."""
    kept = base or Answers()
    for gone in table.get("gone", []):
        for place in (kept.files, kept.listings, kept.tools):
            place.pop(gone, None)
    kept.asked = None
    kept.files |= {path: text.encode() for path, text in table.get("files", {}).items()}
    kept.files |= {path: bytes.fromhex(h) for path, h in table.get("files-hex", {}).items()}
    kept.files |= {
        path: Unknown(Reason.NO_PERMISSION, f"{path}: {why}")
        for path, why in table.get("denied", {}).items()
    }
    kept.listings |= {path: line.encode() for path, line in table.get("listings", {}).items()}
    kept.tools |= {key: _tool(key, tool) for key, tool in table.get("tools", {}).items()}
    return kept


def _tool(key: str, tool: dict[str, Any]) -> Evidence:
    problem = Unknown(Reason(tool["problem"]), tool["problem"]) if "problem" in tool else None
    return Evidence(
        key,
        stdout=tool.get("stdout", "").encode(),
        stderr=tool.get("stderr", ""),
        exit=tool.get("exit", 0),
        problem=problem,
    )


def facts_of(case: Case, base: dict[Side, Answers]) -> Facts:
    """Return the facts of a case's host, every probe answered when it is asked for."""
    sides = {
        Side.HOST: answers(case.data, base.get(Side.HOST)),
        Side.CONTAINER: answers(case.data.get("container", {}), base.get(Side.CONTAINER)),
    }
    evidence = _Lazy(sides)
    facts = Facts(evidence)
    evidence.facts = facts
    return facts


class _Lazy(dict[str, Evidence]):
    """Answers by probe key, found when asked for: a case need not say which probes run."""

    def __init__(self, sides: dict[Side, Answers]) -> None:
        super().__init__()
        self.sides = sides
        self.facts: Facts | None = None
        self.known: dict[str, Probe | Later] = {}

    def learn(self, probes: "list[Probe | Later]") -> None:
        self.known |= {probe.key: probe for probe in probes}

    def __missing__(self, key: str) -> Evidence:
        probe = self.known[key]
        if isinstance(probe, Later):
            self[key] = self._later(probe)
        else:
            self[key] = self.sides[probe.side].answer(probe)
        return self[key]

    def _later(self, probe: Later) -> Evidence:
        assert self.facts is not None
        values = [self.facts[reader] for reader in probe.after]
        unknown = next((v for v in values if isinstance(v, Unknown)), None)
        made = unknown or probe.make(*values)
        if isinstance(made, Unknown):
            return Evidence(probe.key, probe.side, problem=made)
        return self.sides[made.side].answer(made)
