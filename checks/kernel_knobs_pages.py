"""Kernel knobs of memory pages: huge pages, and merging of equal ones."""

from typing import NamedTuple

from gpudoctor.formats.choice import Choice, parse_choice
from gpudoctor.model import (
    Change,
    Class,
    Evidence,
    Files,
    Impact,
    Listing,
    Reader,
    Service,
    Sysfs,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
)

_THP = "/sys/kernel/mm/transparent_hugepage"


def _choice(key: str, path: str) -> Reader[Choice]:
    def parse(evidence: Evidence) -> Choice | Unknown:
        text = evidence.get(path)
        return text if isinstance(text, Unknown) else parse_choice(text)

    return Reader(key, (Files(key, (path,)),), parse)


THP_ENABLED = _choice("thp-enabled", f"{_THP}/enabled")
THP_DEFRAG = _choice("thp-defrag", f"{_THP}/defrag")
_FEWER = "Programs that do not ask for huge pages get fewer of them"


@check(
    "kern-thp-enabled",
    "Transparent huge pages",
    reads=(THP_ENABLED,),
    why="Pinned host buffers gain a little from huge pages, khugepaged adds a little jitter. "
    "Upstream is split (tuned hpc-compute: always; network-latency: never), so only never is "
    "flagged, and weakly.",
    source="kernel.org admin-guide/mm/transhuge.rst; tuned hpc-compute and network-latency",
    changes=(Sysfs,),
)
def thp_enabled(choice: Choice) -> Verdict:
    """Judge the active word."""
    if choice.active in {"always", "madvise"}:
        return good("Transparent huge pages may be used", choice.active, "madvise or always")
    return issue(
        "Transparent huge pages are off",
        Class.P2,
        Impact.LOW,
        choice.active,
        "madvise or always",
        changes=(
            (Sysfs((f"{_THP}/enabled",), "madvise", choice=True, caution="New mappings only"),),
        ),
    )


@check(
    "kern-thp-defrag",
    "Huge page defragmentation",
    reads=(THP_DEFRAG,),
    why="With always, a page fault waits while the kernel compacts memory.",
    source="kernel.org admin-guide/mm/transhuge.rst (defrag)",
    changes=(Sysfs,),
)
def thp_defrag(choice: Choice) -> Verdict:
    """Judge the active word."""
    wanted = "madvise, defer, defer+madvise or never"
    if choice.active != "always":
        return good("Faults do not wait for compaction by default", choice.active, wanted)
    return issue(
        "Every huge page fault may wait for compaction",
        Class.P0,
        Impact.LOW,
        "always",
        wanted,
        changes=((Sysfs((f"{_THP}/defrag",), "madvise", choice=True, caution=_FEWER),),),
    )


_KSM = "/sys/kernel/mm/ksm"


class Ksm(NamedTuple):
    """KSM's switch (0 stopped, 1 running, 2 unmerging) and how many pages it merges."""

    run: int
    sharing: int


def _ksm(evidence: Evidence) -> Ksm:
    texts = evidence.texts()
    return Ksm(int(texts[f"{_KSM}/run"]), int(texts[f"{_KSM}/pages_sharing"]))


KSM: Reader[Ksm] = Reader("ksm", (Files("ksm", (f"{_KSM}/run", f"{_KSM}/pages_sharing")),), _ksm)


def _guests(evidence: Evidence) -> int | Unknown:
    if evidence.unread:
        return evidence.unread
    return sum(not isinstance(line, Unknown) for line in evidence.files.values())


GUESTS: Reader[int] = Reader(
    "running-vms",
    (Listing("running-vms", ("/run/qemu-server/*.pid", "/run/libvirt/qemu/*.pid")),),
    _guests,
    tolerant=True,
)

# A unit's control group is there while its processes are; the second place is that of cgroup v1.
_UNIT = "system.slice/ksmtuned.service"
KSMTUNED: Reader[bool] = Reader(
    "ksmtuned",
    (Listing("ksmtuned", (f"/sys/fs/cgroup/{_UNIT}", f"/sys/fs/cgroup/systemd/{_UNIT}")),),
    Evidence.present,
    tolerant=True,
)


@check(
    "kern-ksm",
    "Kernel same-page merging",
    reads=(KSM,),
    optional=(GUESTS, KSMTUNED),
    why="Scanning for equal pages burns a core. Proxmox ships ksmtuned, which starts it above a "
    "memory threshold; it pays only where virtual machines run.",
    source="kernel.org admin-guide/mm/ksm.rst",
    changes=(Service, Sysfs),
)
def ksm(state: Ksm, guests: int | Unknown, tuned: bool | Unknown) -> Verdict:
    """Judge merging by whether a virtual machine profits."""
    seen = f"run {state.run}, {state.sharing} pages merged"
    if state.run != 1 or state.sharing == 0:
        return good("Same-page merging does not work here now", seen, "0, or nothing merged")
    if guests != 0:
        return info("Same-page merging works, and virtual machines may profit", seen)
    return issue(
        "Same-page merging works, and no virtual machine runs",
        Class.P0,
        Impact.LOW,
        seen,
        "0",
        changes=(_stop(tuned),),
    )


def _stop(tuned: bool | Unknown) -> tuple[Change, ...]:
    """Return how merging ends: its daemon first, which would start it again."""
    unseen = " (ksmtuned, should it run, starts it again)" if isinstance(tuned, Unknown) else ""
    run = Sysfs((f"{_KSM}/run",), "0", caution=f"Pages merged so far stay merged{unseen}")
    return (Service("ksmtuned.service", active=False), run) if tuned is True else (run,)
