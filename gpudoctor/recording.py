"""Answers kept: one side's raw files, listings and tool outputs, and how probes read them again."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpudoctor.formats.bulk import select
from gpudoctor.model import Evidence, Files, Listing, Probe, Reason, Side, Tool, Unknown


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
        problem = Unknown(reason, f"{probe.name}: {_WORDS[reason]}")
        return Evidence(probe.key, probe.side, probe.script, problem=problem)

    def _entries(self, probe: Files | Listing, kept: Mapping[str, bytes | Unknown]) -> Evidence:
        command = " ".join(probe.patterns)
        if self.asked is not None and not self.asked.intersection(probe.patterns):
            problem = Unknown(Reason.NOT_IN_RECORDING, f"{probe.patterns[0]} was not recorded")
            return Evidence(probe.key, probe.side, command, problem=problem)
        return entries(probe, select(kept, probe.patterns))


_WORDS = {Reason.TOOL_MISSING: "not installed", Reason.NOT_IN_RECORDING: "not recorded"}


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


@dataclass(slots=True)
class Recording:
    """All that was read of a host, by side."""

    sides: dict[Side, Answers] = field(default_factory=dict)
