"""What nvidia-smi prints on a simulated machine, from a few values a GPU.

The shape is that of the DTD nvsmi_device_v13: every group a current driver prints, the absent
values in its own words.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

Gpu = Mapping[str, Any]
Tree = dict[str, "Tree | str | list[Tree]"]

_GONE = "Requested functionality has been deprecated"
_ABSENT = "N/A"


def smi_xml(driver: Mapping[str, Any], gpus: Sequence[Gpu]) -> str:
    """Return the XML of `nvidia-smi -q -x`."""
    head: Tree = {
        "timestamp": driver["timestamp"],
        "driver_version": driver["version"],
        "cuda_version": driver["cuda"],
        "attached_gpus": str(len(gpus)),
    }
    lines = ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">']
    lines += ["<nvidia_smi_log>", *_lines(head, 1)]
    for gpu in gpus:
        lines.append(f'\t<gpu id="{bus_id(gpu)}">')
        lines += [*_lines(_tree(driver, gpu), 2), "\t</gpu>", ""]
    return "\n".join([*lines, "</nvidia_smi_log>", ""])


def bus_id(gpu: Gpu) -> str:
    """Return the bus id with nvidia-smi's eight-digit domain."""
    return f"0000{gpu['bdf']}".upper()


def compute_apps(gpus: Sequence[Gpu]) -> str:
    """Return `--query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits`."""
    rows = [f"{gpu['uuid']}, {gpu['pid']}, {gpu['process_mib']}" for gpu in gpus]
    return "".join(f"{row}\n" for row in rows)


