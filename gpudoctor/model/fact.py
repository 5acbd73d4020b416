"""Facts: a typed value read from a host, or `Unknown` with its reason; never a bare None."""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a fact is unknown; a closed list (design section 1)."""

    NO_PERMISSION = "no-permission"
    TOOL_MISSING = "tool-missing"
    NOT_PRESENT = "not-present"
    PARSE_FAILED = "parse-failed"
    TIMEOUT = "timeout"
    TOO_BIG = "too-big"
    DISCONNECTED = "disconnected"
    NEEDS_LOAD = "needs-load"
    NEEDS_APP_METRICS = "needs-app-metrics"
    CONTAINER_VIEW = "container-view"
    NOT_IN_RECORDING = "not-in-recording"
    GPU_AT_RISK = "gpu-at-risk"
    NOT_MEASURED = "not-measured"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that could not be had: the reason, and what was missing and what to do about it."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        """Return `reason: detail`."""
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)
