"""What software and links a GPU needs, and known decode speeds (torch, nvlink, decode .toml)."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from gpudoctor.tables.drivers import arch_of, version_of


@dataclass(frozen=True, slots=True)
class TorchFloor:
    """First torch and CUDA with code for a compute capability (x 10); `firm`: worth failing on.

    `cuda_below` is empty, or the first CUDA whose wheels have dropped the chip.
    """

    sm: int
    torch: str
    cuda: str
    firm: bool
    cuda_below: str = ""


@dataclass(frozen=True, slots=True)
class DecodeReference:
    """Known speeds in tokens a second for one stream of a model on `gpus` GPUs."""

    model: str
    devices: tuple[str, ...]
    gpus: int
    roofline: int
    alternative: int
    peers: tuple[int, int]
    peers_spec: tuple[int, int]
    assumes: str
    alternative_assumes: str
    source: str


@cache
def _table(name: str) -> dict[str, Any]:
    return tomllib.loads(files("gpudoctor.tables").joinpath(name).read_text("utf-8"))


def torch_floor(device: int) -> TorchFloor | None:
    """Return the floor for a PCI device id of NVIDIA's, or None where it is not known."""
    arch = arch_of(device)
    rows = _table("torch.toml")["floor"]
    return next((TorchFloor(**r) for r in rows if arch is not None and r["sm"] == arch.sm), None)


def nvlink_class(device: int) -> str:
    """Return none, bridge or fabric for a PCI device id; empty where it is not known."""
    table = _table("nvlink.toml")
    named = next((k for k, ids in table["products"].items() if f"{device:04x}" in ids), "")
    arch = arch_of(device)
    line = next((k for k, sms in table["lines"].items() if arch and arch.sm in sms), "")
    return named or line


def decode_reference(model: str, devices: set[int], gpus: int) -> DecodeReference | None:
    """Return the known speeds of a model (its last path component) on exactly these GPUs."""
    name = model.rstrip("/").rsplit("/", 1)[-1].lower()
    for row in _table("decode.toml")["decode"]:
        known = {int(device, 16) for device in row["devices"]}
        if re.search(row["model"], name) and devices and devices <= known and gpus == row["gpus"]:
            return DecodeReference(**{k: _frozen(v) for k, v in row.items()})
    return None


def _frozen(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


def at_least(version: str, floor: str) -> bool:
    """Return whether a version is not older than a floor. Raises ValueError without numbers."""
    release = re.match(r"v?[\d.]+", version)
    wanted = version_of(floor)
    found = version_of(release.group(0) if release else "")
    return found[: len(wanted)] + (0,) * (len(wanted) - len(found)) >= wanted
