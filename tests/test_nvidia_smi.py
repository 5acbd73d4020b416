"""nvidia-smi's XML: every generation of the corpus against its index, and what bites."""

import contextlib
import re
import time
from pathlib import Path

import pytest

from gpudoctor.formats.nvidia_smi import SmiLog, parse_nvidia_smi
from gpudoctor.formats.nvidia_smi_apps import parse_compute_apps
from gpudoctor.formats.nvidia_smi_values import number, sysfs_bdf, word
from gpudoctor.model import Evidence, Facts, Reason, Unknown
from gpudoctor.probes.gpu import GPUS, NVIDIA_SMI_XML
from gpudoctor.text import clean

CORPUS = Path(__file__).parents[1].parent / "shared" / "corpus" / "nvidia-smi-xml"
FILES = sorted(CORPUS.glob("*.xml"))
needs_corpus = pytest.mark.skipif(not FILES, reason="the corpus is not beside the repository")


def read(name: str) -> SmiLog:
    return parse_nvidia_smi(clean((CORPUS / name).read_bytes()))


def index() -> dict[str, str]:
    text = (CORPUS.parent / "INDEX.md").read_text()
    return dict(re.findall(r"^- `nvidia-smi-xml/([^`]+)` \| [^|]*\| (.*)$", text, re.MULTILINE))


@needs_corpus
@pytest.mark.parametrize("path", FILES, ids=[p.stem for p in FILES])
def test_corpus_file_as_its_index_says(path: Path) -> None:
    log, said = read(path.name), index()[path.name]
    match = re.match(r"(\d+)x (.+?); driver (\S+); CUDA (\S+);", said)
    assert match, said
    count, name, driver, cuda = match.groups()
    assert len(log.gpus) == int(count)
    assert {gpu.name for gpu in log.gpus} == {name}
    for value, want in ((log.driver_version, driver), (log.cuda_version, cuda)):
        assert isinstance(value, Unknown) if want == "absent" else value == want
    assert ("persistence off" in said) == any(gpu.persistence is False for gpu in log.gpus)
    for gpu in log.gpus:
        assert re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", gpu.bdf)
        assert isinstance(gpu.uuid, str) and gpu.uuid.startswith("GPU-")


@needs_corpus
@pytest.mark.parametrize("path", FILES, ids=[p.stem for p in FILES])
def test_numbers_of_a_corpus_file_are_sane(path: Path) -> None:
    for gpu in read(path.name).gpus:
        ranges = (
            (gpu.memory.total, 1000, 400_000),
            (gpu.bar1.total, 64, 1 << 20),
            (gpu.temperature.gpu, 10, 100),
            (gpu.power.enforced, 10, 1500),
            (gpu.max_clocks.memory, 300, 20_000),
            (gpu.link.width, 1, 16),
        )
        for value, low, high in ranges:
            assert isinstance(value, Unknown) or low <= value <= high
        assert all(isinstance(v, bool | Unknown) for v in gpu.reasons.values())


@needs_corpus
def test_a_lost_gpu_leaves_the_other_judged() -> None:
    well, lost = read("k8s-test-infra-MOCK-gb200-lost.xml").gpus
    assert lost.sick == ("GPU is lost",) and not well.sick
    assert isinstance(lost.memory.total, Unknown)
    assert lost.memory.total.reason is Reason.GPU_AT_RISK
    assert well.memory.total == 196608
    assert well.ecc_counts.volatile_uncorrected == 5
    assert well.ecc_counts.aggregate_uncorrected == 8
    assert not isinstance(well.remapping, Unknown) and well.remapping.failed is True
    assert isinstance(lost.remapping, Unknown)
    assert well.fabric_state == "Completed" and well.c2c == "Enabled"


@needs_corpus
def test_mig_slices_do_not_pass_for_the_gpu() -> None:
    (gpu,) = read("telegraf-a100-sxm4-v12.xml").gpus
    assert (gpu.mig.current, gpu.mig_instances) == ("Enabled", 4)
    assert (gpu.memory.total, gpu.bar1.total) == (81920, 131072)
    assert isinstance(gpu.utilization, Unknown)


@needs_corpus
def test_tags_renamed_over_the_years_read_alike() -> None:
    first = read("kristophjunge-6x-gtx1070-v9.xml").gpus[0]
    assert first.reasons["hw_slowdown"] is False and first.link.width == 1
    assert first.temperature.slow_at == 96
    volta = read("v100s-passthrough-v11-TRIMMED.xml").gpus[0]
    assert (volta.power.draw, volta.power.enforced, volta.virtualization) == (
        232.8,
        250.0,
        "Pass-Through",
    )
    ada = read("telegraf-rtx-4000-sff-ada-v13.xml").gpus[0]
    assert ada.counters["sw_power_cap"] == 4251825415 and ada.temperature.margin == 49
    assert isinstance(ada.processes, tuple) and len(ada.processes) == 4 and ada.computing == 2
    bare = read("netdata-rtx-pro-6000-driver-580.xml").gpus[0]
    assert bare.power.draw == 66.84 and bare.temperature.gpu == 37
    pascal = read("netdata-tesla-p100.xml").gpus[0]
    assert pascal.ecc_counts.aggregate_corrected == 3
    assert pascal.ecc_counts.volatile_uncorrected == 0


GOOD = '<gpu id="00000000:21:00.0"><product_name>NVIDIA L4</product_name></gpu>'


def report(body: str, head: str = "") -> str:
    return f'<?xml version="1.0" ?>{head}<nvidia_smi_log>{body}</nvidia_smi_log>'


