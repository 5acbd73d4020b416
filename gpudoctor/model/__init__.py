"""The vocabulary of gpudoctor: frozen data, no I/O."""

from gpudoctor.model.change import Change, Sysctl
from gpudoctor.model.check import Check, check, per_target
from gpudoctor.model.fact import Reason, Unknown
from gpudoctor.model.finding import (
    Class,
    Finding,
    Impact,
    Needs,
    Panel,
    Status,
    Verdict,
    good,
    info,
    issue,
    non_issue,
    not_read,
    unknown,
)
from gpudoctor.model.probe import Evidence, Files, Later, Listing, Probe, Side, Tool
from gpudoctor.model.reader import Facts, Reader

__all__ = [
    "Change",
    "Check",
    "Class",
    "Evidence",
    "Facts",
    "Files",
    "Finding",
    "Impact",
    "Later",
    "Listing",
    "Needs",
    "Panel",
    "Probe",
    "Reader",
    "Reason",
    "Side",
    "Status",
    "Sysctl",
    "Tool",
    "Unknown",
    "Verdict",
    "check",
    "good",
    "info",
    "issue",
    "non_issue",
    "not_read",
    "per_target",
    "unknown",
]
