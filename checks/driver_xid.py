"""Panel 3, Xids: what the driver wrote to the kernel log of this boot."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpudoctor.checks.driver_errors import RECOVERIES, RECOVERY_STEPS
from gpudoctor.checks.per_gpu import unread
from gpudoctor.model import (
    Evidence,
    Impact,
    Reader,
    Reason,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    per_target,
)
from gpudoctor.probes.kernel import INSIDE_CONTAINER, KERNEL_LOG, vouched
from gpudoctor.probes.pci import GPU_FUNCTIONS, PciFunction
from gpudoctor.tables.xids import XidGroup, xid_group


@dataclass(frozen=True, slots=True)
class Xid:
    """One kind of driver error of one GPU in the kernel log of this boot."""

    bdf: str
    code: int
    text: str
    count: int


_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?[^)]*\): "
    r"(\d{1,3})\b,?\s*(.*)"
)
_READ = re.compile(r"^lines (\d+)$", re.MULTILINE)
_RING = re.compile(r"^first \[\s*(\d+)\.", re.MULTILINE)
_BOOT_SECONDS = 60  # dmesg's first line is at 0; a ring that lost its beginning starts later


def _xids(log: Evidence) -> tuple[Xid, ...] | Unknown:
    """Return the distinct Xids; a log without one line at all was not readable."""
    text, counted = log.text, _READ.findall(log.text)
    if not counted or int(counted[-1]) == 0:
        return Unknown(Reason.NO_PERMISSION, "the kernel log is empty to this user: run as root")
    found: dict[tuple[str, int], list[str]] = {}
    for match in _XID.finditer(text):
        domain, _, rest = match.group(1).lower().partition(":")
        key = (f"{int(domain, 16):04x}:{rest}.0", int(match.group(2)))
        found.setdefault(key, []).append(match.group(3))
    start = _RING.search(text)
    if not found and start and int(start.group(1)) > _BOOT_SECONDS:
        late = f"the kernel log begins {start.group(1)} s after boot: what was before is gone"
        return Unknown(Reason.NOT_PRESENT, late)
    return tuple(Xid(bdf, code, said[-1], len(said)) for (bdf, code), said in found.items())


XIDS: Reader[tuple[Xid, ...]] = Reader("xids", (KERNEL_LOG,), _xids)


@check(
    "drv-xid",
    "Driver errors of this boot (Xid)",
    reads=(),
    optional=(XIDS, GPU_FUNCTIONS, INSIDE_CONTAINER),
    why="The driver reports each fault as an Xid in the kernel log; its code says what helps.",
    source="NVIDIA Xid errors catalogue (docs.nvidia.com/deploy/xid-errors)",
    scope="gpu",
)
def xid(
    xids: tuple[Xid, ...] | Unknown,
    functions: tuple[PciFunction, ...] | Unknown,
    inside: str | Unknown,
) -> Verdict | list[Verdict]:
    """Judge the gravest Xid of each GPU; without any, only a log that was read is good."""
    if not isinstance(xids, Unknown) and xids:
        return per_target(_worst(xids))
    if isinstance(functions, Unknown) and functions.reason is Reason.NOT_PRESENT:
        return unread("Xids", functions)
    hidden = vouched(inside, "the kernel log") or xids
    if isinstance(hidden, Unknown):
        return unread("Xids", hidden)
    return good("No Xid in the kernel log of this boot", observed="none", expected="none")


def _worst(xids: Iterable[Xid]) -> Iterable[tuple[str, Verdict]]:
    by_gpu: dict[str, list[Xid]] = {}
    for item in xids:
        by_gpu.setdefault(item.bdf, []).append(item)
    for bdf, items in by_gpu.items():
        verdicts = [_judged(item) for item in items]
        worst = min(verdicts, key=lambda v: v.impact.rank)
        seen = ", ".join(f"Xid {i.code} ({i.count}x)" for i in items)
        yield bdf, replace(worst, observed=seen)


def _judged(item: Xid) -> Verdict:
    group = _recovery(item) if item.code == 154 else xid_group(item.code)
    if group is None:
        return info(
            "Xids that the table does not rank",
            why="Look the code up in NVIDIA's Xid catalogue.",
        )
    if group.cls is None:
        return info(f"Xid: {group.meaning}")
    return issue(
        f"Xid: {group.meaning}",
        group.cls,
        group.impact,
        expected="none",
        needs=group.needs,
        remedy=group.remedy,
    )


def _recovery(item: Xid) -> XidGroup | None:
    """Read what an Xid 154 changed to: `… from 0x0 (None) to 0x1 (GPU Reset Required)`."""
    wanted = item.text.rpartition(" to ")[2].casefold()
    for word, needs, cls in RECOVERIES:
        if word in wanted:
            remedy = f"Do what the driver asks for: {RECOVERY_STEPS[needs]}"
            meaning = "the driver asks for a recovery"
            return XidGroup("recovery", (154,), meaning, cls, Impact.HIGH, needs, remedy)
    return None
