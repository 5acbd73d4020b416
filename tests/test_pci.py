"""Config space, lspci text and sysfs files: one shape, no crash, the same values."""

import random
import struct
from pathlib import Path

import pytest

from gpudoctor.formats import lspci, pci_config
from gpudoctor.formats.pci import (
    NO_REGISTER,
    Acs,
    DevCap,
    DevCap2,
    DevCtl,
    DevCtl2,
    Ecrc,
    Link,
    LnkCap,
    LnkCtl,
    LnkCtl2,
    PortType,
    Registers,
    ResizableBar,
)
from gpudoctor.formats.pci_sysfs import parse_aer, parse_link, parse_resource
from gpudoctor.model import Facts, Later, Reason, Unknown
from gpudoctor.probes.gpu import GPU_DRIVERS
from gpudoctor.recording import Answers

CORPUS = Path(__file__).parents[1].parent / "shared" / "corpus" / "lspci"
FILES = sorted(CORPUS.glob("*.txt")) if CORPUS.is_dir() else []
MIB = 1 << 20

TEXT = """\
0000:21:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2bb5] (rev a1)
\tControl: I/O- Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr- Stepping- SERR- FastB2B-
\tNUMA node: 1
\tIOMMU group: 14
\tRegion 0: Memory at 7b000000000 (64-bit, prefetchable) [size=64M]
\tRegion 2: Memory at 76000000000 (64-bit, prefetchable) [size=128G]
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tDevCap:\tMaxPayload 256 bytes, PhantFunc 0, Latency L0s <64ns, L1 unlimited
\t\t\tExtTag+ AttnBtn- AttnInd- PwrInd- RBE+ FLReset+
\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq-
\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+ FLReset-
\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes
\t\tDevSta:\tCorrErr- NonFatalErr- FatalErr- UnsupReq- AuxPwr- TransPend-
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1, Exit Latency L1 unlimited
\t\tLnkCtl:\tASPM L1 Enabled; RCB 64 bytes, Disabled- CommClk-
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x8 (downgraded)
\t\t\tTrErr- Train- SlotClk+ DLActive- BWMgmt- ABWMgmt-
\t\tDevCap2: Completion Timeout: Range AB, TimeoutDis+ NROPrPrP- LTR+
\t\t\t 10BitTagComp+ 10BitTagReq- OBFF Via message, ExtFmt- EETLPPrefix-
\t\tDevCtl2: Completion Timeout: 65ms to 210ms, TimeoutDis- LTR- 10BitTagReq- OBFF Disabled,
\t\tLnkCap2: Supported Link Speeds: 2.5-32GT/s, Crosslink- Retimer+ 2Retimers+ DRS-
\t\tLnkCtl2: Target Link Speed: 32GT/s, EnterCompliance- SpeedDis-
\tCapabilities: [100 v2] Advanced Error Reporting
\t\tUESta:\tDLP- SDES- TLP- FCP- CmpltTO- CmpltAbrt- UnxCmplt- RxOF- MalfTLP- ECRC- UnsupReq-
\t\tAERCap:\tFirst Error Pointer: 00, ECRCGenCap+ ECRCGenEn+ ECRCChkCap+ ECRCChkEn-
\tCapabilities: [148 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-
\tCapabilities: [150 v1] Physical Resizable BAR
\t\tBAR 2: current size: 128GB, supported: 64GB 128GB
\tCapabilities: [160 v1] Virtual Resizable BAR
\t\tBAR 2: current size: 4GB, supported: 64MB 4GB 8EB
\tCapabilities: [250 v1] Single Root I/O Virtualization (SR-IOV)
\t\tIOVCap:\tMigration- 10BitTagReq+ Interrupt Message Number: 000
\t\tRegion 2: Memory at 0000078000000000 (64-bit, prefetchable)
\tKernel driver in use: nvidia
"""


