"""Checks: one module a panel. Each holds its readers and its rules; nothing here does I/O."""

from functools import cache
from importlib import import_module

from gpudoctor.model import Check, Panel


@cache
def of_panel(panel: Panel) -> tuple[Check, ...]:
    """Return the checks of one panel, in the order of their module."""
    module = import_module(f"gpudoctor.checks.{panel.value}")
    return tuple(item for item in vars(module).values() if isinstance(item, Check))


@cache
def by_id() -> dict[str, tuple[Panel, Check]]:
    """Return every check with its panel, by id."""
    return {check.id: (panel, check) for panel in Panel for check in of_panel(panel)}
