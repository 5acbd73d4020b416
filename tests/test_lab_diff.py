"""A diff across a real boot: the same machine, with a card pulled and another command line."""

import asyncio
from pathlib import Path

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.comparing import compared
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.diff import Moved
from gpudoctor.model.snapshot import Kind
from gpudoctor.report_diff import sentence
from gpudoctor.snapshots.diff import diff
from gpudoctor.snapshots.store import save
from tests.lab_vm import Lab, started

PULLED = "0000:41:00.0"
WORD = "mitigations=off"


def audited(lab: Lab) -> AuditResult:
    return asyncio.run(run_audit(LiveTarget(lab.transport(shared=True))))


def test_a_pulled_card_and_another_command_line_are_told(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = save(audited(lab), Kind.MANUAL)
    run = tmp_path / "other"
    run.mkdir()
    with started(run, LAB_ONE_GPU="1", LAB_APPEND=WORD) as other:
        other.settle()
        after = audited(other)
    told = diff(compared(before), compared(after))
    assert told.old.identity.machine_id == told.new.identity.machine_id
    assert any("booted anew" in remark for remark in told.remarks)
    gone = [one for one in told.inventory if one.moved is Moved.GONE]
    assert [PULLED in sentence(one) for one in gone].count(True) == 1, gone
    added = [sentence(one) for one in told.settings if one.moved is Moved.ADDED]
    assert "kernel command line mitigations: off" in added
    assert not any("0000:21:00.0" in sentence(one) for one in told.inventory)
