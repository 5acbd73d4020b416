"""GPU specifications by product name (`gpus.toml`)."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU: memory choices in GB, bus in bits, clock in MHz, bandwidth in GB/s, TDP in W.

    `sm` is the compute capability times ten; `nvlink` is total GB/s, 0 without NVLink; tensor
    rates are dense TFLOPS, 0 where there is no hardware for them.
    """

    name: str
    match: str
    sm: int
    memory: tuple[int, ...]
    bus: int
    clock: int
    bandwidth: int
    bf16: int
    fp8: int
    fp4: int
    tdp: int
    nvlink: int


@cache
def gpu_specs() -> tuple[GpuSpec, ...]:
    """Return all rows of the table."""
    table = tomllib.loads(files("gpudoctor.tables").joinpath("gpus.toml").read_text("utf-8"))
    return tuple(GpuSpec(**(row | {"memory": tuple(row["memory"])})) for row in table["gpu"])


def spec_of(product_name: str) -> GpuSpec | None:
    """Return the row of a product name as nvidia-smi prints it, or None where there is none."""
    return next((s for s in gpu_specs() if re.search(rf"\b{s.match}", product_name)), None)


def bandwidth(bus_bits: int, memory_clock: float) -> float:
    """Return peak memory bandwidth in GB/s from bus width in bits and clock in MHz."""
    return memory_clock * 2 * bus_bits / 8 / 1000
