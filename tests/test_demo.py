"""The demo host: every row of the audit it reproduces, and nothing alarming beside them."""

import asyncio
from collections import Counter
from functools import cache

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.checks import by_id
from gpudoctor.hosts.recorded import RecordedTarget
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.model import Finding, Panel, Side, Status, Verdict
from gpudoctor.model.audited import AuditResult
from gpudoctor.recording import Answers

# What the audit confirmed good: the sixteen, then what it says beside them.
GOOD = """
uefi-iommu-mode pcie-link-gen pcie-link-width pcie-aer-counters uefi-iommu-group-isolation
uefi-rebar-bar1 pwr-gpu-temp pwr-gpu-limit pwr-clocks drv-ecc-mode drv-ecc-errors pwr-psu-capacity
kern-governor pcie-relaxed-ordering pcie-no-snoop pcie-10bit-tags pcie-ecrc

drv-persistence-mode drv-compute-mode drv-mig-mode drv-version drv-kernel-module-flavor
drv-gsp-firmware drv-min-for-cuda mem-fb-total uefi-gpu-count kern-sched-migration-cost
kern-thp-enabled kern-thp-defrag
"""

# Every issue: id, class, impact, needs, and what its observation or remedy must say.
ISSUES = [
    ("nccl-p2p-level", "P0", "medium", "server-restart", "NCCL_P2P_LEVEL"),
    ("pcie-max-read-req", "P0", "unproven", "nothing", "512 bytes (DevCtl 2937)"),
    ("kern-numa-balancing", "P0", "low", "nothing", "1 on 2 nodes"),
    ("kern-cstate-exit", "P0", "low", "nothing", "C2 100 \u00b5s"),
    ("kern-swappiness", "P0", "low", "nothing", "60, 8.0 GiB of swap"),
    ("kern-nmi-watchdog", "P0", "low", "nothing", "1"),
    ("kver-cpufreq-driver", "P1", "low", "reboot", "acpi-cpufreq"),
    ("kver-series-latest", "P1", "low", "reboot", "6.8.12-9, candidate 6.8.12-18"),
    ("kver-zen5", "P1", "low", "reboot", "builds for the newer kernel"),
    ("kern-dirty", "P2", "low", "nothing", "10 % of 504 GiB"),
]

# Negative results, each with a word of its explanation.
NON_ISSUES = [
    ("lxc-memlock", "63 GiB"),
    ("nccl-peermem", "RDMA"),
    ("nccl-nvlink", "no NVLink"),
    ("nccl-nvswitch-misid", "ASPEED"),
    ("pcie-max-payload", "256"),
    ("nccl-custom-allreduce", "PCIe"),
    ("kern-epp", "acpi-cpufreq"),
]

# What nobody can tell without disturbing the GPUs or asking the engine.
UNKNOWN = [("mem-fragmentation", "needs-app-metrics"), ("nccl-p2p-bandwidth", "not-measured")]

SHOWN = [
    ("kver-running", "6.8.12-9-pve"),
    ("pwr-idle-draw", "14% of 600 W"),
    ("pcie-device-identity", "1a03:2000"),
    ("rt-launch-flags", "/models/GLM-5-NVFP4"),
    ("rt-baseline", "10.34 tok/s, TPOT 95.21 ms"),
]


@cache
def result() -> AuditResult:
    return asyncio.run(run_audit(SimulatedTarget(demo_machine(), NO_WAIT)))


def of(name: str) -> list[Finding]:
    return [finding for finding in result().findings if finding.id == name]


def said(finding: Finding) -> str:
    verdict = finding.verdict
    return " ".join((verdict.summary, verdict.observed, verdict.remedy, finding.why))


def test_audit_is_whole() -> None:
    assert result().problems == ()
    assert not result().incomplete
    assert result().simulated
    assert "simulated" in result().label
    assert str(result().container) == "lxc:101"
    assert result().identity.kernel == "6.8.12-9-pve"
    assert {finding.id for finding in result().findings} == set(by_id())
    assert set(result().panels) == set(Panel)


@pytest.mark.parametrize("name", GOOD.split())
def test_confirmed_good(name: str) -> None:
    assert [finding.status for finding in of(name)] == [Status.GOOD]


def test_all_gpus_are_judged_alike() -> None:
    assert len(of("pcie-link-gen")[0].verdict.targets) == 8
    counts = Counter(finding.id for finding in result().findings)
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize(("name", "cls", "impact", "needs", "says"), ISSUES)
def test_issues(name: str, cls: str, impact: str, needs: str, says: str) -> None:
    (finding,) = of(name)
    verdict = finding.verdict
    row = (str(verdict.status), str(verdict.cls), str(verdict.impact), str(verdict.needs))
    assert row == ("issue", cls, impact, needs)
    assert says in said(finding)


def test_no_other_issue() -> None:
    found = [finding.id for finding in result().of(Status.ISSUE)]
    assert sorted(found) == sorted(row[0] for row in ISSUES)
    assert found[0] == "nccl-p2p-level"


@pytest.mark.parametrize(("name", "says"), NON_ISSUES)
def test_negative_results(name: str, says: str) -> None:
    (finding,) = of(name)
    assert finding.status is Status.NON_ISSUE
    assert says in said(finding)


def test_no_other_negative_result() -> None:
    found = {finding.id for finding in result().of(Status.NON_ISSUE)}
    assert found <= {name for name, _ in NON_ISSUES} | {"drv-fabricmanager"}


def test_unknown_only_where_the_seed_cannot_tell() -> None:
    found = [
        (finding.id, str(finding.verdict.unknown.reason))
        for finding in result().of(Status.UNKNOWN)
        if finding.verdict.unknown
    ]
    assert found == UNKNOWN


@pytest.mark.parametrize(("name", "says"), SHOWN)
def test_context(name: str, says: str) -> None:
    (finding,) = of(name)
    assert finding.status is Status.INFO
    assert says in said(finding)


def test_corrections_are_told() -> None:
    assert "not" in of("nccl-peermem")[0].why
    assert "CUDA pinned memory" in of("lxc-memlock")[0].why
    assert [c.title for (c,) in of("kern-numa-balancing")[0].verdict.changes] == [
        "sysctl kernel.numa_balancing = 0"
    ]


def test_a_change_shows_in_the_next_audit() -> None:
    machine = demo_machine()
    assert machine.sh("sysctl -w kernel.numa_balancing=0") == (0, "kernel.numa_balancing = 0\n", "")
    again = asyncio.run(run_audit(SimulatedTarget(machine, NO_WAIT), panels=[Panel.KERNEL_KNOBS]))
    (finding,) = [f for f in again.findings if f.id == "kern-numa-balancing"]
    assert finding.status is Status.GOOD


def test_a_recording_is_judged_as_the_machine_was() -> None:
    sides = {Side.HOST: Answers(), Side.CONTAINER: Answers()}
    for key, probe in result().asked.items():
        sides[probe.side].keep(probe, result().evidence[key])
    again = asyncio.run(run_audit(RecordedTarget("kept", sides, result().container)))
    assert verdicts(again) == verdicts(result())


def verdicts(audited: AuditResult) -> dict[str, Verdict]:
    return {finding.id: finding.verdict for finding in audited.findings}
