"""Findings: what a check says. Status, class and impact are separate axes."""

from dataclasses import dataclass, field
from enum import StrEnum

from gpudoctor.model.change import Change
from gpudoctor.model.fact import Reason, Unknown


class Status(StrEnum):
    """What a check found."""

    GOOD = "good"
    ISSUE = "issue"
    NON_ISSUE = "non-issue"
    INFO = "info"
    UNKNOWN = "unknown"


class Class(StrEnum):
    """How an issue is applied."""

    P0 = "P0"
    P1 = "P1"
    P2 = "P2"
    FW = "FW"

    @property
    def meaning(self) -> str:
        """Return the class in words."""
        return {
            "P0": "fixable at runtime",
            "P1": "needs a reboot or module reload",
            "P2": "optional",
            "FW": "firmware or physical",
        }[self.value]


class Impact(StrEnum):
    """How much it may matter, honestly; in order of rank."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    UNPROVEN = "unproven"
    NONE = "none"

    @property
    def rank(self) -> int:
        """Return 0 for high up to 4 for none."""
        return list(Impact).index(self)


class Needs(StrEnum):
    """What applying the remedy interrupts."""

    NOTHING = "nothing"
    SERVER_RESTART = "server-restart"
    CONTAINER_RESTART = "container-restart"
    GPU_IDLE = "gpu-idle"
    GPU_RESET = "gpu-reset"
    MODULE_RELOAD = "module-reload"
    REBOOT = "reboot"
    POWER_CYCLE = "power-cycle"


class Panel(StrEnum):
    """The ten panels, in the order the operator sees; each is one module in checks/."""

    FIRMWARE = "firmware"
    CONTAINER = "container"
    DRIVER = "driver"
    KERNEL_KNOBS = "kernel_knobs"
    KERNEL_VERSION = "kernel_version"
    GPU_MEMORY = "gpu_memory"
    PCIE = "pcie"
    POWER = "power"
    INTERCONNECT = "interconnect"
    RUNTIME = "runtime"

    @property
    def heading(self) -> str:
        """Return the panel's name for people."""
        return _HEADINGS[self]

    @property
    def number(self) -> int:
        """Return 1 to 10."""
        return list(Panel).index(self) + 1

    @property
    def about_gpus(self) -> bool:
        """Return whether the panel has nothing to answer on a host without NVIDIA GPUs."""
        return self in _ABOUT_GPUS


_ABOUT_GPUS = {Panel.DRIVER, Panel.GPU_MEMORY, Panel.PCIE, Panel.POWER, Panel.INTERCONNECT}
_HEADINGS = {
    Panel.FIRMWARE: "UEFI / BIOS",
    Panel.CONTAINER: "Container",
    Panel.DRIVER: "NVIDIA driver",
    Panel.KERNEL_KNOBS: "Kernel knobs",
    Panel.KERNEL_VERSION: "Kernel version",
    Panel.GPU_MEMORY: "GPU memory",
    Panel.PCIE: "PCIe",
    Panel.POWER: "Power & thermal",
    Panel.INTERCONNECT: "NCCL / P2P",
    Panel.RUNTIME: "Serving runtime",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One status that a check's rule arrives at, before the engine adds id, panel and evidence.

    `summary` is the finding in one line; `why` overrides the check's own reason where this status
    has a better one; `remedy` says what to do where no Change can do it.
    """

    status: Status
    summary: str
    observed: str = ""
    expected: str = ""
    impact: Impact = Impact.NONE
    cls: Class | None = None
    needs: Needs = Needs.NOTHING
    targets: tuple[str, ...] = ()
    changes: tuple[tuple[Change, ...], ...] = ()
    remedy: str = ""
    why: str = ""
    unknown: Unknown | None = None


def good(summary: str, observed: str = "", expected: str = "", **more: object) -> Verdict:
    """Return a verdict: read, and as wanted."""
    return Verdict(Status.GOOD, summary, observed, expected, **more)  # type: ignore[arg-type]


def issue(
    summary: str,
    cls: Class,
    impact: Impact,
    observed: str = "",
    expected: str = "",
    **more: object,
) -> Verdict:
    """Return a verdict: read, and should change."""
    return Verdict(
        Status.ISSUE,
        summary,
        observed,
        expected,
        impact=impact,
        cls=cls,
        **more,  # type: ignore[arg-type]
    )


def non_issue(summary: str, observed: str = "", expected: str = "", **more: object) -> Verdict:
    """Return a verdict: looks wrong to a naive tool, and is not; `why` explains."""
    return Verdict(Status.NON_ISSUE, summary, observed, expected, **more)  # type: ignore[arg-type]


def info(summary: str, observed: str = "", expected: str = "", **more: object) -> Verdict:
    """Return a verdict: context only, never ranked."""
    return Verdict(Status.INFO, summary, observed, expected, **more)  # type: ignore[arg-type]


def unknown(reason: Reason, detail: str, **more: object) -> Verdict:
    """Return a verdict: could not tell, and why."""
    return Verdict(
        Status.UNKNOWN,
        detail or str(reason),
        unknown=Unknown(reason, detail),
        **more,  # type: ignore[arg-type]
    )


def not_read(value: Unknown) -> Verdict:
    """Return a verdict: this value is unknown, for its own reason."""
    return Verdict(Status.UNKNOWN, value.detail or str(value), unknown=value)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check says about a host: a verdict with its identity, scope and evidence."""

    id: str
    panel: Panel
    title: str
    scope: str
    verdict: Verdict
    why: str
    source: str
    evidence: tuple[str, ...] = field(default=())

    @property
    def status(self) -> Status:
        """Return the verdict's status."""
        return self.verdict.status

    @property
    def order(self) -> tuple[int, str, str]:
        """Return the sort key of the ranked list: impact, then class, then id."""
        return (self.verdict.impact.rank, str(self.verdict.cls or "P9"), self.id)
