"""Values that NVIDIA's driver tells: each GPU by its address, settings apart from what ages."""

import re
from collections.abc import Iterator

from gpudoctor.formats.nvidia_smi import parse_nvidia_smi
from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.formats.topo import parse_p2p, parse_topology
from gpudoctor.model import Reason, Unknown
from gpudoctor.snapshots.compared_row import (
    COUNTER,
    INVENTORY,
    SETTING,
    Answer,
    Parser,
    Row,
    shown,
)

UUID, LISTED = "UUID", "listed by nvidia-smi"
_OTHERWISE = Unknown(Reason.NOT_PRESENT, "which GPU is which is known by nvidia-smi -q only")
_INFORMATION = {"Model": "product", "GPU UUID": UUID, "Device Minor": "minor number"}
_BUILD = re.compile(r"\d{3,}\.\d+(?:\.\d+)?")


def smi(answer: Answer) -> Iterator[Row]:
    """Yield the driver's version and each GPU's values.

    Temperatures, clocks, power drawn, use, performance states, fans and processes are left out.
    """
    log = parse_nvidia_smi(answer.text)
    yield Row("driver", "version", INVENTORY, shown(log.driver_version))
    yield Row("driver", "newest CUDA", INVENTORY, shown(log.cuda_version))
    for gpu in log.gpus:
        of = f"GPU {gpu.bdf}"
        yield Row(of, LISTED, INVENTORY, "yes")
        for sort, found in (
            (INVENTORY, _inventory(gpu)),
            (INVENTORY, _health(gpu)),
            (SETTING, _settings(gpu)),
            (COUNTER, _counters(gpu)),
        ):
            yield from (Row(of, what, sort, shown(value)) for what, value in found.items())


def _inventory(gpu: Gpu) -> dict[str, object]:
    """Return what the GPU is; its link's speed idles down, so what it can do counts."""
    return {
        UUID: gpu.uuid,
        "product": gpu.name,
        "part number": gpu.part_number,
        "VBIOS": gpu.vbios,
        "GSP firmware": gpu.gsp_firmware,
        "minor number": gpu.minor,
        "memory in MiB": gpu.memory.total,
        "BAR1 in MiB": gpu.bar1.total,
        "link generation that it can have": gpu.link.max_gen,
        "lanes that it can have": gpu.link.max_width,
        "lanes": gpu.link.width,
        "lowest power limit in W": gpu.power.lowest,
        "highest power limit in W": gpu.power.highest,
        "default power limit in W": gpu.power.default,
        "highest SM clock in MHz": gpu.max_clocks.sm,
        "highest memory clock in MHz": gpu.max_clocks.memory,
    }


def _health(gpu: Gpu) -> dict[str, object]:
    """Return what the GPU says of its own state, and what waits for a reset."""
    repair, rows = gpu.repair, gpu.remapping
    found: dict[str, object] = {
        "recovery action": gpu.recovery_action,
        "reset required": gpu.reset_required,
        "fabric state": gpu.fabric_state,
        "fabric status": gpu.fabric_status,
        "retired pages wait for a reset": gpu.retirement.pending,
        "channel repair waits for a reset": repair.channel_pending,
        "TPC repair waits for a reset": repair.tpc_pending,
        "memory beyond repair": repair.unrepairable,
    }
    if not isinstance(rows, Unknown):
        found |= {"row remap waits for a reset": rows.pending, "row remap failed": rows.failed}
    return found


def _settings(gpu: Gpu) -> dict[str, object]:
    return {
        "persistence mode": gpu.persistence,
        "addressing mode": gpu.addressing,
        "compute mode": gpu.compute_mode,
        "MIG mode": gpu.mig.current,
        "MIG mode after a reset": gpu.mig.pending,
        "MIG instances": gpu.mig_instances,
        "ECC mode": gpu.ecc.current,
        "ECC mode after a reset": gpu.ecc.pending,
        "virtualization mode": gpu.virtualization,
        "vGPU mode": gpu.host_vgpu,
        "C2C mode": gpu.c2c,
        "power limit in W": gpu.power.requested,
        "highest boost clock in MHz": gpu.boost_limit,
    }


def _counters(gpu: Gpu) -> dict[str, object]:
    ecc, rows = gpu.ecc_counts, gpu.remapping
    found: dict[str, object] = {
        "ECC errors corrected": ecc.aggregate_corrected,
        "ECC errors not corrected": ecc.aggregate_uncorrected,
        "ECC errors corrected since the driver was loaded": ecc.volatile_corrected,
        "ECC errors not corrected since the driver was loaded": ecc.volatile_uncorrected,
        "pages retired for corrected errors": gpu.retirement.single_bit,
        "pages retired for errors not corrected": gpu.retirement.double_bit,
        "PCIe replays": gpu.link.replays,
    }
    if not isinstance(rows, Unknown):
        found |= {
            "rows remapped for corrected errors": rows.corrected,
            "rows remapped for errors not corrected": rows.uncorrected,
            "banks without spare rows": rows.banks_left_none,
        }
    return found


def information(answer: Answer) -> Iterator[Row]:
    """Yield what /proc/driver/nvidia says of a GPU; its interrupt number is volatile."""
    of = f"GPU {answer.parts[0].lower()}"
    for line in answer.text.splitlines():
        name, _, value = line.partition(":")
        what = _INFORMATION.get(name.strip())
        if what and value.strip() and "?" not in value:
            yield Row(of, what, INVENTORY, value.strip())


def driver_version(answer: Answer) -> Iterator[Row]:
    """Yield the loaded module's version and flavour."""
    for line in answer.text.splitlines():
        match = _BUILD.search(line.partition("NVRM version:")[2])
        if match:
            flavour = "open" if "Open Kernel Module" in line else "closed"
            yield Row("module nvidia", "loaded build", INVENTORY, f"{match.group()} ({flavour})")
            return
    raise ValueError("no version in /proc/driver/nvidia/version")


def topology(answer: Answer) -> Iterator[Row]:
    """Yield how each pair of GPUs is joined, both ways round."""
    part, other = _named_by(answer)
    yield Row("GPU", "topology", INVENTORY, _OTHERWISE, part=other)
    for (one, two), link in parse_topology(answer.text).pairs().items():
        for pair in ((one, two), (two, one)):
            yield Row(_pair(answer, *pair), "link", INVENTORY, link, part=part)


def peers(answer: Answer) -> Iterator[Row]:
    """Yield whether each GPU may read its peers' memory."""
    part, other = _named_by(answer)
    yield Row("GPU", "peer-to-peer", SETTING, _OTHERWISE, part=other)
    for pair, state in parse_p2p(answer.text).items():
        yield Row(_pair(answer, *pair), "peer-to-peer", SETTING, state, part=part)


def _named_by(answer: Answer) -> tuple[str, str]:
    """Return how this matrix names GPUs, and how it does not: the two cannot be compared."""
    names = ("by address", "by number")
    return names if answer.gpus else (names[1], names[0])


def _pair(answer: Answer, *names: str) -> str:
    """Return two GPUs by address: their numbers move when one is missing."""
    numbers = [int(name.removeprefix("GPU")) for name in names]
    if all(number < len(answer.gpus) for number in numbers):
        return " to ".join(f"GPU {answer.gpus[number]}" for number in numbers)
    return " to ".join(names)


PARSERS: dict[str, Parser] = {
    "smi": smi,
    "gpu_information": information,
    "driver_version": driver_version,
    "topology": topology,
    "peers": peers,
}