def test_text_around_the_report_is_passed_over() -> None:
    text = "\ufeffsome notice\n" + report(GOOD) + "\nWARNING: infoROM is corrupted at gpu 0000:21"
    assert parse_nvidia_smi(clean(text)).gpus[0].name == "NVIDIA L4"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html></html>",
        report(GOOD)[:-4],
        "<nvidia_smi_log>" + GOOD + GOOD[:30],
        report(GOOD + GOOD),
        report('<gpu id="nonsense"></gpu>'),
        report(GOOD, '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'),
        report(GOOD, "<!DOCTYPE x SYSTEM 'file:///etc/passwd' [ <!ELEMENT x ANY> ]>"),
        report("".join(GOOD.replace(":21:", f":{n:02x}:") for n in range(65))),
    ],
)
def test_what_is_no_whole_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_nvidia_smi(text)


def test_a_report_without_gpus_is_no_gpu() -> None:
    assert parse_nvidia_smi(report("")).gpus == ()
    value = facts(Evidence(NVIDIA_SMI_XML.key, stdout=report("").encode(), exit=0))[GPUS]
    assert isinstance(value, Unknown) and value.reason is Reason.NOT_PRESENT


@pytest.mark.parametrize("piece", ['<gpu id="00000000:21:00.0">', "<supported_clocks>", "<gpu "])
def test_hostile_repetition_takes_linear_time(piece: str) -> None:
    start = time.process_time()
    with contextlib.suppress(ValueError):
        parse_nvidia_smi(report(piece * (4_000_000 // len(piece))))
    assert time.process_time() - start < 2


def test_an_undeclared_entity_costs_its_gpu_its_values_only() -> None:
    bad = '<gpu id="00000000:41:00.0"><product_name>&bomb;</product_name></gpu>'
    first, second = parse_nvidia_smi(report(GOOD + bad)).gpus
    assert first.name == "NVIDIA L4"
    assert second.bdf == "0000:41:00.0" and isinstance(second.name, Unknown)


def test_a_process_name_that_breaks_the_xml_costs_the_processes_only() -> None:
    named = "<processes><process_info><pid>1</pid><process_name>a & <b</process_name>"
    body = GOOD.replace("</gpu>", named + "</process_info></processes></gpu>")
    (gpu,) = parse_nvidia_smi(report(body)).gpus
    assert gpu.name == "NVIDIA L4" and isinstance(gpu.processes, Unknown)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("N/A", Reason.NOT_PRESENT),
        ("[Not Supported]", Reason.NOT_PRESENT),
        ("Requested functionality has been deprecated", Reason.NOT_PRESENT),
        (None, Reason.NOT_PRESENT),
        ("[Insufficient Permissions]", Reason.NO_PERMISSION),
        ("ERR!", Reason.GPU_AT_RISK),
        ("[GPU requires reset]", Reason.GPU_AT_RISK),
        ("Unknown Error", Reason.GPU_AT_RISK),
    ],
)
def test_absent_words_are_no_values(text: str | None, reason: Reason) -> None:
    value = word(text)
    assert isinstance(value, Unknown) and value.reason is reason
    assert isinstance(number(text), Unknown)


@pytest.mark.parametrize(
    ("text", "value"),
    [(" 37 C ", 37), ("-2 C", -2), ("600.00 W", 600), ("16x", 16), ("512 bank(s)", 512), ("7", 7)],
)
def test_units_are_dropped(text: str, value: float) -> None:
    assert number(text) == value


def test_bus_ids_become_those_of_sysfs() -> None:
    assert sysfs_bdf("00000000:0A:00.0") == "0000:0a:00.0"
    assert sysfs_bdf("0009:01:00.0") == "0009:01:00.0"
    assert sysfs_bdf("00010000:01:00.0") == "10000:01:00.0"


def test_compute_apps() -> None:
    rows = parse_compute_apps("GPU-a, 12, 300\nGPU-a, 13, [N/A]\n\n")["GPU-a"]
    assert [(row.pid, isinstance(row.used, Unknown)) for row in rows] == [(12, False), (13, True)]
    with pytest.raises(ValueError):
        parse_compute_apps("NVIDIA-SMI has failed\n")


def facts(smi: Evidence) -> Facts:
    gone = Unknown(Reason.NOT_PRESENT, "not there")
    keys = [probe.key for probe in GPUS.probes()]
    return Facts({key: Evidence(key, problem=gone) for key in keys} | {smi.key: smi})


@pytest.mark.parametrize(
    ("said", "exit_code", "reason"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9, ""),
        ("No devices were found", 6, ""),
        ("Unable to determine the device handle for GPU 0000:0A:00.0: GPU is lost.", 15, "risk"),
        ("Failed to initialize NVML: Driver/library version mismatch", 18, ""),
        ("<nvidia_smi_log><gpu id=", 0, "parse"),
        ("something else", 1, "parse"),
    ],
)
def test_failures_of_the_tool_say_why(said: str, exit_code: int, reason: str) -> None:
    value = facts(Evidence(NVIDIA_SMI_XML.key, stdout=said.encode(), exit=exit_code))[GPUS]
    assert isinstance(value, Unknown)
    wanted = {"": Reason.NOT_PRESENT, "risk": Reason.GPU_AT_RISK, "parse": Reason.PARSE_FAILED}
    assert value.reason is wanted[reason]


def test_a_whole_report_counts_whatever_the_exit_code() -> None:
    value = facts(Evidence(NVIDIA_SMI_XML.key, stdout=report(GOOD).encode(), exit=14))[GPUS]
    assert not isinstance(value, Unknown) and value[0].name == "NVIDIA L4"
