"""The story as a session goes on: what was put back or taken back, and what can be made to last."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from gpudoctor.fixes import mechanism_of
from gpudoctor.model import Class, Finding, Impact, OwnFile, issue
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.plan import Plan, Step
from gpudoctor.model.story import Fate, PlanRecord, Story, Told
from gpudoctor.snapshots.plans import records

_AS_SET = "it is as it was set"


def put_back(story: Story, plan: Plan) -> Story:
    """Return the story once a plan of this session was applied and kept."""
    return replace(story, told=tuple(_put_back(one, plan) for one in story.told))


def taken_back(story: Story, plan: Plan) -> Story:
    """Return the story once a plan of this session was taken back."""
    return replace(story, told=tuple(_taken_back(one, plan) for one in story.told))


def _put_back(one: Told, plan: Plan) -> Told:
    step = next((s for s in plan.steps if (s.check, s.title) == (one.check, one.title)), None)
    if step is not None and one.fate is not Fate.KEPT:
        return replace(
            one,
            transaction=plan.id,
            operator=plan.operator,
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            fate=Fate.KEPT,
            why=f"it was {one.fate}, and is as set again",
            values=_values(step, one.values),
            by="",
            lasts=isinstance(step.change, OwnFile),
            again=True,
        )
    path = _file(one, plan)
    if path and one.fate is Fate.KEPT and not one.lasts:
        return replace(one, why=f"{path} makes it last", by=path, lasts=True)
    return one


def _taken_back(one: Told, plan: Plan) -> Told:
    if one.again and one.transaction == plan.id:
        why = "it was put back, and taken back again just now"
        before = {item.name: item.before for step in plan.steps for item in step.items}
        values = tuple((name, wanted, before.get(name, now)) for name, wanted, now in one.values)
        return replace(one, fate=Fate.LOST, why=why, values=values, again=False, lasts=False)
    if one.lasts and one.by and one.by == _file(one, plan):
        return replace(one, why=_AS_SET, by="", lasts=False)
    return one


def _values(step: Step, told: Iterable[tuple[str, str, str]]) -> tuple[tuple[str, str, str], ...]:
    """Return the values, those that the step set as set."""
    wanted = {item.name: item.wanted for item in step.items}
    return tuple(
        (name, wanted[name], wanted[name]) if name in wanted else (name, was, now)
        for name, was, now in told
    )


def _file(one: Told, plan: Plan) -> str:
    """Return the file of a plan that makes a change last, or nothing."""
    files = (s.change for s in plan.steps if s.check == one.check and s.title != one.title)
    return next((change.path for change in files if isinstance(change, OwnFile)), "")


def forms_of(
    told: Iterable[Told], result: AuditResult
) -> tuple[AuditResult | None, tuple[str, ...]]:
    """Return an audit whose findings offer what makes kept changes outlast a reboot.

    None where there is nothing to offer; beside it are the titles of those of which no record here
    tells a form, or whose check was not judged.
    Their checks may be good now, so what is found is that nothing of ours makes them last.
    """
    kept = {one.id: one for one in records(result.identity.machine_id, result.label)}
    judged = {finding.id: finding for finding in result.findings}
    forms: dict[str, list[OwnFile]] = {}
    without = []
    for one in told:
        form = _form(one, kept)
        if form is None or one.check not in judged:
            without.append(one.title)
        else:
            forms.setdefault(one.check, []).append(form)
    offers = tuple(_offer(judged[check], some) for check, some in forms.items())
    return (replace(result, findings=offers) if offers else None), tuple(without)


def _form(one: Told, kept: Mapping[str, PlanRecord]) -> OwnFile | None:
    record = kept.get(one.transaction)
    for step in record.steps if record is not None else ():
        if (step.check, step.title) == (one.check, one.title) and step.change is not None:
            before = {item.name: item.before for item in step.items}
            form = mechanism_of(step.change).persist(step.change, before)
            return form if isinstance(form, OwnFile) else None
    return None


def _offer(finding: Finding, forms: Iterable[OwnFile]) -> Finding:
    verdict = issue(
        "no file of ours makes it last",
        Class.P0,
        Impact.NONE,
        "no file of ours",
        "one that makes it last",
        changes=(tuple(forms),),
    )
    return replace(finding, verdict=verdict)
