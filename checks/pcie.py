"""Panel 7: PCI Express, for each GPU and every bridge above it.

The rules: links in pcie_links, registers in pcie_registers and pcie_tags, state in pcie_health,
comparisons in pcie_peers, policies in pcie_policy. The order here is the panel's.
"""

from gpudoctor.checks.pcie_health import aer_counters, aspm, numa_node
from gpudoctor.checks.pcie_links import link_gen, link_width, path_bottleneck
from gpudoctor.checks.pcie_peers import consistency, device_identity
from gpudoctor.checks.pcie_policy import bus_policy, port_runtime_pm, replays, switch_map
from gpudoctor.checks.pcie_registers import (
    max_payload,
    max_read_req,
    no_snoop,
    relaxed_ordering,
)
from gpudoctor.checks.pcie_tags import ecrc, ext_tags, tags10

__all__ = [
    "aer_counters",
    "aspm",
    "bus_policy",
    "consistency",
    "device_identity",
    "ecrc",
    "ext_tags",
    "link_gen",
    "link_width",
    "max_payload",
    "max_read_req",
    "no_snoop",
    "numa_node",
    "path_bottleneck",
    "port_runtime_pm",
    "relaxed_ordering",
    "replays",
    "switch_map",
    "tags10",
]
