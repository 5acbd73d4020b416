"""What one token costs besides reading weights (`collectives.toml`)."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _table() -> dict[str, Any]:
    text = files("gpudoctor.tables").joinpath("collectives.toml").read_text("utf-8")
    return tomllib.loads(text)


def all_reduce(gpus: int) -> tuple[float, str] | None:
    """Return microseconds of one small all-reduce over PCIe and where from, or None: not known."""
    rows = (row for row in _table()["pcie"] if row["least"] <= gpus <= row["most"])
    return next(((float(row["microseconds"]), str(row["said"])) for row in rows), None)


def efficiency(columns: float) -> float:
    """Return the share of peak bandwidth that slices of so many columns reach."""
    table = _table()["efficiency"]
    return float(table["narrow" if columns < table["narrow_below"] else "wide"])


def fixed_seconds() -> float:
    """Return seconds a token for launches and the choice of the token."""
    return float(_table()["fixed"]["seconds"])