def config_space() -> bytes:
    """Return the same function as TEXT, register by register, by hand."""
    data = bytearray(4096)
    data[0:12] = bytes.fromhex("de10b52b 06051000 a1000203")
    data[0x34] = 0x40
    data[0x40:0x42] = bytes.fromhex("0160")  # power management, next at 0x60
    data[0x60:0x64] = bytes.fromhex("10000200")  # Express, version 2, endpoint
    words = {
        0x64: 0x00008021,  # DevCap: 256 bytes, ExtTag
        0x68: 0x00002937,  # DevCtl
        0x6C: 0x00000905,  # LnkCap: Gen5 x16, ASPM L1
        0x70: 0x00810002,  # LnkCtl: L1; LnkSta: Gen1 x8
        0x84: 0x00010000,  # DevCap2: 10-bit completer
        0x90: 0x00000005,  # LnkCtl2: target Gen5
        0x100: 0x14820001,  # AER, next 0x148
        0x118: 0x000000E0,  # AERCap: generate and check capable, generate on
        0x148: 0x1501000D,  # ACS, next 0x150
        0x14C: 0x0005005D,  # ACSCap, ACSCtl
        0x150: 0x16010015,  # physical Resizable BAR, next 0x160
        0x154: 0x00300000,  # 64 GiB and 128 GiB
        0x158: 0x00001122,  # BAR 2 of one, size 2^17 MiB
        0x160: 0x00010024,  # virtual Resizable BAR: to be passed over
        0x168: 0x00000C22,
    }
    for offset, word in words.items():
        struct.pack_into("<I", data, offset, word)
    return bytes(data)


EXPECTED = Registers(
    vendor=0x10DE,
    device=0x2BB5,
    class_code=0x030200,
    revision=0xA1,
    port=PortType.ENDPOINT,
    dev_cap=DevCap(256, True),
    dev_ctl=DevCtl(0x2937),
    dev_cap2=DevCap2(True, False),
    dev_ctl2=DevCtl2(False),
    lnk_cap=LnkCap(5, 16, ("L1",)),
    lnk_sta=Link(1, 8),
    lnk_ctl=LnkCtl(("L1",)),
    lnk_ctl2=LnkCtl2(5),
    ecrc=Ecrc(True, True, True, False),
    acs=Acs(0x5D, 0x05),
    rebar=(ResizableBar(2, 131072 * MIB, (65536 * MIB, 131072 * MIB)),),
)
NAMES = [name for name in Registers.__slots__ if name not in {"bus"}]


@pytest.mark.parametrize("name", NAMES)
def test_config_space_and_lspci_text_give_the_same(name: str) -> None:
    wanted = getattr(EXPECTED, name)
    assert getattr(pci_config.parse(config_space()), name) == wanted
    assert getattr(lspci.parse(TEXT)["0000:21:00.0"].registers, name) == wanted


def test_lspci_text_outside_the_registers() -> None:
    function = lspci.parse(TEXT)["0000:21:00.0"]
    assert (function.numa_node, function.iommu_group, function.driver) == (1, 14, "nvidia")
    assert [(r.index, r.start, r.size) for r in function.regions] == [
        (0, 0x7B000000000, 64 * MIB),
        (2, 0x76000000000, 131072 * MIB),
    ]


def test_device_control_decodes() -> None:
    ctl = DevCtl(0x2937)
    assert (ctl.max_payload, ctl.max_read_request) == (256, 512)
    assert (ctl.relaxed_ordering, ctl.ext_tag, ctl.no_snoop) == (True, True, True)
    assert DevCtl(0x5937).max_read_request == 4096


def test_build_is_the_inverse_of_parse() -> None:
    read = pci_config.parse(config_space())
    assert pci_config.parse(pci_config.build(read)) == read
    assert pci_config.parse(pci_config.build(Registers(gone=True))).gone


def test_without_root_the_capabilities_are_unknown_for_want_of_permission() -> None:
    read = pci_config.parse(config_space()[:64])
    assert (read.vendor, read.class_code) == (0x10DE, 0x030200)
    assert isinstance(read.dev_ctl, Unknown) and read.dev_ctl.reason is Reason.NO_PERMISSION
    assert isinstance(read.acs, Unknown) and read.acs.reason is Reason.NO_PERMISSION


@pytest.mark.parametrize("rest", [b"", b"\xff" * 3840, b"\xff" * 2])
def test_what_is_beyond_256_bytes_is_not_read_rather_than_absent(rest: bytes) -> None:
    read = pci_config.parse(config_space()[:256] + rest)
    assert read.dev_ctl == DevCtl(0x2937)
    for group in (read.ecrc, read.acs, read.rebar):
        assert isinstance(group, Unknown) and group != NO_REGISTER


