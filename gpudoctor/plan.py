"""Planning: from the findings chosen to the steps, their before values and the script that runs."""

import getpass
import hashlib
import os
import platform
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gpudoctor.fixes import Mechanism, mechanism_of
from gpudoctor.model import Change, Finding, Side, Status, Unknown
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.plan import Item, Plan, Step
from gpudoctor.text import one_line
from gpudoctor.transaction_script import PLACES, Header, Places, render

Seen = Mapping[str, bytes | Unknown]


@dataclass(slots=True)
class _Draft:
    """A plan in the making."""

    steps: list[Step] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    already: list[str] = field(default_factory=list)


def make_plan(
    result: AuditResult, chosen: Sequence[str], operator: str = "", places: Places = PLACES
) -> Plan:
    """Plan the first alternative of every chosen check's findings, in the order chosen.

    No I/O: the before values are those that the audit read, and the target compares them with its
    own before it writes anything.
    """
    draft = _Draft()
    for check, finding, change in _changes(result, chosen, draft):
        _add(draft, check, finding, change, _files(result, change.side))
    return _plan(draft, result, operator or default_operator(), places)


def default_operator() -> str:
    """Return who plans: this user at this machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in many containers
        user = f"uid {os.getuid()}"
    return one_line(f"{user}@{platform.node()}", 80)


def _changes(
    result: AuditResult, chosen: Sequence[str], draft: _Draft
) -> list[tuple[str, Finding, Change]]:
    """Return the changes to plan, each once; what needs none or has none goes into the draft."""
    found: dict[Change, tuple[str, Finding, Change]] = {}
    for check in dict.fromkeys(chosen):
        mine = [f for f in result.findings if f.id == check]
        fixable = [f for f in mine if f.status is Status.ISSUE and f.verdict.changes]
        if not fixable:
            _explain(check, mine, draft)
        for finding in fixable:
            for change in finding.verdict.changes[0]:
                found.setdefault(change, (check, finding, change))
    return list(found.values())


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


def _files(result: AuditResult, side: Side) -> dict[str, bytes | Unknown]:
    """Return every file that the audit read on a side, or why it could not."""
    mine = [evidence for evidence in result.evidence.values() if evidence.side is side]
    return {path: data for evidence in mine for path, data in evidence.files.items()}


def _add(draft: _Draft, check: str, finding: Finding, change: Change, files: Seen) -> None:
    """Add the step of one change, or say why there is none."""
    mechanism = mechanism_of(change)
    now = mechanism.seen(change, files)
    before = {name: value for name, value in now.items() if isinstance(value, str)}
    sentence = mechanism.refuse(change, now)
    if change.side is not Side.HOST:
        sentence = f"{change.title} belongs in the container, where fixes do not reach yet"
    if sentence:
        draft.refused.append((check, sentence))
        return
    wanted = mechanism.wanted(change, before)
    names = [name for name in wanted if before[name] != wanted[name]]
    taken = {item.name: step.check for step in draft.steps for item in step.items}
    clash = next((name for name in names if name in taken), None)
    if not names:
        draft.already.append(check)
    elif clash is not None:
        draft.refused.append((check, f"{taken[clash]} already changes {clash} in this plan"))
    else:
        items = tuple(_item(mechanism, change, n, before[n], wanted[n]) for n in names)
        needs = finding.verdict.needs
        draft.steps.append(
            Step(check, change, items, change.side, change.risk, needs, change.caution)
        )


def _item(mechanism: Mechanism[Any], change: Change, name: str, before: str, wanted: str) -> Item:
    write = mechanism.write(change, name, wanted)
    undo = mechanism.undo(change, name, before)
    return Item(name, mechanism.reads(change)[name], before, wanted, write, undo)


def _plan(draft: _Draft, result: AuditResult, operator: str, places: Places) -> Plan:
    who = result.identity
    steps = tuple(draft.steps)
    header = Header(
        id=f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        label=one_line(result.label, 80),
        operator=one_line(operator, 80),
        boot_id=who.boot_id,
        hash=values_hash(steps),
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
    )


def values_hash(steps: Sequence[Step]) -> str:
    """Return 16 hex digits over the names and before values that a plan was made from."""
    rows = [f"{item.name}\0{item.before}\0" for step in steps for item in step.items]
    return hashlib.sha256("".join(rows).encode()).hexdigest()[:16]
