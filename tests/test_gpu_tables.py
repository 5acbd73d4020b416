"""The tables behind the GPU panels, and small formats that only they read."""

import pytest

from gpudoctor.checks.driver import min_for_cuda
from gpudoctor.formats.cgroup_owner import owner_of
from gpudoctor.formats.dmi_supplies import Supply, parse_supplies
from gpudoctor.model import Reason, Unknown, Verdict
from gpudoctor.tables.drivers import (
    CudaFit,
    arch_of,
    archs,
    branch_of,
    branches,
    cuda_fit,
    driver_for_cuda,
    has_ended,
    is_old,
    older,
)
from gpudoctor.tables.gpus import bandwidth, gpu_specs, spec_of
from gpudoctor.tables.xids import xid_group, xid_groups


@pytest.mark.parametrize(
    ("driver", "runtime", "fit"),
    [
        ("13.1", "13.0", CudaFit.FULL),
        ("13.1", "12.8", CudaFit.FULL),
        ("12.2", "12.10", CudaFit.MINOR),
        ("12.8", "13.0", CudaFit.TOO_NEW),
        ("13.0", "13.0.2", CudaFit.FULL),
    ],
)
def test_cuda_fit(driver: str, runtime: str, fit: CudaFit) -> None:
    assert cuda_fit(driver, runtime) is fit


def judged(driver: str, runtime: str | Unknown) -> Verdict:
    verdict = min_for_cuda.judge(driver, runtime)
    assert isinstance(verdict, Verdict)
    return verdict


@pytest.mark.parametrize(
    ("runtime", "status", "says"),
    [("13.0", "good", ""), ("13.2", "info", "PTX"), ("14.0", "issue", "for CUDA 14.0")],
)
def test_driver_against_the_engine(runtime: str, status: str, says: str) -> None:
    verdict = judged("13.1", runtime)
    assert str(verdict.status) == status
    assert says in verdict.summary + verdict.expected


def test_a_known_toolkit_names_its_driver() -> None:
    assert driver_for_cuda("13.0.2") == "580.65.06"
    assert "580.65.06" in judged("12.2", "13.0").expected
    assert str(judged("12.2", Unknown(Reason.NOT_PRESENT, "")).status) == "info"


def test_versions_compare_number_by_number() -> None:
    assert older("590.9", "590.48.01") and not older("590.48.01", "590.9")


@pytest.mark.parametrize(
    ("device", "name"),
    [
        (0x1DB6, "Volta"),
        (0x1EB8, "Turing"),
        (0x20B5, "Ampere (data centre)"),
        (0x2230, "Ampere"),
        (0x2330, "Hopper"),
        (0x2342, "Grace Hopper"),
        (0x26B9, "Ada Lovelace"),
        (0x2901, "Blackwell (data centre)"),
        (0x2BB5, "Blackwell (RTX)"),
        (0x3182, "Blackwell Ultra"),
        (0x2E12, "GB10"),
        (0x1B81, "Pascal"),
    ],
)
def test_device_ids_tell_the_architecture(device: int, name: str) -> None:
    found = arch_of(device)
    assert found is not None and found.name == name


def test_the_table_of_devices_has_no_overlap() -> None:
    ranges = sorted(span for arch in archs() for span in arch.devices)
    assert all(high < low for (_, high), (low, _) in zip(ranges, ranges[1:], strict=False))


def test_branches() -> None:
    assert [b.number for b in branches()] == sorted(b.number for b in branches())
    for version, old, ended in (("535.1", True, True), ("580.1", False, False)):
        branch = branch_of(version)
        assert branch is not None and (is_old(branch), has_ended(branch)) == (old, ended)
    assert branch_of("304.137") is None


def test_bandwidth_of_clock_and_bus_agrees_with_the_data_sheets() -> None:
    for spec in gpu_specs():
        if spec.clock:
            assert bandwidth(spec.bus, spec.clock) == pytest.approx(spec.bandwidth, rel=0.025)


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Server"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell Max-Q"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell Workstation"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA B200", "B200 SXM"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA L40S", "L40S"),
    ],
)
def test_product_names_find_their_row(product: str, name: str | None) -> None:
    spec = spec_of(product)
    assert (spec.name if spec else None) == name


def test_every_xid_is_in_one_group() -> None:
    codes = [code for group in xid_groups() for code in group.codes]
    assert len(codes) == len(set(codes))
    lost = xid_group(79)
    assert lost is not None and lost.name == "lost" and xid_group(999) is None


@pytest.mark.parametrize(
    ("cgroup", "owner"),
    [
        ("0::/lxc/101/ns/system.slice/sglang.service", "lxc 101"),
        ("0::/qemu.slice/100.scope", "VM 100"),
        ("0::/system.slice/vllm.service", "vllm.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope", "user 1000"),
        ("0::/", "the host"),
    ],
)
def test_owners(cgroup: str, owner: str) -> None:
    assert owner_of(cgroup) == owner


def test_supplies_with_and_without_handles() -> None:
    text = (
        "System Power Supply\n\tLocation: A\n\tMax Power Capacity: 1600 W\n"
        "\tStatus: Present, OK\n\tPlugged: Yes\n\n"
        "Handle 0x0051, DMI type 39, 22 bytes\nSystem Power Supply\n"
        "\tMax Power Capacity: Unknown\n\tStatus: Not Present\n"
    )
    assert parse_supplies(text) == (Supply(True, True, 1600), Supply(False, False, 0))
