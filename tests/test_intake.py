"""`--from`: kinds are told from content, and every real file of the corpus is judged or refused."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.intake import KINDS, recorded_target
from gpudoctor.model import Finding, Reason, Status
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal
from gpudoctor.recording import dump

CORPUS = Path(__file__).parents[1].parent / "shared" / "corpus"
FOLDERS = {
    "nvidia-smi -q -x": "nvidia-smi-xml/*.xml",
    "lspci -vvv": "lspci/*.txt",
    "nvidia-smi topo -m": "nvidia-smi-text/topo-m/*.txt",
    "an LXC conf": "lxc/*.conf",
}


def audited(*paths: Path) -> AuditResult:
    return asyncio.run(run_audit(recorded_target([str(path) for path in paths])))


def kind_of(path: Path) -> str:
    import gpudoctor.intake as intake

    return intake._kind(str(path), path.read_bytes()).name


@pytest.mark.parametrize("name", FOLDERS)
def test_corpus_files_are_recognised(name: str) -> None:
    paths = sorted(CORPUS.glob(FOLDERS[name]))
    if not paths:
        pytest.skip("no corpus beside this checkout")
    seen: Counter[str] = Counter()
    for path in paths:
        try:
            seen[kind_of(path)] += 1
        except Refusal:
            seen["refused"] += 1
    assert set(seen) <= {name, "refused"}
    assert seen[name] >= 0.9 * len(paths), seen


@pytest.mark.parametrize("name", FOLDERS)
def test_corpus_files_are_judged(name: str) -> None:
    paths = sorted(CORPUS.glob(FOLDERS[name]))
    if not paths:
        pytest.skip("no corpus beside this checkout")
    for path in paths:
        try:
            result = audited(path)
        except Refusal:
            continue
        assert tripped(result) == [], path.name


def tripped(result: AuditResult) -> list[str]:
    """Return findings whose rule raised: a fault in gpudoctor, not in the file."""
    return [f.verdict.summary for f in result.findings if "the rule failed" in f.verdict.summary]


def test_a_recording_is_judged_as_the_live_host(tmp_path: Path) -> None:
    live = asyncio.run(run_audit(SimulatedTarget(demo_machine(), NO_WAIT)))
    path = tmp_path / "demo.toml"
    path.write_bytes(dump(live))
    kept = audited(path)
    assert rows(kept) == rows(live)
    assert (kept.identity, kept.container, kept.simulated) == (
        live.identity,
        live.container,
        True,
    )


def rows(result: AuditResult) -> list[Finding]:
    return sorted(result.findings, key=lambda f: (f.id, f.status, f.verdict.targets))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("nvidia-smi -q -x", "<?xml version='1.0'?>\n<nvidia_smi_log>\n</nvidia_smi_log>\n", ""),
        ("lspci -vvv", "01:00.0 3D controller: NVIDIA Corporation GH100 (rev a1)\n", ""),
        (
            "nvidia-smi topo -m",
            "\x1b[4mGPU0\tGPU1\tCPU Affinity\x1b[0m\nGPU0\t X \tNODE\t0-3\nGPU1\tNODE\t X \t0-3\n",
            "",
        ),
        ("/proc/cmdline", "BOOT_IMAGE=/vmlinuz-6.8.12 root=/dev/mapper/pve-root ro quiet\n", ""),
        ("an LXC conf", "arch: amd64\nfeatures: nesting=1\nrootfs: local:101\n", ""),
        ("an LXC conf", "lxc.uts.name = gpu\nlxc.rootfs.path = dir:/x\n", ""),
    ],
)
def test_kinds(name: str, text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    assert kind_of(path) == name
    result = audited(path)
    assert tripped(result) == []
    others = [f for f in result.findings if f.verdict.unknown]
    assert any(
        f.verdict.unknown.reason is Reason.NOT_IN_RECORDING for f in others if f.verdict.unknown
    )


def test_truncated_xml_is_unknown_and_the_rest_is_judged(tmp_path: Path) -> None:
    xml, line = tmp_path / "x.xml", tmp_path / "cmdline"
    xml.write_text("<?xml version='1.0'?>\n<nvidia_smi_log>\n<gpu id='00000000:01:00.0'>\n<uuid>G")
    line.write_text("BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro isolcpus=2-3\n")
    result = audited(xml, line)
    driver = [f for f in result.findings if f.id == "drv-persistence-mode"]
    assert [f.verdict.unknown.reason for f in driver if f.verdict.unknown] == [Reason.PARSE_FAILED]
    assert any(f.status is not Status.UNKNOWN for f in result.findings)


def test_a_command_line_alone_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "cmdline"
    path.write_text(
        "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro pci=noaer,pcie_bus_peer2peer isolcpus=2\n"
    )
    found = {f.id: f.status for f in audited(path).findings if f.status is not Status.UNKNOWN}
    assert found == {
        "uefi-aer-enabled": Status.ISSUE,
        "pcie-bus-config-policy": Status.ISSUE,
        "kern-isolation": Status.INFO,
    }


@pytest.mark.parametrize(("bar1", "status"), [(256, Status.INFO), (32768, Status.GOOD)])
def test_bar1_in_an_xml_alone_is_never_an_issue(bar1: int, status: Status, tmp_path: Path) -> None:
    path = tmp_path / "x.xml"
    path.write_text(
        "<?xml version='1.0'?>\n<nvidia_smi_log><driver_version>570.86.10</driver_version>"
        '<attached_gpus>1</attached_gpus><gpu id="00000000:01:00.0">'
        "<fb_memory_usage><total>24576 MiB</total></fb_memory_usage>"
        f"<bar1_memory_usage><total>{bar1} MiB</total></bar1_memory_usage></gpu></nvidia_smi_log>\n"
    )
    statuses = [f.status for f in audited(path).findings if f.id == "uefi-rebar-bar1"]
    assert statuses == [status]


@pytest.mark.parametrize("text", ["x" + "\n" * 300_000, "GPU0 \n" * 60_000, " " * 300_000 + "x"])
def test_kinds_are_told_in_a_moment(text: str) -> None:
    begun = time.monotonic()
    for kind in KINDS:
        kind.recognises(text)
    assert time.monotonic() - begun < 5


def test_files_of_two_hosts_are_no_lost_gpu(tmp_path: Path) -> None:
    xml, lspci = tmp_path / "x.xml", tmp_path / "lspci"
    xml.write_text(
        "<?xml version='1.0'?>\n<nvidia_smi_log><attached_gpus>1</attached_gpus>"
        '<gpu id="00000000:09:00.0"></gpu></nvidia_smi_log>\n'
    )
    lspci.write_text("0000:c1:00.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2331]\n")
    found = [f for f in audited(xml, lspci).findings if f.id == "uefi-gpu-count"]
    assert [f.status for f in found] == [Status.UNKNOWN]
    assert "of one host" in found[0].verdict.summary


def test_kinds_have_names() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
