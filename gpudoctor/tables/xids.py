"""What an Xid code asks for (`xids.toml`)."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from gpudoctor.model import Class, Impact, Needs


@dataclass(frozen=True, slots=True)
class XidGroup:
    """Codes with one immediate resolution; `cls` is None where nothing is to be done."""

    name: str
    codes: tuple[int, ...]
    meaning: str
    cls: Class | None
    impact: Impact
    needs: Needs
    remedy: str


@cache
def xid_groups() -> tuple[XidGroup, ...]:
    """Return all groups, gravest first."""
    table = tomllib.loads(files("gpudoctor.tables").joinpath("xids.toml").read_text("utf-8"))
    return tuple(
        XidGroup(
            row["name"],
            tuple(row["codes"]),
            row["meaning"],
            Class(row["class"]) if row["class"] else None,
            Impact(row["impact"]),
            Needs(row["needs"]),
            row["remedy"],
        )
        for row in table["group"]
    )


def xid_group(code: int) -> XidGroup | None:
    """Return the group of a code, or None where the table does not know it."""
    return next((group for group in xid_groups() if code in group.codes), None)
