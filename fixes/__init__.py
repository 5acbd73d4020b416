"""Mechanisms: how one kind of thing is read, written and undone; one module a Change type."""

from typing import Any

from gpudoctor.fixes.mechanism import Mechanism, Proof
from gpudoctor.fixes.sysctl import SysctlMechanism
from gpudoctor.model import Change, Sysctl

_MECHANISMS: dict[type[Change], Mechanism[Any]] = {
    Sysctl: SysctlMechanism(),
}

__all__ = ["Mechanism", "Proof", "known_types", "mechanism_of"]


def mechanism_of(change: Change) -> Mechanism[Any]:
    """Return the mechanism of a Change's type."""
    return _MECHANISMS[type(change)]


def known_types() -> list[type[Change]]:
    """Return the Change types that have a mechanism."""
    return list(_MECHANISMS)
