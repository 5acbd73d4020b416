"""What differs between two snapshots, by importance; what only one of them read is no change."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gpudoctor.model.diff import Compared, Diff, Difference, Moved, Name, Sort, Value
from gpudoctor.model.snapshot import Kind
from gpudoctor.snapshots.diff_findings import compare_findings
from gpudoctor.snapshots.diff_gone import is_of_whole, whole_things, without_parts
from gpudoctor.snapshots.diff_gpus import Places, by_uuid, named_alike
from gpudoctor.snapshots.diff_groups import grouped, unread_grouped
from gpudoctor.snapshots.diff_remarks import is_same_machine, remarks

# The kernel's own share of memory differs from boot to boot, on small NUMA nodes by some percent of
# them; a missing module is far more.
_SIZE, _NEAR, _NEAR_GIB = re.compile(r"(\d+\.\d{2}) GiB"), 0.01, 0.1
_ORDER = (
    "GPU", "driver", "module nvidia", "device major", "firmware", "kernel", "memory", "NUMA",
    "CPU", "power supply", "RDMA", "PCI", "IOMMU", "vm", "transparent huge pages", "policy",
)  # fmt: skip
_URGENT = ("Xid", "not corrected", "remapped", "retired", "AER fatal", "AER nonfatal", "oom")
# What is there or not by what the running kernel offers.
_KERNELS_OWN = ("host:/proc/sys/", "host:/sys/kernel/", "host:/sys/devices/system/cpu/cpuidle/")
_LIFETIME = re.compile(r"rows remapped|pages retired|ECC errors (?:not )?corrected$|banks without")


@dataclass(slots=True)
class _Found:
    """Differences while they are gathered."""

    moved: list[tuple[Difference, Value]] = field(default_factory=list)
    unread: list[Difference] = field(default_factory=list)
    same: int = 0


def diff(old: Compared, new: Compared) -> Diff:
    """Compare two snapshots; of two machines neither counters nor UUIDs are compared."""
    same = is_same_machine(old.head, new.head)
    one, other = named_alike(old, new), named_alike(new, old)
    one, other, places = by_uuid(one, other) if same else (_bare(one), _bare(other), None)
    found = _compared(one, other)
    whole = whole_things(found.moved)
    kept = without_parts(found.moved, whole, one, other)
    unread = [each for each in found.unread if not is_of_whole(each.name, whole)]
    told = [replace(each, name=_shown(each.name, places)) for each in kept]
    unread = [replace(each, name=_shown(each.name, places)) for each in unread]
    judged, unjudged = compare_findings(one.findings, other.findings, whole)
    parts = {sort: _ordered(grouped(d for d in told if d.sort is sort)) for sort in Sort}
    return Diff(
        old.head,
        new.head,
        parts[Sort.SETTING],
        parts[Sort.INVENTORY],
        parts[Sort.COUNTER],
        tuple(replace(each, name=_shown(each.name, places)) for each in judged),
        remarks(old.head, new.head),
        found.same,
        len(unread) + len(unjudged),
        (*_ordered(unread_grouped(unread)), *unjudged),
    )


def _bare(side: Compared) -> Compared:
    """Return a machine's side for the comparison with another's: what only it can have is out."""
    values = {
        name: value
        for name, value in side.values.items()
        if value.sort is not Sort.COUNTER and name.what != "UUID"
    }
    return replace(side, values=values)


def _shown(name: Name, places: Places | None) -> Name:
    if places is None or not places.slots:
        return name
    return Name(places.shown(name.of), places.shown(name.what))


def _compared(old: Compared, new: Compared) -> _Found:
    found = _Found()
    rebooted = _rebooted(old, new)
    by = _transaction(old, new)
    for name in dict.fromkeys((*old.values, *new.values)):
        before, after = old.values.get(name), new.values.get(name)
        value = after or before
        assert value is not None
        missing = old if before is None else new if after is None else None
        why = _why_unread(missing, name, value) if missing else ""
        if why:
            found.unread.append(_difference(Moved.NOT_READ, name, before, after, why))
            continue
        moved = _moved(before, after, value.sort, rebooted)
        if moved is None:
            found.same += before is not None and after is not None
            continue
        told = _by(name, value, moved, (old, new)) or (by if value.sort is Sort.SETTING else "")
        found.moved.append((_difference(moved, name, before, after, told), value))
    return found


def _difference(
    moved: Moved, name: Name, before: Value | None, after: Value | None, by: str
) -> Difference:
    sort = (after or before or Value(Sort.SETTING, "")).sort
    absent = "0" if sort is Sort.COUNTER and moved is not Moved.NOT_READ else ""
    then, now = (value.text if value else absent for value in (before, after))
    return Difference(moved, sort, name, then, now, by)


def _moved(before: Value | None, after: Value | None, sort: Sort, rebooted: bool) -> Moved | None:
    if sort is Sort.COUNTER:
        then, now = (_count(value) for value in (before, after))
        if now > then:
            return Moved.GREW
        return Moved.RESET if now < then and not rebooted else None
    if before is None:
        return Moved.ADDED
    if after is None:
        return Moved.GONE
    return None if before.text == after.text or _near(before.text, after.text) else Moved.CHANGED


def _count(value: Value | None) -> int:
    """Return a counter's number, of several the largest; none is zero: what counts was read."""
    numbers = re.findall(r"\d+", value.text) if value else []
    return max(map(int, numbers), default=0)


