"""Worked plans accepted, and what the next audits tell of them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpudoctor.model import (
    Class,
    Finding,
    Impact,
    Needs,
    Panel,
    Reason,
    Verdict,
    Worked,
    good,
    issue,
    unknown,
)
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.pending import Outcome
from gpudoctor.model.plan import ByHand
from gpudoctor.report import markdown, plain
from gpudoctor.report_json import audit_json
from gpudoctor.snapshots import pending
from gpudoctor.snapshots.store import machine_folder

MACHINE = "0123456789abcdef0123456789abcdef"
PLAN = Worked("kernel command line +iommu=pt", ("update-grub", "reboot"), ("reboot",))


def result_of(verdict: Verdict, boot: str = "boot-1") -> AuditResult:
    finding = Finding("uefi-iommu-mode", Panel.FIRMWARE, "", "host", verdict, "", "")
    return AuditResult(
        "gpu1", "root", Identity(machine_id=MACHINE, boot_id=boot), None, (), (finding,)
    )


def bad(observed: str = "DMA-FQ") -> Verdict:
    return issue("translated", Class.P1, Impact.LOW, observed, "identity", needs=Needs.REBOOT)


def accept() -> None:
    plan = ByHand("uefi-iommu-mode", PLAN, Needs.REBOOT, "DMA-FQ", "identity")
    pending.accept(MACHINE, "gpu1", [plan], "boot-1")


@pytest.mark.parametrize(
    ("verdict", "boot", "outcome", "words"),
    [
        (bad(), "boot-1", Outcome.NOT_YET, "the host was not rebooted since"),
        (bad(), "boot-2", Outcome.NOT_YET, "although the host was rebooted since"),
        (bad("DMA"), "boot-2", Outcome.DIFFERENTLY, "DMA now, DMA-FQ before, identity expected"),
        (good("passthrough"), "boot-2", Outcome.DONE, "done: passthrough"),
        (unknown(Reason.NO_PERMISSION, "not read"), "boot-2", Outcome.UNKNOWN, "not read"),
    ],
)
def test_what_an_audit_tells(verdict: Verdict, boot: str, outcome: Outcome, words: str) -> None:
    accept()
    (told,) = pending.tell_pending(result_of(verdict, boot))
    assert told.outcome is outcome and words in told.sentence


def test_a_panel_that_was_not_read_tells_nothing() -> None:
    accept()
    (told,) = pending.tell_pending(AuditResult("gpu1", "root", Identity(machine_id=MACHINE)))
    assert told.outcome is Outcome.UNKNOWN and "was not read" in told.sentence


def test_done_is_told_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    accept()
    done = result_of(good("passthrough"), "boot-2")
    for _ in range(2):
        assert [told.outcome for told in pending.tell_pending(done)] == [Outcome.DONE]
    later = (datetime.now(UTC) + timedelta(days=2)).isoformat(timespec="seconds")
    monkeypatch.setattr(pending, "datetime", _Later(later))
    assert pending.tell_pending(done) == ()
    assert pending.pending(MACHINE, "gpu1") == []


class _Later:
    """A clock that stands at another time."""

    def __init__(self, now: str) -> None:
        self._now = datetime.fromisoformat(now)

    def now(self, zone: object) -> datetime:
        return self._now

    def fromisoformat(self, text: str) -> datetime:
        return datetime.fromisoformat(text)


def test_one_plan_a_check() -> None:
    accept()
    accept()
    (one,) = pending.pending(MACHINE, "gpu1")
    assert one.commands == PLAN.commands and one.undo == PLAN.undo
    assert pending.pending("f" * 32, "gpu1") == []


def test_a_user_without_a_home_is_audited_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    assert pending.tell_pending(result_of(bad())) == ()


@pytest.mark.parametrize(
    "text", ["", "schema = 2", "schema = 1\nplan = 3", "\x00", "plan = [", "schema = 1\nplan = 'x'"]
)
def test_a_damaged_file_counts_as_nothing(text: str) -> None:
    accept()
    path: Path = machine_folder(MACHINE, "gpu1") / "pending.toml"
    path.write_text(text)
    assert pending.pending(MACHINE, "gpu1") == []
    accept()
    assert len(pending.pending(MACHINE, "gpu1")) == 1


def test_every_report_tells_it() -> None:
    accept()
    result = result_of(bad())
    told = replace(result, pending=pending.tell_pending(result))
    for text in (plain(told, 500), markdown(told), audit_json(told)):
        assert "the host was not rebooted since" in text