def test_an_extended_space_without_acs_says_that_there_is_none() -> None:
    read = pci_config.parse(config_space()[:256] + bytes(3840))
    assert read.acs == read.ecrc == read.rebar == NO_REGISTER


def test_lspci_without_extended_capabilities_proves_no_absence() -> None:
    cut = TEXT[: TEXT.index("\tCapabilities: [100")]
    read = lspci.parse(cut)["0000:21:00.0"].registers
    assert read.dev_ctl == DevCtl(0x2937)
    assert isinstance(read.acs, Unknown) and read.acs != NO_REGISTER


def test_capability_lists_that_loop_end() -> None:
    data = bytearray(config_space())
    data[0x61] = 0x40
    data[0x60] = 0x05
    struct.pack_into("<I", data, 0x160, 0x10010024)
    read = pci_config.parse(bytes(data))
    assert isinstance(read.dev_ctl, Unknown) and read.dev_ctl.reason is Reason.NOT_PRESENT


def test_random_bytes_never_crash() -> None:
    dice = random.Random(20)
    for _ in range(3000):
        data = bytearray(dice.randbytes(dice.choice((64, 128, 130, 256, 260, 300, 4096))))
        data[6] |= 0x10
        if dice.random() < 0.7 and len(data) > 0x70:
            data[0x34], data[0x60] = 0x60, 0x10
        read = pci_config.parse(bytes(data))
        assert pci_config.parse(pci_config.build(read)).gone in {False, read.gone}


def test_cut_config_space_is_refused_or_unknown() -> None:
    for length in range(0, 4096, 3):
        try:
            read = pci_config.parse(config_space()[:length])
        except ValueError:
            assert length < 64
        else:
            assert read.vendor == 0x10DE


def test_random_lines_of_lspci_never_crash() -> None:
    dice = random.Random(21)
    lines = TEXT.splitlines()
    for _ in range(300):
        text = "\n".join(
            line[dice.randrange(3) :][: dice.randrange(1, 90)] if dice.random() < 0.3 else line
            for line in dice.sample(lines, dice.randrange(1, len(lines)))
        )
        lspci.parse(text)


def test_upstream_is_found_by_bus_numbers() -> None:
    head = "PCI bridge [0604]: Some Bridge [1000:c030]\n\tBus: primary={}, secondary={}, sub{}\n"
    text = (
        f"40:01.1 {head.format('40', '41', 'ordinate=44')}"
        f"41:00.0 {head.format('41', '42', 'ordinate=44')}"
        f"42:01.0 {head.format('42', '44', 'ordinate=44')}"
        f"0001:40:01.1 {head.format('40', '41', 'ordinate=ff')}"
        "44:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2bb5] (rev a1)\n"
    )
    found = lspci.upstream(lspci.parse(text), "0000:44:00.0")
    assert found == ("0000:40:01.1", "0000:41:00.0", "0000:42:01.0")


def test_a_function_off_the_bus() -> None:
    text = "01:00.0 VGA compatible controller: NVIDIA Corporation Device 2204 (rev ff)\n"
    function = lspci.parse(text + "\t!!! Unknown header type 7f\n")["0000:01:00.0"]
    assert function.registers.gone and function.registers.vendor == 0x10DE
    assert pci_config.parse(b"\xff" * 64).gone


def test_small_sysfs_files() -> None:
    assert parse_link("32.0 GT/s PCIe", "16") == Link(5, 16)
    assert parse_link("8 GT/s", "4") == Link(3, 4)
    assert isinstance(parse_link("Unknown", "63"), Unknown)
    assert isinstance(parse_link("2.5 GT/s PCIe", "255"), Unknown)
    assert parse_aer("Receiver Error 2\nRxErr 1\nTOTAL_ERR_COR 3\n") == 3
    row = "0x0000076000000000 0x0000077fffffffff 0x000000000014220c\n"
    (region,) = parse_resource("0x0 0x0 0x0\n" * 2 + row)
    assert (region.index, region.size, region.prefetchable) == (2, 131072 * MIB, True)


