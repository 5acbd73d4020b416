"""Findings of two snapshots, both by the same rules: fixed, regressed, new, or not read."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from gpudoctor.model.diff import Difference, Moved, Name
from gpudoctor.model.finding import Impact, Status
from gpudoctor.model.snapshot import KeptFinding

_ORDER = (Moved.REGRESSED, Moved.NEW, Moved.FIXED, Moved.NOT_READ)
_UNJUDGED = "not judged"


@dataclass(slots=True)
class _Judged:
    """All that one side's findings say of one check."""

    issues: dict[str, KeptFinding] = field(default_factory=dict)
    unknown: dict[str, KeptFinding] = field(default_factory=dict)
    others: list[KeptFinding] = field(default_factory=list)

    def issue(self, target: str) -> KeptFinding | None:
        """Return the issue of a target; one without targets is about all."""
        return self.issues.get(target) or self.issues.get("")

    def unread(self, target: str) -> KeptFinding | None:
        """Return why the check could not tell of a target, or None."""
        return self.unknown.get(target) or self.unknown.get("")

    def left_out(self, target: str) -> bool:
        """Return whether it tells of each target that there was, but of this one nothing."""
        told = [*self.issues.values(), *self.unknown.values(), *self.others]
        names = {name for finding in told for name in finding.targets}
        each = all(finding.targets for finding in told) and any(f.targets for f in self.others)
        return bool(target) and each and target not in names

    def said(self, target: str) -> str:
        """Return what is said of a target that is no issue."""
        about = [f for f in self.others if target in f.targets] or self.others
        return _told(about[0]) if about else ""


def compare_findings(
    old: Sequence[KeptFinding],
    new: Sequence[KeptFinding],
    whole: Collection[tuple[Moved, str]] = (),
) -> tuple[list[Difference], list[Difference]]:
    """Return what became of issues, most important first; and checks that one side did not read.

    `whole` are things that have gone or come: what was wrong with one that went is not fixed, and
    what is wrong with one that came has not regressed.
    """
    then, now = _by_check(old), _by_check(new)
    found: dict[tuple[Moved, str, str, str], list[str]] = {}
    ranks: dict[str, int] = {}
    for check in dict.fromkeys((*then, *now)):
        before, after = then.get(check, _Judged()), now.get(check, _Judged())
        for target in dict.fromkeys((*before.issues, *after.issues)):
            if (Moved.GONE, f"GPU {target}") in whole:
                continue
            here = check in then and (Moved.ADDED, f"GPU {target}") not in whole
            told = _moved(before, after, target, here, check in now)
            if told is not None:
                moved, said_then, said_now = told
                found.setdefault((moved, check, said_then, said_now), []).append(target)
        ranks[check] = min(_ranks((*before.issues.values(), *after.issues.values())), default=9)
    made = [_difference(*key, targets) for key, targets in found.items()]
    made.sort(key=lambda one: (_ORDER.index(one.moved), ranks[one.name.what], one.name))
    unread = [one for one in made if one.moved is Moved.NOT_READ]
    return [one for one in made if one.moved is not Moved.NOT_READ], unread


def _moved(
    before: _Judged, after: _Judged, target: str, judged_then: bool, judged_now: bool
) -> tuple[Moved, str, str] | None:
    was, is_ = before.issue(target), after.issue(target)
    if was and is_ or not was and not is_:
        return None
    if was:
        if after.unread(target) or after.left_out(target) or not judged_now:
            return Moved.NOT_READ, _told(was), ""
        return Moved.FIXED, _told(was), after.said(target)
    assert is_ is not None
    if not judged_then:
        return Moved.NEW, "", _told(is_)
    if before.unread(target) or before.left_out(target):
        return Moved.NOT_READ, "", _told(is_)
    return Moved.REGRESSED, before.said(target), _told(is_)


def _by_check(findings: Iterable[KeptFinding]) -> dict[str, _Judged]:
    found: dict[str, _Judged] = defaultdict(_Judged)
    for finding in findings:
        judged, targets = found[finding.id], finding.targets or ("",)
        if finding.status == Status.ISSUE:
            judged.issues |= dict.fromkeys(targets, finding)
        elif finding.status == Status.UNKNOWN:
            judged.unknown |= dict.fromkeys(targets, finding)
        else:
            judged.others.append(finding)
    return dict(found)


def _difference(
    moved: Moved, check: str, then: str, now: str, targets: Sequence[str]
) -> Difference:
    names = tuple(target for target in targets if target)
    by = _UNJUDGED if moved is Moved.NOT_READ else ""
    of = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return Difference(moved, None, Name(of, check), then, now, by, names if len(names) > 1 else ())


def _told(finding: KeptFinding) -> str:
    return f"{finding.summary} ({finding.observed})" if finding.observed else finding.summary


def _ranks(findings: Iterable[KeptFinding]) -> Iterable[int]:
    known = {str(impact): impact.rank for impact in Impact}
    return (known.get(finding.impact, 9) for finding in findings)
