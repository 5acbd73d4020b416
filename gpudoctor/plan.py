"""Planning: from the findings chosen to the steps, their before values and the script that runs."""

import getpass
import hashlib
import os
import platform
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from gpudoctor.capture import Captured
from gpudoctor.fixes import Mechanism, Proof, mechanism_of, recipe_of
from gpudoctor.fixes.mechanism import GONE
from gpudoctor.model import Change, Finding, Needs, Status, Unknown, Verdict, Worked
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.plan import ByHand, Item, Plan, Step
from gpudoctor.text import one_line
from gpudoctor.transaction_script import PLACES, Header, Places, render

CONFIRM_SECONDS = 60
_RISKS = ("low", "medium", "high")


@dataclass(slots=True)
class _Draft:
    """A plan in the making."""

    steps: list[Step] = field(default_factory=list)
    by_hand: list[ByHand] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    already: list[str] = field(default_factory=list)


def make_plan(
    result: AuditResult,
    captured: Captured,
    chosen: Sequence[str],
    operator: str = "",
    places: Places = PLACES,
    confirm_within: int | None = None,
) -> Plan:
    """Plan one alternative of every chosen check's findings: `check`, or `check:2` for its second.

    Without a number it is the best one that can be done there. Steps of low risk come first, else
    in the order chosen. No I/O: the before values are those captured, and the target compares them
    with its own before it writes anything. `confirm_within` in seconds is 60 by itself where a
    risk is above low, and 0 for no timer.
    """
    draft = _Draft()
    for name in dict.fromkeys(chosen):
        check, _, number = name.partition(":")
        _add_check(draft, result, captured, check, int(number) if number.isdecimal() else 0)
    draft.steps.sort(key=lambda step: _RISKS.index(step.risk))
    if confirm_within is None:
        risky = any(step.risk != "low" for step in draft.steps)
        confirm_within = CONFIRM_SECONDS if risky else 0
    return _plan(draft, result, operator or default_operator(), places, confirm_within)


