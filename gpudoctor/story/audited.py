"""The story once an audit is in: what could not be read by value is told by its check."""

from collections.abc import Sequence
from dataclasses import replace

from gpudoctor.model import Finding, Reason, Status
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.story import Fate, Story, Told


def after_audit(story: Story, result: AuditResult) -> Story:
    """Return the story with unknown fates settled by their checks' findings.

    An issue again is lost, or overridden where a file of ours is in place; good is kept. What the
    audit cannot tell stays unknown. Alternatives are numbered as the audit offers them now.
    """
    return replace(story, told=tuple(_settled(one, result.findings) for one in story.told))


def _settled(one: Told, findings: Sequence[Finding]) -> Told:
    mine = _about(one, [finding for finding in findings if finding.id == one.check])
    issue = next((f for f in mine if f.status is Status.ISSUE), None)
    one = replace(one, way=_way(one, issue))
    if one.fate is not Fate.UNKNOWN:
        return _file_alone(one, issue)
    unread = any(f.status is Status.UNKNOWN for f in mine)
    if issue is not None:
        fate = Fate.OVERRIDDEN if one.lasts else Fate.LOST
        return replace(one, fate=fate, why=f"the audit finds it again: {_said(issue)}")
    kept = next((f for f in mine if f.status is Status.GOOD), None)
    if kept is None or unread or _left_out(one, mine):
        return one
    return replace(one, fate=Fate.KEPT, why=f"the audit finds it good: {_said(kept)}")


def _left_out(one: Told, findings: Sequence[Finding]) -> bool:
    """Return whether a value is of a thing that is absent, or that no finding names but others."""
    targets = {target for finding in findings for target in finding.verdict.targets}
    told = {name for name, _, _ in one.values if any(target in name for target in targets)}
    return any(
        now.startswith(f"({Reason.NOT_PRESENT}") or (told and name not in told and now[:1] == "(")
        for name, _, now in one.values
    )


def _file_alone(one: Told, issue: Finding | None) -> Told:
    """Tell of a file of ours that is in place, and whose check is an issue all the same."""
    by_value = any(name != one.title and not name.startswith("/etc/") for name, _, _ in one.values)
    if issue is None or one.fate is not Fate.KEPT or not one.lasts or by_value:
        return one
    why = f"{one.why}, but the audit finds it again: {_said(issue)}"
    return replace(one, fate=Fate.OVERRIDDEN, why=why)


def _about(one: Told, findings: Sequence[Finding]) -> Sequence[Finding]:
    """Return the findings about the things that were changed, where they name such; else all."""
    names = [name for name, _, _ in one.values]
    named = [f for f in findings if any(t in name for t in f.verdict.targets for name in names)]
    return named or findings


def _way(one: Told, issue: Finding | None) -> int:
    """Return the number of the alternative that makes the very change; 0 where there is no such."""
    options = issue.verdict.changes if issue is not None else ()
    for number, option in enumerate(options, 1):
        if any(change.title == one.title for change in option):
            return number
    return one.way if one.way <= len(options) or not options else 0


def _said(finding: Finding) -> str:
    return finding.verdict.observed or finding.verdict.summary
