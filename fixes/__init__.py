"""Mechanisms: how one kind of thing is read, written and undone; one module a Change type."""

import sys
from typing import Any

from gpudoctor.fixes.affinity import AffinityMechanism
from gpudoctor.fixes.by_hand import GivenRecipe, Recipe
from gpudoctor.fixes.cgroup import CgroupLimitMechanism
from gpudoctor.fixes.cmdline import CmdlineRecipe
from gpudoctor.fixes.file import OwnFileMechanism
from gpudoctor.fixes.gpu import GpuMechanism
from gpudoctor.fixes.holder import LatencyHoldMechanism
from gpudoctor.fixes.mechanism import Mechanism, Proof
from gpudoctor.fixes.module import ModuleMechanism
from gpudoctor.fixes.module_option import ModuleOptionRecipe
from gpudoctor.fixes.mount import MountSizeMechanism
from gpudoctor.fixes.node import NodeMechanism
from gpudoctor.fixes.pci import PciMechanism
from gpudoctor.fixes.process import ProcessLimitMechanism
from gpudoctor.fixes.service import ServiceMechanism
from gpudoctor.fixes.sysctl import SysctlMechanism
from gpudoctor.fixes.sysfs import SysfsMechanism
from gpudoctor.model import (
    Affinity,
    CgroupLimit,
    Change,
    DeviceNodes,
    GpuSetting,
    KernelArguments,
    LatencyHold,
    Module,
    ModuleOption,
    MountSize,
    OwnFile,
    PciBits,
    ProcessLimit,
    Service,
    Sysctl,
    Sysfs,
    Worked,
)

_MECHANISMS: dict[type[Change], Mechanism[Any]] = {
    Affinity: AffinityMechanism(),
    CgroupLimit: CgroupLimitMechanism(),
    DeviceNodes: NodeMechanism(),
    GpuSetting: GpuMechanism(),
    LatencyHold: LatencyHoldMechanism(),
    Module: ModuleMechanism(),
    MountSize: MountSizeMechanism(),
    OwnFile: OwnFileMechanism(),
    PciBits: PciMechanism(),
    ProcessLimit: ProcessLimitMechanism(),
    Service: ServiceMechanism(),
    Sysctl: SysctlMechanism(),
    Sysfs: SysfsMechanism(),
}

_RECIPES: dict[type[Change], Recipe[Any]] = {
    Worked: GivenRecipe(),
    KernelArguments: CmdlineRecipe(),
    ModuleOption: ModuleOptionRecipe(),
}

__all__ = [
    "Mechanism",
    "Proof",
    "Recipe",
    "known_types",
    "mechanism_of",
    "reads_of",
    "recipe_of",
    "way_of",
]


def mechanism_of(change: Change) -> Mechanism[Any]:
    """Return the mechanism of a Change's type."""
    return _MECHANISMS[type(change)]


def recipe_of(change: Change) -> Recipe[Any]:
    """Return how a change is worked out by hand."""
    return _RECIPES[type(change)]


def reads_of(change: Change) -> dict[str, str]:
    """Return the read texts of a change, by name: its items, and what else it must know."""
    known: Mechanism[Any] | Recipe[Any]
    known = recipe_of(change) if change.by_hand else mechanism_of(change)
    return known.reads(change)


def way_of(kind: type[Change]) -> str:
    """Return how a type of change is made, and where that was seen working, in words."""
    known = _RECIPES.get(kind) or _MECHANISMS[kind]
    how = (sys.modules[type(known).__module__].__doc__ or "").partition("\n")[0]
    if isinstance(known, Recipe):
        return f"{how} Never run by gpudoctor."
    return f"{how} Seen working {known.proof.meaning}."


def known_types() -> list[type[Change]]:
    """Return the Change types that have a mechanism."""
    return list(_MECHANISMS)
