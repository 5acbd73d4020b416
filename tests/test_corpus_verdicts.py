"""Real outputs: the only findings of medium impact and above are those that were looked at."""

import asyncio
from pathlib import Path

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.intake import recorded_target
from gpudoctor.model import Impact, Reason, Status
from gpudoctor.model.error import Refusal

CORPUS = Path(__file__).parents[1].parent / "shared" / "corpus"
FOLDERS = ("nvidia-smi-xml/*.xml", "lspci/*.txt", "nvidia-smi-text/topo-m/**/*.txt", "lxc/*.conf")
FILES = sorted(path for pattern in FOLDERS for path in CORPUS.glob(pattern))
HIGH, MEDIUM = Impact.HIGH, Impact.MEDIUM
OFF = {"drv-persistence-mode": MEDIUM}
ERRORS = {"drv-ecc-errors": HIGH, "mem-row-remap": HIGH}
# Persistence off with nobody on the GPU; injected errors; GPUs that read all ones; a board of 2009
# whose GPU has extended tags off; a BAR without a place.
KNOWN = {
    "k8s-test-infra-MOCK-gb200-ecc-injected": ERRORS,
    "k8s-test-infra-MOCK-gb200-lost": ERRORS | {"drv-recovery-action": HIGH},
    "llamaland-nvidia-smi": OFF,
    "netdata-rtx-3060": OFF,
    "netdata-tesla-p100": OFF,
    "telegraf-a100-sxm4-v12": OFF,
    "telegraf-gt-1030": OFF,
    "telegraf-quadro-p400": OFF,
    "m11x-gt335m-oldformat": {"pcie-ext-tags": MEDIUM},
    "ncx-fallen-off-rev-ff": {"uefi-gpu-count": HIGH},
    "rtx2090-jizef-nonroot": {"uefi-gpu-count": HIGH},
    "rk3588-rtx3090-bar-unassigned-x1": {"uefi-above-4g": HIGH},
}


@pytest.mark.skipif(not FILES, reason="the corpus of real outputs is not beside the repository")
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_real_output_raises_no_other_alarm(path: Path) -> None:
    try:
        result = asyncio.run(run_audit(recorded_target([str(path)])))
    except Refusal:
        pytest.skip("a part of an output that no probe would give")
    raised = {
        finding.id: finding.verdict.impact
        for finding in result.findings
        if finding.status is Status.ISSUE and finding.verdict.impact in {HIGH, MEDIUM}
    }
    assert raised == KNOWN.get(path.stem, {})


@pytest.mark.skipif(not FILES, reason="the corpus of real outputs is not beside the repository")
def test_a_bare_report_says_nothing_of_what_it_does_not_hold() -> None:
    path = CORPUS / "nvidia-smi-xml" / "telegraf-3090-v13.xml"
    result = asyncio.run(run_audit(recorded_target([str(path)])))
    (lockdown,) = [f for f in result.findings if f.id == "uefi-kernel-lockdown"]
    assert lockdown.verdict.unknown is not None
    assert lockdown.verdict.unknown.reason is Reason.NOT_IN_RECORDING
