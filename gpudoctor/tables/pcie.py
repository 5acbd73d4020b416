"""Thresholds and names of the firmware and PCIe panels, from `pcie.toml`."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class PcieTable:
    """`noise` and `bad`: correctable errors an hour; `usual_read`: bytes; names by vendor id."""

    noise: float
    bad: float
    usual_read: int
    bridges: dict[int, str]
    displays: dict[int, str]


@cache
def pcie_table() -> PcieTable:
    """Return the table that ships with gpudoctor."""
    data = tomllib.loads(files("gpudoctor.tables").joinpath("pcie.toml").read_text("utf-8"))
    return PcieTable(
        data["aer"]["noise_per_hour"],
        data["aer"]["bad_per_hour"],
        data["read_request"]["usual"],
        {int(vendor, 16): name for vendor, name in data["bridge_vendors"].items()},
        {int(vendor, 16): name for vendor, name in data["display_vendors"].items()},
    )
