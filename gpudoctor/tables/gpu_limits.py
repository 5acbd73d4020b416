"""Thresholds of the GPU panels by check id (`gpu_limits.toml`)."""

import tomllib
from functools import cache
from importlib.resources import files


@cache
def _table() -> dict[str, dict[str, float]]:
    return tomllib.loads(files("gpudoctor.tables").joinpath("gpu_limits.toml").read_text("utf-8"))


def limit(check: str, name: str) -> float:
    """Return one threshold; its unit is in the table. Raises KeyError for an unknown one."""
    return _table()[check][name]
