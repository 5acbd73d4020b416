"""What a change of PCI bits may never be, and what the demo host makes of the one it offers."""

import asyncio

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.capture import capture_chosen
from gpudoctor.fixes.pci import PciMechanism
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.model import PciBits, Reason, Status, Unknown
from gpudoctor.model.plan import State, StateMoved
from gpudoctor.plan import make_plan
from gpudoctor.transaction import apply, confirm, undo

GPU = "0000:21:00.0"
READ_SIZE = PciBits((GPU,), "CAP_EXP+8.w", 0x5000, 0x7000)
NAME = f"{GPU} CAP_EXP+8.w"


@pytest.mark.parametrize(
    ("register", "value", "mask"),
    [
        ("CAP_EXP+8.w", 0x8000, 0x8000),  # would reset the function
        ("CAP_EXP+8.w", 0xD000, 0xF000),
        ("CAP_EXP+8.w", 0x5937, 0xFFFF),  # a whole word
        ("CAP_EXP+8.w", 0x6000, 0x7000),  # a reserved size
        ("CAP_EXP+8.w", 0x5001, 0x7000),  # bits outside the mask
        ("CAP_EXP+8.w", -1, 0x7000),
        ("CAP_EXP+8.w", 0, 0),
        ("CAP_EXP+8.w", 0x20, 0x00E0),  # MaxPayload
        ("CAP_EXP+8.l", 0x5000, 0x7000),
        ("CAP_EXP+10.w", 0x0002, 0x0003),  # power saving on
        ("CAP_EXP+10.w", 0x0000, 0x0010),  # the link off
        ("ECAP_ACS+6.w", 0x000C, 0x000C),
        ("ECAP_ACS+6.w", 0x0000, 0x001F),
        ("COMMAND", 0x0000, 0x0004),
        ("CAP_EXP+8.w; reboot", 0x5000, 0x7000),
    ],
)
def test_other_bits_are_never_planned(register: str, value: int, mask: int) -> None:
    with pytest.raises(ValueError, match="not written by gpudoctor"):
        PciMechanism().reads(PciBits((GPU,), register, value, mask))


@pytest.mark.parametrize("devices", [(), ("21:00.0",), (f"{GPU}; reboot",), (GPU, ".."), ("::.",)])
def test_only_whole_addresses_are_taken(devices: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="no PCI address"):
        PciMechanism().reads(PciBits(devices, "CAP_EXP+8.w", 0x5000, 0x7000))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (NAME, Unknown(Reason.TOOL_MISSING, "x"), "setpci is not installed"),
        (NAME, Unknown(Reason.NO_PERMISSION, "x"), "cannot be read there"),
        (NAME, "29", "no register's word"),
        (NAME, "2937 2937", "no register's word"),
        ("kernel lockdown", Unknown(Reason.NO_PERMISSION, "x"), "locked down cannot be read"),
        ("kernel lockdown", "none integrity [confidentiality]", "lockdown (confidentiality)"),
        ("devices handed to virtual machines", Unknown(Reason.TIMEOUT, "x"), "cannot be read"),
    ],
)
def test_what_is_not_known_is_refused(name: str, value: str | Unknown, says: str) -> None:
    fine = dict.fromkeys(PciMechanism().reads(READ_SIZE), "absent") | {NAME: "2937"}
    assert PciMechanism().refuse(READ_SIZE, fine) == ""
    assert says in PciMechanism().refuse(READ_SIZE, fine | {name: value})


def test_reads_of_the_demo_grow_and_come_back() -> None:
    machine = demo_machine()
    before = dict(machine.files)
    asyncio.run(_there_and_back(machine))
    ours = ("/var/lib/gpudoctor/", "/run/gpudoctor/")
    assert {p: raw for p, raw in machine.files.items() if not p.startswith(ours)} == before


async def _there_and_back(machine: SimulatedMachine) -> None:
    target = SimulatedTarget(machine, NO_WAIT)
    result = await run_audit(target)
    plan = make_plan(result, await capture_chosen(target, result, [CHECK]), [CHECK])
    assert [(item.before, item.wanted) for item in plan.items] == [("2937", "5937")] * 8
    assert plan.confirm_within == 60  # a risk above low
    states = [m.state async for m in apply(target, plan) if isinstance(m, StateMoved)]
    assert states[-1] is State.APPLIED
    assert (await confirm(target, plan.id)).state is State.CONFIRMED
    assert await _statuses(target) == {Status.GOOD}
    states = [m.state async for m in undo(target, plan.id) if isinstance(m, StateMoved)]
    assert states[-1] is State.UNDONE


CHECK = "pcie-max-read-req"


async def _statuses(target: SimulatedTarget) -> set[Status]:
    again = await run_audit(target)
    return {finding.status for finding in again.findings if finding.id == CHECK}


def test_one_gpu_first_is_an_alternative() -> None:
    target = SimulatedTarget(demo_machine(), NO_WAIT)
    result = asyncio.run(run_audit(target))
    captured = asyncio.run(capture_chosen(target, result, [f"{CHECK}:2"]))
    plan = make_plan(result, captured, [f"{CHECK}:2"])
    assert [item.name for item in plan.items] == ["0000:01:00.0 CAP_EXP+8.w"]
