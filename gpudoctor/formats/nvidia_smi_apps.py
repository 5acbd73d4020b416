"""CSV of `nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory` without header and units."""

import re

from gpudoctor.formats.nvidia_smi_gpu import Process
from gpudoctor.formats.nvidia_smi_values import whole


def parse_compute_apps(text: str) -> dict[str, tuple[Process, ...]]:
    """Return the computing processes by GPU UUID; memory in MiB.

    Raises ValueError on a line that is neither a row nor empty.
    """
    found: dict[str, list[Process]] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("No running processes"):
            continue
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 3 or not re.fullmatch(r"[0-9]{1,10}", fields[1]):
            raise ValueError(f"{line[:60]!r} is no row of compute apps")
        found.setdefault(fields[0], []).append(Process(int(fields[1]), "C", "", whole(fields[2])))
    return {uuid: tuple(processes) for uuid, processes in found.items()}
