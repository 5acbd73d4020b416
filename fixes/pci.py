"""Bits of PCI registers, by `setpci` under a mask: other bits of the word are never written.

Registers are named as setpci does: CAP_EXP+8.w is Device Control (read request size), CAP_EXP+10.w
Link Control (ASPM), ECAP_ACS+6.w ACS Control (request and completion redirect).
"""

import re

from gpudoctor.fixes.drop_ins import registers_unit
from gpudoctor.fixes.mechanism import Mechanism, Seen, Values
from gpudoctor.model import OwnFile, PciBits, Reason, Unknown

# The bits that may be written, and the highest value of them. Bit 15 of Device Control would reset
# a GPU in use; power saving and redirects are switched off only (an undo gives back what was).
_WRITABLE = {
    "CAP_EXP+8.w": (0x7000, 0x5000),
    "CAP_EXP+10.w": (0x0003, 0x0000),
    "ECAP_ACS+6.w": (0x000C, 0x0000),
}
_ACS = "ECAP_ACS+6.w"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_WORD = re.compile(r"[0-9a-f]{4}")

_LOCKDOWN, _GUESTS = "kernel lockdown", "virtual machines with PCI devices"
_HANDED_OUT, _TRANSLATED = "devices handed to virtual machines", "translating IOMMU groups"
_DRIVERS = "/sys/bus/pci/drivers"
_CONTEXT = {
    _LOCKDOWN: (
        "[ ! -e /sys/kernel/security/lockdown ] && echo absent || cat /sys/kernel/security/lockdown"
    ),
    _HANDED_OUT: (
        f"echo {_DRIVERS}/*vfio*/*/vendor {_DRIVERS}/pci-stub/*/vendor {_DRIVERS}/*pciback/*/vendor"
    ),
}
# Isolation: how many guests' files (running or not, snapshots too) name a passed-through device,
# and how many PCI devices are in a group that is not `identity`.
_ISOLATION = {
    _GUESTS: (
        "[ -d /etc/pve ] && [ ! -d /etc/pve/qemu-server ] && echo unreadable || echo "
        "$(cat /etc/pve/qemu-server/*.conf /etc/libvirt/qemu/*.xml 2>/dev/null | "
        "grep -cE '^ *hostpci[0-9]|hostdev')"
    ),
    _TRANSLATED: (
        "echo $(cat /sys/bus/pci/devices/*/iommu_group/type 2>/dev/null | grep -cvx identity)"
    ),
}


class PciMechanism(Mechanism[PciBits]):
    """One register of one device is an item: its whole word, so that a bit that moved shows."""

    def reads(self, change: PciBits) -> dict[str, str]:
        """Return the read text of each word, and of what forbids a write. Raises ValueError."""
        _check(change)
        words = {
            f"{device} {change.register}": f"setpci -s {device} {change.register}"
            for device in change.devices
        }
        return words | _CONTEXT | (_ISOLATION if change.register == _ACS else {})

    def refuse(self, change: PciBits, now: Seen) -> str:
        """Return why the registers must not, or cannot, be written there."""
        reasons = [_unready(f"{d} {change.register}", d, now) for d in change.devices]
        reasons += [_locked(now[_LOCKDOWN]), _handed_out(change, now[_HANDED_OUT])]
        if change.register == _ACS:
            reasons += [_guests(now[_GUESTS]), _translated(now[_TRANSLATED])]
        return next(filter(None, reasons), "")

    def wanted(self, change: PciBits, before: Values) -> dict[str, str]:
        """Return each word with the masked bits as wanted, all others as they were."""
        names = [f"{device} {change.register}" for device in change.devices]
        return {n: f"{int(before[n], 16) & ~change.mask | change.value:04x}" for n in names}

    def write(self, change: PciBits, item: str, before: Values) -> str:
        """Return the command that sets the masked bits."""
        return _set(change, item, change.value)

    def undo(self, change: PciBits, item: str, before: Values) -> str:
        """Return the command that sets the masked bits as they were captured."""
        return _set(change, item, int(before[item], 16) & change.mask)

    def persist(self, change: PciBits, before: Values) -> OwnFile | None:
        """Return the unit that sets the bits at every boot, for the read request size of GPUs."""
        return registers_unit(change)


def _set(change: PciBits, item: str, bits: int) -> str:
    device, _, register = item.partition(" ")
    return f"setpci -s {device} {register}={bits:04x}:{change.mask:04x}"


def _check(change: PciBits) -> None:
    """Raise ValueError for a register, bits, value or address that is not ours to write."""
    mask, top = _WRITABLE.get(change.register, (0, 0))
    if not change.mask or change.mask & ~mask:
        raise ValueError(f"{change.register}:{change.mask:04x} is not written by gpudoctor")
    if change.value & ~change.mask or not 0 <= change.value <= top:
        raise ValueError(f"{change.register}={change.value:04x} is not written by gpudoctor")
    odd = next((d for d in change.devices if not _ADDRESS.fullmatch(d)), None)
    if odd is not None or not change.devices:
        raise ValueError(f"{odd!r} is no PCI address")


def _unready(item: str, device: str, now: Seen) -> str:
    """Return why one device's word cannot be written: not there, or not as a live device is."""
    word = now[item]
    if isinstance(word, Unknown):
        if "no capabilities with that id" in word.detail:  # `Instance #0 of … not found`
            return f"{device} has no {item.partition(' ')[2]} there, or cannot be reached"
        if word.reason is Reason.TOOL_MISSING:
            return "setpci is not installed there (package pciutils)"
        return f"{item} cannot be read there ({word})"
    if not word:
        return f"{device} is not on the PCI bus there"
    if word == "ffff":
        return f"{device} does not answer (its registers read as ones): it fell off the bus"
    return "" if _WORD.fullmatch(word) else f"{item} reads {word!r}, which is no register's word"


def _locked(modes: str | Unknown) -> str:
    if isinstance(modes, Unknown):
        return f"whether the kernel there is locked down cannot be read ({modes})"
    active = next((m for m in ("integrity", "confidentiality") if f"[{m}]" in modes), "")
    return f"kernel lockdown ({active}) forbids writes to PCI registers there" if active else ""


def _handed_out(change: PciBits, paths: str | Unknown) -> str:
    """Return which device belongs to a virtual machine: a target, or for isolation any at all."""
    if isinstance(paths, Unknown):
        return f"whether a virtual machine there has devices cannot be read ({paths})"
    found = _ADDRESS.findall(paths)
    device = next((d for d in found if change.register == _ACS or d in change.devices), "")
    return f"{device} there is in the hands of a virtual machine's driver" if device else ""


def _guests(count: str | Unknown) -> str:
    if count == "0":
        return ""
    if isinstance(count, Unknown) or not count.isdecimal():
        return "the configurations of the virtual machines there cannot be read"
    return (
        "a virtual machine there (running or stopped) has a PCI device passed through, and its "
        "isolation rests on these bits"
    )


def _translated(count: str | Unknown) -> str:
    if count == "0":
        return ""
    if isinstance(count, Unknown) or not count.isdecimal():
        return "the types of the IOMMU groups there cannot be read"
    return (
        f"the IOMMU groups of {count} PCI devices there are not identity: they would go on "
        "promising an isolation that is gone (boot with iommu=pt first)"
    )
