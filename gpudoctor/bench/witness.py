"""What witnesses a fix beside tokens a second, and what two such measurements may claim.

Samples of one measurement depend on each other, and two of the same host differ by themselves, so
that no test over samples is used (benchmarks/waking.py: the medians' intervals of two measurements
of one busy host were apart in most pairs). A claim is made only where the distributions lie apart,
three quarters of the one beyond three quarters of the other, and the medians by more than a tenth
and more than what timers and an interpreter differ by.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from gpudoctor.bench.figures import quantile
from gpudoctor.model import Change, LatencyHold, PciBits, Sysfs
from gpudoctor.model.bench import Moved, Witness, Witnessed

_LEAST_SHARE, _LEAST_US = 0.10, 2.0
_APART = 0.75


class Kind(StrEnum):
    """What witnesses a change, as reports say it."""

    WAKE = "the wake-up latency of the host's CPUs"
    COPIES = "the bandwidth of copies: `gpudoctor bench --copies` before and after it"
    VALUE = "no direct measurement: the value read back is the evidence"


# By the change, not by the check: whatever finding asks for an idle state, it shows in waking.
_KINDS: tuple[tuple[type[Change], str, Kind], ...] = (
    (LatencyHold, r"", Kind.WAKE),
    (Sysfs, r"/cpuidle/state\d+/disable$|/power/pm_qos_resume_latency_us$", Kind.WAKE),
    (PciBits, r"^(CAP_EXP|ECAP_ACS)\+", Kind.COPIES),
)


def kind_of(change: Change) -> Kind:
    """Return what witnesses a change."""
    for of, pattern, kind in _KINDS:
        if isinstance(change, of) and all(re.search(pattern, text) for text in _names(change)):
            return kind
    return Kind.VALUE


def _names(change: Change) -> Sequence[str]:
    if isinstance(change, Sysfs):
        return change.paths
    return (change.register,) if isinstance(change, PciBits) else ()


def pooled(witnesses: Sequence[Witness]) -> Witness:
    """Return the known ones of several turns as one, beside what was seen in the last of them.

    Where none is known, the first is returned.
    """
    known = [one for one in witnesses if not one.unknown]
    if not known:
        return witnesses[0]
    same = [one for one in known if one.how == known[0].how]
    values = tuple(value for one in same for value in one.values)
    return replace(same[-1], values=values)


def alike(one: Witness, earlier: Sequence[Witness]) -> Witness | None:
    """Return the earlier measurement of the same thing, if there is one."""
    return next((other for other in earlier if other.name == one.name), None)


def witnessed(before: Witness, after: Witness) -> Witnessed:
    """Judge samples in microseconds, of which less is better."""
    return Witnessed(before, after, _moved(before, after))


def _moved(before: Witness, after: Witness) -> Moved:
    if before.unknown or after.unknown or before.how != after.how:
        return Moved.NOT_COMPARABLE
    old, new = quantile(before.values, 0.5), quantile(after.values, 0.5)
    if abs(new - old) <= max(_LEAST_US, _LEAST_SHARE * old):
        return Moved.SAME
    if quantile(after.values, _APART) < quantile(before.values, 1 - _APART):
        return Moved.BETTER
    if quantile(after.values, 1 - _APART) > quantile(before.values, _APART):
        return Moved.WORSE
    return Moved.SAME
