"""A thing that has gone or come is one difference: its hundred values are parts of it."""

import re
from collections.abc import Sequence
from dataclasses import replace

from gpudoctor.model.diff import Compared, Difference, Moved, Name, Sort, Value
from gpudoctor.snapshots.diff_gpus import SLOT

_BUS, _UUID = "on the bus", "UUID"
# These stand for what the same source says of the thing; `on the bus` for all that is known of it.
_STANDS_FOR = {_BUS, "listed by nvidia-smi", "serves", "has a configuration", "device"}
_THINGS = {Moved.GONE, Moved.ADDED}
Found = Sequence[tuple[Difference, Value]]
Whole = set[tuple[Moved, str]]


def whole_things(found: Found) -> Whole:
    """Return the things of which everything has gone or come: PCI functions, GPUs by UUID."""
    return {
        (each.moved, each.name.of)
        for each, _ in found
        if each.moved in _THINGS and each.name.what in {_BUS, SLOT}
    }


def without_parts(found: Found, whole: Whole, old: Compared, new: Compared) -> list[Difference]:
    """Return the differences less those that are parts of a thing that has gone or come."""
    heads = {
        (each.moved, each.name.of): value
        for each, value in found
        if each.moved in _THINGS and each.name.what in _STANDS_FOR
    }
    kept = [
        each
        for each, value in found
        if not is_of_whole(each.name, whole) and not _is_part(each, value, heads)
    ]
    things = [_thing(moved, of, old, new) for moved, of in sorted(whole)]
    return _swapped(things) + kept


def is_of_whole(name: Name, whole: Whole) -> bool:
    """Return whether a value is about a thing that has gone or come as a whole."""
    about = {*name.of.split(" to ")}
    if name.what.startswith("IOMMU group with "):
        other = name.what.rsplit(" ", 1)[-1]
        about |= {f"PCI {other}", f"GPU {other}"}
    return any((moved, of) in whole for of in about for moved in _THINGS)


def _is_part(each: Difference, value: Value, heads: dict[tuple[Moved, str], Value]) -> bool:
    """Return whether another difference stands for this one: the same source lost the thing."""
    if each.name.what in _STANDS_FOR:
        return False
    names = each.name.of.split(" to ")
    if len(names) > 1:
        return any((each.moved, name) in heads for name in names)
    head = heads.get((each.moved, each.name.of))
    return head is not None and head.sources[-3:] == value.sources[-3:]


def _thing(moved: Moved, of: str, old: Compared, new: Compared) -> Difference:
    side = old if moved is Moved.GONE else new
    text = _description(of, side)
    before, after = (text, "") if moved is Moved.GONE else ("", text)
    return Difference(moved, Sort.INVENTORY, Name(of, ""), before, after)


def _description(of: str, side: Compared) -> str:
    """Return what a PCI function is: its product and UUID, else its ids."""

    def get(what: str) -> str:
        value = side.values.get(Name(of, what))
        return value.text if value else ""

    if product := get("product"):
        return f"{product} ({get(_UUID) or 'UUID not read'}, slot {get(SLOT) or of.split()[-1]})"
    ids = ":".join(re.sub("^0x", "", get(name)) or "????" for name in ("vendor", "device"))
    return f"{ids}, class {get('class') or 'not read'}"


def _swapped(things: list[Difference]) -> list[Difference]:
    """Return things with one that went and one that came in the same slot told as one swap."""
    gone = {_slot(one.before): one for one in things if one.moved is Moved.GONE}
    found = []
    for one in things:
        slot = _slot(one.after)
        if one.moved is Moved.ADDED and slot and slot in gone:
            went = gone.pop(slot)
            name = Name("GPU", f"in slot {slot}")
            found.append(replace(went, moved=Moved.CHANGED, name=name, after=one.after))
        elif one.moved is Moved.ADDED:
            found.append(one)
    return (
        found
        + list(gone.values())
        + [one for one in things if one.moved is Moved.GONE and not _slot(one.before)]
    )


def _slot(text: str) -> str:
    match = re.search(r"slot ([0-9a-f:.]+)\)$", text)
    return match[1] if match else ""