def _near(before: str, after: str) -> bool:
    then, now = _SIZE.fullmatch(before), _SIZE.fullmatch(after)
    if then is None or now is None:
        return False
    one, other = float(then[1]), float(now[1])
    return abs(one - other) <= max(_NEAR * max(one, other), min(_NEAR_GIB, 0.1 * min(one, other)))


def _why_unread(side: Compared, name: Name, value: Value) -> str:
    """Return why a side lacks a value, or nothing where it was read and is not there."""
    for key in (str(name), *value.sources):
        if key in side.unread:
            return side.unread[key]
    return ""


def _transaction(old: Compared, new: Compared) -> str:
    """Return the transaction whose before and after they are; what it set is its own to tell."""
    then, now = old.head, new.head
    pair = then.kind is Kind.BEFORE and now.kind is Kind.AFTER
    if pair and then.transaction and then.transaction == now.transaction:
        return f"while transaction {now.transaction} ran"
    return ""


def _rebooted(old: Compared, new: Compared) -> bool:
    return old.head.identity.boot_id != new.head.identity.boot_id


def _by(name: Name, value: Value, moved: Moved, sides: tuple[Compared, Compared]) -> str:
    """Return what explains a difference: the boot that a count began with, another kernel."""
    if moved is Moved.GREW:
        anew = _rebooted(*sides) and not _LIFETIME.search(name.what)
        return "counted anew since a boot between" if anew else ""
    kernels = {side.head.identity.kernel for side in sides}
    offered = any(source.startswith(_KERNELS_OWN) for source in value.sources)
    came_or_went = moved in {Moved.GONE, Moved.ADDED} and len(kernels - {""}) == 2
    return "the kernel is another" if offered and came_or_went else ""


def _ordered(found: Iterable[Difference]) -> tuple[Difference, ...]:
    return tuple(sorted(found, key=_rank))


def _rank(one: Difference) -> tuple[int, int, int, Name]:
    urgent = next((i for i, w in enumerate(_URGENT) if w in one.name.what), len(_URGENT))
    of = one.name.of or one.name.what
    subject = next((i for i, w in enumerate(_ORDER) if of.startswith(w)), len(_ORDER))
    lost = (Moved.GONE, Moved.CHANGED, Moved.GREW, Moved.RESET, Moved.ADDED, Moved.NOT_READ)
    counter = one.sort is Sort.COUNTER
    return (urgent if counter else 0, subject, lost.index(one.moved), one.name)
