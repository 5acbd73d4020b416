"""What the pictures show of the past: snapshots, a story and a diff, which the demo has not."""

from gpudoctor.model.audited import Identity
from gpudoctor.model.diff import Diff, Difference, Moved, Name, Sort
from gpudoctor.model.snapshot import KeptFinding, Kind, SnapshotHead
from gpudoctor.model.story import Fate, Story, Told

_OLD, _NEW = "7d41c0aa52e94f0c", "c90e5b1df3a24c11"
_CHANGE, _BEFORE = "20261129-081504-3fa2c1", "20261128-173011-90ab12"


def _head(
    id: str, kind: Kind, taken: str, boot: str, change: str = "", note: str = ""
) -> SnapshotHead:
    kernel = "6.8.12-9-pve" if boot == _OLD else "6.8.12-10-pve"
    who = Identity("pve-gpu1", "0" * 32, boot, kernel, "Proxmox VE 8.3", "ASUS ESC8000A-E12P")
    path = f"/state/{id}.toml"
    size, box = 96_000, "lxc:101"
    about = (path, size, who, change, note, box)
    return SnapshotHead(id, kind, "root@pve-gpu1", "root", taken, "0.4", *about)


HEADS = (
    _head("b1d20c4f8a917e35", Kind.BOOT, "2026-11-30T08:40:12Z", _NEW),
    _head(
        "3f8e11a09c52d674",
        Kind.MANUAL,
        "2026-11-29T18:02:40Z",
        _OLD,
        note="before the kernel update; 61 tok/s",
    ),
    _head("90aa4be713c80f52", Kind.AFTER, "2026-11-29T08:15:31Z", _OLD, _CHANGE),
    _head("55c1d9e02b7f4a68", Kind.BEFORE, "2026-11-29T08:15:04Z", _OLD, _CHANGE),
    _head("0e6fa3719d24cb80", Kind.AFTER, "2026-11-28T17:30:40Z", _OLD, _BEFORE),
)


def _found(status: str, number: int) -> tuple[KeptFinding, ...]:
    plain = ("kernel_knobs", "host", status, "as it was", "", "", "low", "nothing")
    return tuple(KeptFinding(f"check-{n}", *plain) for n in range(number))


KEPT = (*_found("issue", 6), *_found("good", 90), *_found("info", 23), *_found("unknown", 2))


def _told(check: str, title: str, fate: Fate, why: str, **more: object) -> Told:
    when = "2026-11-29T08:15:04Z"
    return Told(_CHANGE, "ana@laptop", when, check, 1, title, fate, why, **more)  # type: ignore[arg-type]


STORY = Story(
    "root@pve-gpu1",
    True,
    "rebooted between 2026-11-29T18:02:40Z and 2026-11-30T08:39:51Z (boot 7d41c0aa -> c90e5b1d)",
    HEADS[1],
    (
        _told(
            "kern-numa-balancing",
            "sysctl kernel.numa_balancing = 0",
            Fate.LOST,
            "the reboot set it back, as a runtime value without a file of its own",
            values=(("kernel.numa_balancing", "0", "1"),),
            can_last=True,
        ),
        _told(
            "pcie-max-read-req",
            "MaxReadReq = 4096 (8 GPUs)",
            Fate.LOST,
            "the firmware set its own value at boot",
            values=tuple((f"0000:{n}1:00.0 MaxReadReq", "4096", "512") for n in "1234567"),
            can_last=True,
        ),
        _told(
            "drv-persistence-mode",
            "nvidia-smi persistence mode = 1 (8 GPUs)",
            Fate.ENDED,
            "the driver was loaded anew",
            can_last=True,
        ),
        _told(
            "kern-swappiness",
            "sysctl vm.swappiness = 10",
            Fate.OVERRIDDEN,
            "our file is in place, and a later one sets another value",
            by="/etc/sysctl.d/99-zz-pve.conf",
            values=(("vm.swappiness", "10", "60"),),
            lasts=True,
        ),
        _told(
            "kern-governor",
            "scaling_governor = performance (256 files)",
            Fate.KEPT,
            "the values are as they were set",
            lasts=True,
        ),
    ),
)


def _moved(
    moved: Moved, sort: Sort | None, of: str, what: str, before: str, after: str
) -> Difference:
    return Difference(moved, sort, Name(of, what), before, after)


DIFF = Diff(
    HEADS[1],
    HEADS[0],
    settings=(
        _moved(Moved.CHANGED, Sort.SETTING, "kernel", "numa_balancing", "0", "1"),
        _moved(Moved.CHANGED, Sort.SETTING, "vm", "swappiness", "10", "60"),
        _moved(Moved.CHANGED, Sort.SETTING, "8 GPUs", "persistence mode", "enabled", "disabled"),
    ),
    inventory=(
        _moved(Moved.GONE, Sort.INVENTORY, "GPU 0000:41:00.0", "", "RTX PRO 6000", ""),
        _moved(Moved.CHANGED, Sort.INVENTORY, "kernel", "release", "6.8.12-9-pve", "6.8.12-10-pve"),
        _moved(Moved.CHANGED, Sort.INVENTORY, "GPU 0000:c1:00.0", "link width", "x16", "x8"),
    ),
    counters=(_moved(Moved.GREW, Sort.COUNTER, "GPU 0000:c1:00.0", "AER corrected", "0", "412"),),
    findings=(
        _moved(Moved.REGRESSED, None, "", "kern-numa-balancing", "good", "issue, low"),
        _moved(Moved.NEW, None, "", "pcie-link-width", "", "issue, high: x8 of x16"),
    ),
    remarks=("between the two the host was rebooted, and its kernel is another",),
    same=1204,
    left_out=3,
)