def topology(gpus: Sequence[Gpu]) -> str:
    """Return `topo -m`: GPUs of one NUMA node are NODE apart, others SYS."""
    names = [f"GPU{i}" for i in range(len(gpus))]
    tail = "CPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    lines = ["\t\x1b[4m" + "\t".join([*names, tail]) + "\x1b[0m"]
    for name, gpu in zip(names, gpus, strict=True):
        cells = [" X " if gpu is other else _apart(gpu, other) for other in gpus]
        lines.append("\t".join([name, *cells, gpu["cpus"], str(gpu["node"]), "", _ABSENT]))
    return "\n".join([*lines, "", "Legend:", "", *_LEGEND, ""])


def _apart(gpu: Gpu, other: Gpu) -> str:
    return "NODE" if gpu["node"] == other["node"] else "SYS"


_LEGEND = (
    "  X    = Self",
    "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes",
    "  NODE = Connection traversing PCIe and the interconnect between PCIe host bridges of a node",
    "  PHB  = Connection traversing PCIe as well as a PCIe host bridge (typically the CPU)",
    "  PXB  = Connection traversing multiple PCIe bridges (without the PCIe host bridge)",
    "  PIX  = Connection traversing at most a single PCIe bridge",
    "  NV#  = Connection traversing a bonded set of # NVLinks",
)


def peer_states(gpus: Sequence[Gpu], state: str) -> str:
    """Return `topo -p2p r`, the same state for each pair."""
    names = [f"GPU{i}" for i in range(len(gpus))]
    lines = [" \t" + "\t".join(names) + "\t"]
    for name in names:
        cells = ["X" if name == other else state for other in names]
        lines.append(f" {name}\t" + "\t".join(cells) + "\t")
    return "\n".join([*lines, "", "Legend:", "", "  X    = Self", "  OK   = Status Ok", ""])


def _lines(tree: Tree, depth: int) -> list[str]:
    pad, lines = "\t" * depth, list[str]()
    for tag, value in tree.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                lines.append(f"{pad}<{tag}>{escape(item)}</{tag}>")
            else:
                lines += [f"{pad}<{tag}>", *_lines(item, depth + 1), f"{pad}</{tag}>"]
    return lines


def _all(names: str, value: str) -> Tree:
    return dict.fromkeys(names.split(), value)


def _tree(driver: Mapping[str, Any], gpu: Gpu) -> Tree:
    return {
        **_board(gpu),
        "gpu_recovery_action": "None",
        "gsp_firmware_version": driver["version"],
        "pci": _pci(gpu),
        "fan_speed": _ABSENT,
        "performance_state": gpu["pstate"],
        "clocks_event_reasons": _reasons(gpu),
        "clocks_event_reasons_counters": _counters(gpu),
        **_memories(gpu),
        "temperature": _temperature(gpu),
        "gpu_power_readings": _power(gpu),
        "gpu_memory_power_readings": _all("average_power_draw instant_power_draw", _ABSENT),
        "module_power_readings": _module_power(),
        "clocks": _clocks(gpu["sm_mhz"], gpu["mem_mhz"], gpu["video_mhz"]),
        "applications_clocks": _all("graphics_clock mem_clock", _GONE),
        "default_applications_clocks": _all("graphics_clock mem_clock", _GONE),
        "deferred_clocks": {"mem_clock": _ABSENT},
        "max_clocks": _clocks(gpu["max_sm_mhz"], gpu["max_mem_mhz"], gpu["max_video_mhz"]),
        "max_customer_boost_clocks": {"graphics_clock": f"{gpu['max_sm_mhz']} MHz"},
        "fabric": _all("state status cliqueId clusterUuid", _ABSENT),
        "processes": {"process_info": [_process(gpu)]},
    }


def _board(gpu: Gpu) -> Tree:
    """Return what the board is and how it is set."""
    modes = "virtualization_mode host_vgpu_mode vgpu_heterogeneous_mode"
    return {
        "product_name": gpu["name"],
        "product_brand": "NVIDIA",
        "product_architecture": gpu["architecture"],
        "display_mode": _GONE,
        "display_attached": "Yes",
        "display_active": "Disabled",
        "persistence_mode": gpu["persistence"],
        "addressing_mode": gpu["addressing"],
        "mig_mode": _all("current_mig pending_mig", gpu["mig"]),
        "mig_devices": "None",
        "accounting_mode": "Disabled",
        "accounting_mode_buffer_size": "4000",
        "serial": gpu["serial"],
        "uuid": gpu["uuid"],
        "minor_number": str(gpu["minor"]),
        "vbios_version": gpu["vbios"],
        "multigpu_board": "No",
        "gpu_part_number": gpu["part"],
        "c2c_mode": "Disabled",
        "gpu_virtualization_mode": _all(modes, _ABSENT) | {"virtualization_mode": "None"},
    }


def _memories(gpu: Gpu) -> Tree:
    """Return memory in use, how busy the GPU is, and memory errors."""
    pages = _all("retired_count retired_pagelist", _ABSENT)
    return {
        "fb_memory_usage": _memory(gpu["fb_mib"], gpu["fb_used_mib"], gpu["fb_reserved_mib"]),
        "bar1_memory_usage": _memory(gpu["bar1_mib"], gpu["bar1_used_mib"]),
        "cc_protected_memory_usage": _all("total used free", "0 MiB"),
        "compute_mode": gpu["compute_mode"],
        "utilization": {"gpu_util": f"{gpu['util']} %", "memory_util": f"{gpu['mem_util']} %"}
        | _all("encoder_util decoder_util jpeg_util ofa_util", "0 %"),
        "dram_encryption_mode": _all("current_dram_encryption pending_dram_encryption", "Disabled"),
        "ecc_mode": _all("current_ecc pending_ecc", gpu["ecc"]),
        "ecc_errors": _ecc(),
        "retired_pages": {
            "multiple_single_bit_retirement": pages,
            "double_bit_retirement": pages,
            **_all("pending_blacklist pending_retirement", _ABSENT),
        },
        "remapped_rows": _rows(),
    }


def _module_power() -> Tree:
    limits = " ".join(f"{n}_power_limit" for n in "current requested default min max".split())
    names = f"average_power_draw instant_power_draw {limits}"
    return {"power_state": _GONE} | _all(names, _ABSENT)


def _pci(gpu: Gpu) -> Tree:
    bus = gpu["bdf"][5:7].upper()
    gen = str(gpu["gen"])
    return {
        "pci_bus": bus,
        "pci_device": "00",
        "pci_domain": "0000",
        "pci_base_class": "3",
        "pci_sub_class": "2",
        "pci_device_id": f"{gpu['device']:04X}10DE",
        "pci_bus_id": bus_id(gpu),
        "pci_sub_system_id": gpu["subsystem"],
        "pci_gpu_link_info": {
            "pcie_gen": {"max_link_gen": "5", "current_link_gen": gen}
            | {"device_current_link_gen": gen}
            | _all("max_device_link_gen max_host_link_gen", "5"),
            "link_widths": {"max_link_width": "16x", "current_link_width": f"{gpu['lanes']}x"},
        },
        "replay_counter": "0",
        "replay_rollover_counter": "0",
        "tx_util": "765 KB/s",
        "rx_util": "566 KB/s",
        "atomic_caps_outbound": _ABSENT,
        "atomic_caps_inbound": "FETCHADD_32 FETCHADD_64 SWAP_32 SWAP_64 CAS_32 CAS_64",
    }


_REASONS = (
    "gpu_idle applications_clocks_setting sw_power_cap hw_slowdown hw_thermal_slowdown "
    "hw_power_brake_slowdown sync_boost sw_thermal_slowdown display_clocks_setting"
)
_COUNTERS = "sw_power_cap sync_boost sw_therm_slowdown hw_therm_slowdown hw_power_brake"


def _reasons(gpu: Gpu) -> Tree:
    active = gpu["reasons"]
    return {
        f"clocks_event_reason_{name}": "Active" if name in active else "Not Active"
        for name in _REASONS.split()
    }


def _counters(gpu: Gpu) -> Tree:
    return {
        f"clocks_event_reasons_counters_{name}": f"{gpu['counters'].get(name, 0)} us"
        for name in _COUNTERS.split()
    }


def _memory(total: int, used: int, reserved: int | None = None) -> Tree:
    sizes = {"total": total} | ({} if reserved is None else {"reserved": reserved})
    sizes |= {"used": used, "free": total - used - (reserved or 0)}
    return {name: f"{size} MiB" for name, size in sizes.items()}


def _ecc() -> Tree:
    kinds = "sram_correctable sram_uncorrectable_parity sram_uncorrectable_secded"
    counts = _all(f"{kinds} dram_correctable dram_uncorrectable", "0")
    sources = "sram_l2 sram_sm sram_microcontroller sram_pcie sram_other"
    return {
        "volatile": counts,
        "aggregate": counts | {"sram_threshold_exceeded": "No"},
        "aggregate_uncorrectable_sram_sources": _all(sources, "0"),
    } | _all("channel_repair_pending tpc_repair_pending unrepairable_memory", "No")


def _rows() -> Tree:
    banks = {"max": 512, "high": 0, "partial": 0, "low": 0, "none": 0}
    return {
        **_all("remapped_row_corr remapped_row_unc", "0"),
        **_all("remapped_row_pending remapped_row_failure", "No"),
        "row_remapper_histogram": {
            f"row_remapper_histogram_{name}": f"{count} bank(s)" for name, count in banks.items()
        },
    }


def _temperature(gpu: Gpu) -> Tree:
    return {
        "gpu_temp": f"{gpu['celsius']} C",
        "gpu_temp_tlimit": f"{gpu['tlimit_at'] - gpu['celsius']} C",
        "gpu_temp_max_tlimit_threshold": "-5 C",
        "gpu_temp_slow_tlimit_threshold": "-2 C",
        "gpu_temp_max_gpu_tlimit_threshold": "0 C",
        "gpu_target_temperature": _ABSENT,
        "memory_temp": _ABSENT,
        "gpu_temp_max_mem_tlimit_threshold": _ABSENT,
    }


def _power(gpu: Gpu) -> Tree:
    draws = _all("average_power_draw instant_power_draw", f"{gpu['watts']:.2f} W")
    limits = {
        "current_power_limit": gpu["limit_w"],
        "requested_power_limit": gpu["limit_w"],
        "default_power_limit": gpu["default_w"],
        "min_power_limit": gpu["min_w"],
        "max_power_limit": gpu["max_w"],
    }
    return {
        "power_state": _GONE,
        **draws,
        **{name: f"{watts:.2f} W" for name, watts in limits.items()},
    }


def _clocks(sm: int, memory: int, video: int) -> Tree:
    return {
        "graphics_clock": f"{sm} MHz",
        "sm_clock": f"{sm} MHz",
        "mem_clock": f"{memory} MHz",
        "video_clock": f"{video} MHz",
    }


def _process(gpu: Gpu) -> Tree:
    return {
        "gpu_instance_id": _ABSENT,
        "compute_instance_id": _ABSENT,
        "pid": str(gpu["pid"]),
        "type": "C",
        "process_name": gpu["process"],
        "used_memory": f"{gpu['process_mib']} MiB",
    }
