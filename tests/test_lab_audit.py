"""Audits of the lab VM over SSH, as three users and into its LXC container; it stays as it was."""

import asyncio
from collections.abc import Mapping

import pytest

from gpudoctor.audit import Audit, run_audit
from gpudoctor.hosts.ssh import SshTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import Finding, Panel, Reason, Status
from gpudoctor.model.audited import AuditResult, Judged
from gpudoctor.model.place import ContainerRef
from gpudoctor.report import exit_code
from tests.lab_vm import Lab

GPU0, GPU1 = "0000:21:00.0", "0000:41:00.0"
CONTAINER = ContainerRef("lxc", "gpu")
ISSUES = {
    "pcie-link-width": (GPU1,),
    "uefi-rebar-bar1": (GPU1,),
    "pcie-max-read-req": (GPU0, GPU1),
    "kern-numa-balancing": (),
    "kern-cstate-exit": (),
}


def target(lab: Lab, login: str, container: ContainerRef | None = None) -> LiveTarget:
    return LiveTarget(SshTransport(login, str(lab.config)), container)


def audited(lab: Lab, login: str, container: ContainerRef | None = None) -> AuditResult:
    return asyncio.run(run_audit(target(lab, login, container)))


def issues(result: AuditResult) -> Mapping[str, Finding]:
    return {f.id: f for f in result.of(Status.ISSUE)}


def marked(lab: Lab) -> str:
    """Return what of ours runs there: processes that carry a session's mark."""
    look = "grep -las 'GP[DG]=' /proc/[0-9]*/environ || true"
    return lab.run(look)


@pytest.fixture(scope="module")
def as_root(lab: Lab) -> AuditResult:
    return audited(lab, "lab", CONTAINER)


def test_root_sees_the_faults_of_the_lab(as_root: AuditResult) -> None:
    found = issues(as_root)
    assert as_root.problems == ()
    assert {check: found[check].verdict.targets for check in ISSUES} == ISSUES
    assert exit_code(as_root) == 1


def test_the_container_is_judged_from_inside(as_root: AuditResult) -> None:
    mine = {f.id: f for f in as_root.findings if f.panel is Panel.CONTAINER}
    assert mine["lxc-runtime-kind"].verdict.observed.startswith("lxc")
    assert mine["lxc-cpu-limit"].verdict.observed.startswith("2 CPUs")
    assert mine["lxc-memlock"].status is not Status.UNKNOWN
    assert mine["lxc-memory-limit"].status is not Status.UNKNOWN


def test_gpus_without_a_driver_are_never_good(as_root: AuditResult) -> None:
    driver = [f for f in as_root.findings if f.panel is Panel.DRIVER]
    assert [f.id for f in driver if f.status is Status.GOOD and f.verdict.targets] == []


def test_a_sudoer_sees_what_root_sees(lab: Lab, as_root: AuditResult) -> None:
    seen = audited(lab, "lab-ops")
    assert seen.user == "root"
    host = {f.id for f in as_root.of(Status.ISSUE) if f.panel is not Panel.CONTAINER}
    assert set(issues(seen)) == host


def test_a_user_without_rights_gets_reasons(lab: Lab) -> None:
    seen = audited(lab, "lab-viewer")
    reasons = {f.id: f.verdict.unknown.reason for f in seen.findings if f.verdict.unknown}
    assert reasons["pcie-max-read-req"] is Reason.NO_PERMISSION
    assert "kern-numa-balancing" in issues(seen) and "pcie-link-width" in issues(seen)


def test_a_wrong_container_leaves_the_host_judged(lab: Lab) -> None:
    seen = audited(lab, "lab", ContainerRef("lxc", "nosuch"))
    assert len(seen.problems) == 1 and "lxc:nosuch" in seen.problems[0]
    assert seen.incomplete and "kern-numa-balancing" in issues(seen)


def test_an_audit_leaves_the_host_as_it_was(lab: Lab) -> None:
    changed = (
        "find / -xdev -newer /run/audit-mark -type f "
        "! -path '/var/log/*' ! -path '/proc/*' ! -path '/run/*' ! -path '/sys/*'; "
        "find /run /dev/shm /tmp -xdev -newer /run/audit-mark -type f "
        "! -path '/run/log/*' ! -path '/run/systemd/*' ! -path '/run/user/*' ! -path '/run/udev/*' "
        "! -path /run/motd.dynamic"  # the login's own, by PAM
    )
    lab.run("sync; touch /run/audit-mark")
    before = (lab.run("dmesg"), lab.run("cat /proc/modules | cut -d' ' -f1"))
    audited(lab, "lab", CONTAINER)
    assert (lab.run("dmesg"), lab.run("cat /proc/modules | cut -d' ' -f1")) == before
    assert lab.run(changed) == ""
    assert marked(lab) == ""


def test_a_cancelled_audit_leaves_nothing_running(lab: Lab) -> None:
    async def cut_short() -> None:
        audit = Audit(target(lab, "lab-ops", CONTAINER))
        async for event in audit.run():
            if isinstance(event, Judged):
                break
        await audit.close()

    asyncio.run(cut_short())
    deadline = 20
    while marked(lab) and deadline:
        deadline -= 1
    assert marked(lab) == ""
