"""Which driver, kernel module flavour and CUDA version go together (`drivers.toml`)."""

import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Arch:
    """A GPU architecture; `devices` are inclusive PCI id ranges, `flavour` its kernel module."""

    name: str
    architecture: str
    sm: int
    min_driver: str
    last_branch: int
    flavour: str
    devices: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """A driver branch; months are `year-month`, `ends` is empty where no end is known."""

    number: int
    cuda: str
    started: str
    ends: str = ""
    long_term: bool = False


class CudaFit(StrEnum):
    """How a CUDA runtime fits the newest CUDA that the driver supports."""

    FULL = "full"
    MINOR = "minor"
    TOO_NEW = "too-new"


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("gpudoctor.tables").joinpath("drivers.toml").read_text("utf-8"))


def version_of(text: str) -> tuple[int, ...]:
    """Return a version's components as numbers. Raises ValueError where it has none."""
    parts = re.findall(r"\d+", text)
    if not parts:
        raise ValueError(f"{text[:40]!r} is no version")
    return tuple(int(part) for part in parts)


def older(one: str, other: str) -> bool:
    """Return whether a version is older, compared number by number."""
    return version_of(one) < version_of(other)


@cache
def archs() -> tuple[Arch, ...]:
    """Return all architectures of the table."""
    return tuple(
        Arch(**(row | {"devices": tuple(_range(text) for text in row["devices"])}))
        for row in _table()["arch"]
    )


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first, 16), int(last, 16)


def arch_of(device: int) -> Arch | None:
    """Return the architecture of a PCI device id, or None where the table does not know it."""
    return next((a for a in archs() if any(lo <= device <= hi for lo, hi in a.devices)), None)


@cache
def branches() -> tuple[Branch, ...]:
    """Return all driver branches of the table, oldest first."""
    return tuple(Branch(**row) for row in _table()["branch"])


def branch_of(version: str) -> Branch | None:
    """Return the newest known branch that a driver version is of or past, or None before all."""
    number = version_of(version)[0]
    known = [branch for branch in branches() if branch.number <= number]
    return known[-1] if known else None


def has_ended(branch: Branch) -> bool:
    """Return whether its support had ended when the table was written."""
    return bool(branch.ends) and branch.ends < as_of()


def is_old(branch: Branch) -> bool:
    """Return whether it is too far behind the newest branch and not under long-term support."""
    kept = branch.long_term and not has_ended(branch)
    behind = _months(branches()[-1].started) - _months(branch.started)
    return not kept and behind > int(_table()["old_after_months"])


def _months(month: str) -> int:
    year, number = version_of(month)
    return year * 12 + number


def as_of() -> str:
    """Return the month in which the table was written."""
    return str(_table()["as_of"])


def cuda_fit(driver_cuda: str, runtime_cuda: str) -> CudaFit:
    """Compare a runtime's CUDA with the newest CUDA of the driver (nvidia-smi's CUDA Version).

    MINOR: same major version, newer minor: it runs, but PTX of the newer minor does not compile.
    Raises ValueError when either is no version.
    """
    driver, runtime = version_of(driver_cuda)[:2], version_of(runtime_cuda)[:2]
    if runtime <= driver:
        return CudaFit.FULL
    return CudaFit.MINOR if runtime[0] == driver[0] else CudaFit.TOO_NEW


def driver_for_cuda(cuda: str) -> str | None:
    """Return the oldest driver that fully supports a CUDA toolkit, or None where not known."""
    major_minor = ".".join(str(n) for n in version_of(cuda)[:2])
    found = _table()["toolkit"].get(major_minor)
    return None if found is None else str(found)
