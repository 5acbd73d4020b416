"""The story as a session goes on: put back, taken back, and what makes a kept change last."""

from dataclasses import replace
from typing import Any

import pytest

from gpudoctor.fixes import reads_of
from gpudoctor.model import Change, Finding, GpuSetting, OwnFile, Panel, Sysctl, good
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.plan import Item, Plan, Step
from gpudoctor.model.story import Fate, KeptItem, KeptStep, PlanRecord, Story, Told
from gpudoctor.plan import make_plan
from gpudoctor.snapshots.plans import dump
from gpudoctor.snapshots.store import machine_folder, write_whole
from gpudoctor.story.again import forms_of, put_back, taken_back

MACHINE, OLD, NEW = "a" * 32, "20260101-000000-00000a", "20260102-000000-00000b"
SWAP, LIMIT = Sysctl("vm.swappiness", "1"), GpuSetting(("0000:41:00.0",), "persistence", "Enabled")
FILE = OwnFile("/etc/sysctl.d/90-gpudoctor-swap.conf", "vm.swappiness = 1\n")


def told(fate: Fate, change: Change = SWAP, **more: Any) -> Told:
    values = (("vm.swappiness", "1", "60"), ("vm.other", "2", "2"))
    base = Told(OLD, "ana", "2026-01-01", "swap", 1, change.title, fate, "why", values)
    return replace(base, can_last=True, **more)


def plan(*changes: Change) -> Plan:
    """Return a plan of the check that sets a value, or writes a file."""
    item = Item("vm.swappiness", "r", "60", "1", "w", "u")
    steps = tuple(Step("swap", change, (item,)) for change in changes)
    return Plan(NEW, "gpu1", "bob@desk", MACHINE, "b1", steps, "sh", "hash")


def story(*some: Told) -> Story:
    return Story("gpu1", True, "rebooted", None, some)


def only(found: Story) -> Told:
    (one,) = found.told
    return one


@pytest.mark.parametrize("fate", [fate for fate in Fate if fate is not Fate.KEPT])
def test_what_was_put_back_is_kept_and_tells_by_whom(fate: Fate) -> None:
    one = only(put_back(story(told(fate, by="the reboot")), plan(SWAP)))
    assert (one.fate, one.why, one.again) == (
        Fate.KEPT,
        f"it was {fate}, and is as set again",
        True,
    )
    assert (one.transaction, one.operator, one.by, one.lasts) == (NEW, "bob@desk", "", False)
    assert one.values == (("vm.swappiness", "1", "1"), ("vm.other", "2", "2"))
    assert only(put_back(story(one), plan(SWAP))) == one


def test_what_the_plan_does_not_set_stays_as_it_was() -> None:
    other, kept = told(Fate.LOST, check="other"), told(Fate.KEPT)
    assert put_back(story(other, kept), plan(SWAP)) == story(other, kept)


def test_a_file_of_ours_that_is_put_back_lasts() -> None:
    assert only(put_back(story(told(Fate.LOST, FILE)), plan(FILE))).lasts


def test_taken_back_it_is_lost_again() -> None:
    one = only(taken_back(put_back(story(told(Fate.LOST)), plan(SWAP)), plan(SWAP)))
    assert (one.fate, one.again) == (Fate.LOST, False) and "taken back again" in one.why
    assert one.values[0] == ("vm.swappiness", "1", "60")
    assert taken_back(story(told(Fate.LOST)), plan(SWAP)) == story(told(Fate.LOST))


def test_the_file_makes_it_last_until_it_is_taken_back() -> None:
    lasting = put_back(story(told(Fate.KEPT)), plan(FILE))
    one = only(lasting)
    assert (one.lasts, one.by, one.fate) == (True, FILE.path, Fate.KEPT)
    assert one.why == f"{FILE.path} makes it last"
    one = only(taken_back(lasting, plan(FILE)))
    assert (one.lasts, one.by, one.why) == (False, "", "it is as it was set")


def test_another_file_that_is_taken_back_leaves_it_lasting() -> None:
    lasting = story(told(Fate.KEPT, lasts=True, by="/etc/sysctl.d/another.conf"))
    assert taken_back(lasting, plan(FILE)) == lasting


# What makes a kept change last.


def keep(*changes: Change) -> None:
    item = KeptItem("vm.swappiness", "60", "1")
    steps = tuple(KeptStep("swap", 1, change.title, (item,), change) for change in changes)
    record = PlanRecord(OLD, "gpu1", "ana", MACHINE, "b1", "2026-01-01T00:00:00", steps)
    write_whole(machine_folder(MACHINE, "gpu1") / f"{OLD}.plan.toml", dump(record))


def audit(*checks: str) -> AuditResult:
    found = (
        Finding(check, Panel.KERNEL_KNOBS, "", "host", good("fine"), "", "") for check in checks
    )
    return AuditResult("gpu1", "root", Identity("gpu1", MACHINE, "b1"), findings=tuple(found))


def test_the_form_of_a_kept_change_is_planned_although_its_check_is_good() -> None:
    keep(SWAP, LIMIT)
    forms, without = forms_of([told(Fate.KEPT)], audit("swap", "other"))
    assert forms is not None and without == ()
    (finding,) = forms.findings
    ((file,),) = finding.verdict.changes
    assert isinstance(file, OwnFile) and "vm.swappiness = 1" in file.text
    now = dict.fromkeys(reads_of(file), "") | {file.path: "absent", "/etc/sysctl.d": "there"}
    made = make_plan(forms, {file: now}, ["swap"], confirm_within=0)
    assert [step.change for step in made.steps] == [file] and not made.refused


@pytest.mark.parametrize(
    ("kept", "checks"), [((), ("swap",)), ((SWAP,), ("other",)), ((LIMIT,), ("swap",))]
)
def test_what_cannot_be_made_to_last_is_named(
    kept: tuple[Change, ...], checks: tuple[str, ...]
) -> None:
    """Without a record, without its check, and with another change in the record."""
    keep(*kept)
    forms, without = forms_of([told(Fate.KEPT)], audit(*checks))
    assert forms is None and without == (SWAP.title,)