def gpus_of(text: str) -> list[lspci.LspciFunction]:
    return [
        f
        for f in lspci.parse(text).values()
        if f.registers.vendor == 0x10DE and f.registers.class_code in range(0x030000, 0x030300)
    ]


@pytest.mark.skipif(not FILES, reason="the corpus of real outputs is not beside the repository")
@pytest.mark.parametrize("path", FILES, ids=[p.stem for p in FILES])
def test_every_real_dump_parses_to_sane_values(path: Path) -> None:
    functions = lspci.parse(path.read_text(errors="replace"))
    for function in functions.values():
        read = function.registers
        for name in ("vendor", "device"):
            value = getattr(read, name)
            assert isinstance(value, Unknown) or 0 < value <= 0xFFFF
        if isinstance(read.lnk_sta, Link) and isinstance(read.lnk_cap, LnkCap):
            assert read.lnk_sta.gen <= read.lnk_cap.gen
            assert read.lnk_sta.width <= read.lnk_cap.width
        if isinstance(read.dev_ctl, DevCtl) and isinstance(read.dev_cap, DevCap):
            assert read.dev_ctl.max_payload <= read.dev_cap.max_payload
        if not isinstance(read.rebar, Unknown):
            assert all(bar.size in bar.sizes for bar in read.rebar)
        assert len(lspci.upstream(functions, function.bdf)) <= 8


REAL = {
    "asus-esc8000a-e13p-8x-rtxpro6000": (8, 0x2937, Link(1, 16), 1),
    "aws-g2-k520": (1, None, Link(1, 16), 1),
    "lkml-aspm-l1ss-original": (1, None, Link(3, 8), 1),
    "gb200-4x-short": (4, None, None, 4),
    "ncx-fallen-off-rev-ff": (1, None, None, 1),
    "rtx4060ti-x8card-at-x4-idle": (1, None, Link(1, 4), 1),
    "rk3588-rtx3090-bar-unassigned-x1": (1, None, Link(1, 1), 1),
    "gpud-lspci-nn-a10": (1, None, None, 1),
}


@pytest.mark.skipif(not FILES, reason="the corpus of real outputs is not beside the repository")
@pytest.mark.parametrize("name", sorted(REAL))
def test_real_gpus_are_found_with_their_links(name: str) -> None:
    count, word, link, domains = REAL[name]
    gpus = gpus_of((CORPUS / f"{name}.txt").read_text(errors="replace"))
    assert len(gpus) == count
    assert len({gpu.bdf.split(":", 1)[0] for gpu in gpus}) == domains
    for gpu in gpus:
        seen = gpu.registers.lnk_sta
        assert (None if isinstance(seen, Unknown) else seen) == link
        assert word is None or gpu.registers.dev_ctl == DevCtl(word)


def test_denied_capabilities_are_no_permission() -> None:
    text = "01:00.0 3D controller: NVIDIA Corporation Device 2236 (rev a1)\n"
    read = lspci.parse(f"{text}\tCapabilities: <access denied>\n")["0000:01:00.0"].registers
    assert isinstance(read.dev_ctl, Unknown) and read.dev_ctl.reason is Reason.NO_PERMISSION


def test_a_driver_link_without_its_target_is_no_missing_driver() -> None:
    bdf = "0000:21:00.0"
    link = f"lrwxrwxrwx 1 0 0 0 Jan  1 00:00 /sys/bus/pci/devices/{bdf}/driver"
    ids = {"vendor": b"0x10de\n", "device": b"0x2bb1\n", "class": b"0x030000\n", "revision": b"1"}
    answers = Answers(
        {f"/sys/bus/pci/devices/{bdf}/{name}": raw for name, raw in ids.items()},
        {
            f"/sys/bus/pci/devices/{bdf}": f"l -> ../../../devices/pci0000:20/{bdf}".encode(),
            f"/sys/bus/pci/devices/{bdf}/driver": link.encode(),
        },
    )
    facts = Facts(
        {p.key: answers.answer(p) for p in GPU_DRIVERS.probes() if not isinstance(p, Later)}
    )
    found = facts[GPU_DRIVERS]
    assert isinstance(found, Unknown) and found.reason is Reason.PARSE_FAILED
