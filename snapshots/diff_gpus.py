"""Which GPU is which in two snapshots: by UUID where both know it, by address else."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpudoctor.model.diff import Compared, Name, Sort, Value

_UUID, SLOT = "UUID", "slot"
BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class Places:
    """The GPUs of two snapshots, as (address then, address now) by UUID; empty where absent."""

    slots: Mapping[str, tuple[str, str]]

    def shown(self, text: str) -> str:
        """Return a name with the addresses of GPUs again, where `by_uuid` had put UUIDs."""
        for uuid, (then, now) in self.slots.items():
            if uuid in text:
                moved = then and now and then != now
                text = text.replace(uuid, f"{now} (was {then})" if moved else now or then)
        return text


def named_alike(side: Compared, other: Compared) -> Compared:
    """Return a side with what the other knows as a GPU under that name, where its class is unread.

    Every PCI function has a class and a vendor: where one is missing, it was not read.
    """
    found = {name.of.removeprefix("GPU ") for name in other.values if name.of.startswith("GPU ")}
    names = {name for name in side.values if name.of.startswith("PCI ")}
    unsure = {f"PCI {bdf}" for bdf in found} & {name.of for name in names}
    unsure -= {of for of in unsure if {Name(of, "class"), Name(of, "vendor")} <= names}
    if not unsure:
        return side

    def rename(of: str) -> str:
        return of.replace("PCI ", "GPU ", 1) if of in unsure else of

    values = {replace(name, of=rename(name.of)): value for name, value in side.values.items()}
    unread = dict(side.unread)
    for key, why in side.unread.items():
        of = " ".join(key.split(" ", 2)[:2])
        if of in unsure:
            unread[rename(of) + key.removeprefix(of)] = why
    return replace(side, values=values, unread=unread)


def by_uuid(old: Compared, new: Compared) -> tuple[Compared, Compared, Places]:
    """Return both sides with GPUs named by UUID where one has gone, come or moved."""
    then, now = _uuids(old), _uuids(new)
    if not then or not now:
        return old, new, Places({})
    known = set(now.values())
    # One that nvidia-smi can no longer tell, in its place: the same, unless it is elsewhere.
    silent = {bdf: uuid for bdf, uuid in then.items() if bdf not in now and uuid not in known}
    now |= {bdf: uuid for bdf, uuid in silent.items() if _at(new, bdf)}
    if then == now:
        return old, new, Places({})
    slots = {uuid: (bdf, "") for bdf, uuid in then.items()}
    slots |= {uuid: (slots.get(uuid, ("", ""))[0], bdf) for bdf, uuid in now.items()}
    return _renamed(old, then), _renamed(new, now), Places(slots)


def _uuids(side: Compared) -> dict[str, str]:
    """Return the UUIDs by address; one that comes twice tells nothing."""
    found = {
        name.of.removeprefix("GPU "): value.text
        for name, value in side.values.items()
        if name.what == _UUID and name.of.startswith("GPU ")
    }
    texts = list(found.values())
    return {bdf: uuid for bdf, uuid in found.items() if texts.count(uuid) == 1}


def _at(side: Compared, bdf: str) -> bool:
    return any(name.of == f"GPU {bdf}" for name in side.values)


def _renamed(side: Compared, uuids: Mapping[str, str]) -> Compared:
    def rename(text: str) -> str:
        return BDF.sub(lambda match: uuids.get(match[0], match[0]), text)

    values = {Name(rename(n.of), rename(n.what)): v for n, v in side.values.items()}
    for bdf, uuid in uuids.items():
        values[Name(f"GPU {uuid}", SLOT)] = Value(Sort.INVENTORY, bdf)
    unread = {key if ":/" in key else rename(key): why for key, why in side.unread.items()}
    findings = tuple(
        replace(found, targets=tuple(map(rename, found.targets))) for found in side.findings
    )
    return replace(side, values=values, unread=unread, findings=findings)
