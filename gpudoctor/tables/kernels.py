"""What is known of kernel series: Zen 5, Proxmox releases, known bad pairs."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

Series = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Bad:
    """A known bad pair: kernels from `since` on, where `module` is present."""

    since: Series
    module: str
    says: str
    remedy: str
    source: str


@dataclass(frozen=True, slots=True)
class Kernels:
    """The table; `proxmox` maps a release prefix to its kernel series, default first."""

    zen5_settled: Series
    zen5_boots: Series
    blackwell_ids: tuple[tuple[int, int], ...]
    blackwell_from: Series
    proxmox: dict[str, tuple[Series, ...]]
    bad: tuple[Bad, ...]

    def is_blackwell(self, device: int) -> bool:
        """Return whether an NVIDIA device id is a Blackwell GPU's."""
        return any(low <= device <= high for low, high in self.blackwell_ids)

    def offered(self, release: str) -> tuple[Series, ...]:
        """Return the series that a Proxmox release (8.4.1) offers; none when it is not known."""
        fitting = (p for p in self.proxmox if release == p or release.startswith(f"{p}."))
        return self.proxmox.get(max(fitting, key=len, default=""), ())


@cache
def kernels() -> Kernels:
    """Return the table that ships with gpudoctor."""
    data = tomllib.loads(files("gpudoctor.tables").joinpath("kernels.toml").read_text())
    return Kernels(
        _series(data["zen5"]["settled"]),
        _series(data["zen5"]["boots"]),
        tuple((low, high) for low, high in data["blackwell"]["ids"]),
        _series(data["blackwell"]["built_from"]),
        {p["release"]: tuple(map(_series, p["series"])) for p in data["proxmox"]},
        tuple(
            Bad(_series(b["since"]), b["module"], b["says"], b["remedy"], b["source"])
            for b in data["bad"]
        ),
    )


def _series(pair: Any) -> Series:
    major, minor = pair
    return int(major), int(minor)


def dotted(pair: Series) -> str:
    """Return a series as people write it: 6.8."""
    return f"{pair[0]}.{pair[1]}"