def default_operator() -> str:
    """Return who plans: this user at this machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in many containers
        user = f"uid {os.getuid()}"
    return one_line(f"{user}@{platform.node()}", 80)


def _add_check(
    draft: _Draft, result: AuditResult, captured: Captured, check: str, number: int
) -> None:
    """Add the steps of all findings of a check, or say why there are none."""
    mine = [f for f in result.findings if f.id == check]
    fixable = [f for f in mine if f.status is Status.ISSUE and f.verdict.changes]
    if not fixable:
        _explain(check, mine, draft)
    for finding in fixable:
        options = finding.verdict.changes
        if number > len(options):
            draft.refused.append((check, f"it has no alternative {number}, only {len(options)}"))
        else:
            ways = [(number, options[number - 1])] if number else [*enumerate(options, 1)]
            _add_best(draft, finding, captured, ways)


def _explain(check: str, findings: Sequence[Finding], draft: _Draft) -> None:
    """Say why a check has nothing to plan."""
    issue = next((f for f in findings if f.status is Status.ISSUE), None)
    unknown = next((f for f in findings if f.status is Status.UNKNOWN), None)
    if issue is not None:
        todo = issue.verdict.remedy or "see `gpudoctor explain`"
        draft.refused.append((check, f"gpudoctor does not change this itself: {todo}"))
    elif unknown is not None:
        draft.refused.append((check, f"unknown: {unknown.verdict.summary}"))
    elif findings:
        draft.already.append(check)
    else:
        draft.refused.append((check, "was not judged there"))


def _add_best(
    draft: _Draft,
    finding: Finding,
    captured: Captured,
    ways: Sequence[tuple[int, Sequence[Change]]],
) -> None:
    """Add the first alternative that can be done whole; else say why the best cannot."""
    reasons = []
    for way, option in ways:
        sentence = _add_option(draft, finding, captured, way, option)
        if not sentence:
            return
        reasons.append(sentence)
    draft.refused.append((finding.id, reasons[0]))


def _add_option(
    draft: _Draft, finding: Finding, captured: Captured, way: int, option: Sequence[Change]
) -> str:
    """Add all changes of one alternative, or none and return why."""
    steps: list[Step] = []
    by_hand: list[ByHand] = []
    for change in option:
        if change.by_hand:
            worked = recipe_of(change).worked(change, captured.get(change, {}))
            if isinstance(worked, str):
                return worked
            by_hand.append(_by_hand(finding, worked))
            continue
        if any(other.change == change for other in draft.steps):
            continue  # another finding chosen asks for the very same
        made = _step(finding, change, captured)
        if isinstance(made, str):
            return made
        others = [*draft.steps, *steps]
        made = replace(_without_double(made, others), way=way)
        if sentence := _clash(made, others):
            return sentence
        steps.append(made)
    draft.by_hand += by_hand
    draft.steps += [step for step in steps if step.items]
    if steps and not any(step.items for step in steps):
        draft.already.append(finding.id)
    return ""


def _by_hand(finding: Finding, worked: Worked) -> ByHand:
    verdict = finding.verdict
    return ByHand(
        finding.id, worked, verdict.needs, verdict.observed, verdict.expected, verdict.targets
    )


def _step(finding: Finding, change: Change, captured: Captured) -> Step | str:
    """Return the step of one change, or why there is none."""
    mechanism = mechanism_of(change)
    now = captured.get(change)
    if now is None:
        return f"{change.title}: its values now were not read"
    if sentence := mechanism.refuse(change, now):
        return sentence
    before = {name: value for name, value in now.items() if not isinstance(value, Unknown)}
    wanted = mechanism.wanted(change, before)
    names = [name for name in wanted if before[name] not in {wanted[name], GONE}]
    return Step(
        finding.id,
        change,
        tuple(_item(mechanism, change, name, before, wanted[name]) for name in names),
        risk=change.risk,
        needs=finding.verdict.needs,
        caution=change.caution,
        proof=mechanism.proof.meaning,
        unproven=mechanism.proof is Proof.STAND_IN,
    )


def _item(
    mechanism: Mechanism[Any], change: Change, name: str, before: dict[str, str], wanted: str
) -> Item:
    return Item(
        name,
        mechanism.reads(change)[name],
        before[name],
        wanted,
        mechanism.write(change, name, before),
        mechanism.undo(change, name, before),
        mechanism.guard(change, name, before),
        mechanism.tolerates(change),
        mechanism.lasting,
    )


def _without_double(step: Step, others: Sequence[Step]) -> Step:
    """Return the step less the items that another step writes just so (a bridge of two GPUs)."""
    done = {(item.name, item.wanted) for other in others for item in other.items}
    return replace(step, items=tuple(i for i in step.items if (i.name, i.wanted) not in done))


def _clash(step: Step, others: Sequence[Step]) -> str:
    """Return which other step of the plan excludes this one, or nothing."""
    for other in others:
        taken = {item.name for item in other.items}
        both = next((item.name for item in step.items if item.name in taken), None)
        if both is not None:
            return f"{other.check} already changes {both} in this plan"
        group = step.change.group
        if group and group == other.change.group and step.items:
            return f"{other.change.title} already serves the same end in this plan"
    return ""


def _plan(
    draft: _Draft, result: AuditResult, operator: str, places: Places, confirm_within: int
) -> Plan:
    who = result.identity
    steps = tuple(draft.steps)
    header = Header(
        id=f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        label=one_line(result.label, 80),
        operator=one_line(operator, 80),
        boot_id=who.boot_id,
        hash=values_hash(steps),
        confirm_within=confirm_within,
    )
    return Plan(
        header.id,
        header.label,
        header.operator,
        who.machine_id,
        who.boot_id,
        steps,
        render(header, steps, places) if steps else "",
        header.hash,
        tuple(draft.refused),
        tuple(dict.fromkeys(draft.already)),
        tuple(draft.by_hand),
        confirm_within if steps else 0,
        who.system_uuid,
    )


def persistent(
    result: AuditResult, plan: Plan, captured: Captured
) -> tuple[AuditResult, tuple[str, ...]]:
    """Return the audit whose findings offer what makes a plan's steps outlast a reboot.

    Beside it are the titles of the steps that have no such form. What lasts already needs none.
    """
    forms: dict[str, list[Change]] = {}
    without = []
    for step in plan.steps:
        now = captured.get(step.change, {})
        before = {name: value for name, value in now.items() if not isinstance(value, Unknown)}
        form = mechanism_of(step.change).persist(step.change, before)
        if form is not None:
            forms.setdefault(step.check, []).append(form)
        elif not all(item.lasting for item in step.items):
            without.append(step.title)
    found = {f.id: f for f in reversed(result.findings) if f.status is Status.ISSUE}
    offers = (replace(found[check], verdict=_offer(found[check], forms[check])) for check in forms)
    return replace(result, findings=tuple(offers)), tuple(without)


def _offer(finding: Finding, forms: Sequence[Change]) -> Verdict:
    return replace(finding.verdict, changes=(tuple(forms),), needs=Needs.NOTHING)


def values_hash(steps: Sequence[Step]) -> str:
    """Return 16 hex digits over the names and before values that a plan was made from."""
    rows = [f"{item.name}\0{item.before}\0" for step in steps for item in step.items]
    return hashlib.sha256("".join(rows).encode()).hexdigest()[:16]
