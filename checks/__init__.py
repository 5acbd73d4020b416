"""Checks: one module a panel. Each holds its readers and its rules; nothing here does I/O."""

from functools import cache
from importlib import import_module

from gpudoctor.model import Check, Panel
from gpudoctor.model.error import WrongUsage


@cache
def of_panel(panel: Panel) -> tuple[Check, ...]:
    """Return the checks of one panel, in the order of their module."""
    module = import_module(f"gpudoctor.checks.{panel.value}")
    return tuple(item for item in vars(module).values() if isinstance(item, Check))


@cache
def by_id() -> dict[str, tuple[Panel, Check]]:
    """Return every check with its panel, by id."""
    return {check.id: (panel, check) for panel in Panel for check in of_panel(panel)}


def known_check(name: str) -> Check:
    """Return the check of that id. Raises WrongUsage naming the nearest."""
    from difflib import get_close_matches  # seldom needed

    if name in by_id():
        return by_id()[name][1]
    near = [id_ for id_ in by_id() if name and name in id_] or get_close_matches(name, by_id(), 1)
    ids = " or ".join(near[:4])
    hint = f"did you mean {ids}?" if near else "`gpudoctor audit` lists them by id"
    raise WrongUsage(f"no check {name!r}; {hint}")
