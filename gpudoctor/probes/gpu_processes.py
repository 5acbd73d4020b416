"""Which processes hold memory of which GPU, and who owns them."""

from gpudoctor.formats.cgroup_owner import owner_of
from gpudoctor.formats.nvidia_smi_apps import parse_compute_apps
from gpudoctor.formats.nvidia_smi_gpu import Gpu, Process
from gpudoctor.model import Evidence, Files, Later, Reader, Reason, Unknown
from gpudoctor.probes.gpu import GPUS, another_nvidia_smi

Processes = dict[str, tuple[Process, ...] | Unknown]
MOST_PIDS = 128

COMPUTE_APPS = another_nvidia_smi(
    "nvidia-smi-compute-apps",
    "--query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits",
)


def _processes(apps: Evidence, gpus: tuple[Gpu, ...] | Unknown) -> Processes | Unknown:
    """Join the computing processes of the query with all those of the report, by BDF."""
    if isinstance(gpus, Unknown):
        return gpus
    readable = apps.problem is None and apps.exit in {0, None}
    computing = parse_compute_apps(apps.text) if readable else {}
    return {gpu.bdf: _joined(gpu, computing, readable) for gpu in gpus}


def _joined(
    gpu: Gpu, computing: dict[str, tuple[Process, ...]], readable: bool
) -> tuple[Process, ...] | Unknown:
    extra = () if isinstance(gpu.uuid, Unknown) else computing.get(gpu.uuid, ())
    if isinstance(gpu.processes, Unknown):
        return extra if readable else gpu.processes
    listed = {process.pid for process in gpu.processes}
    return gpu.processes + tuple(process for process in extra if process.pid not in listed)


GPU_PROCESSES: Reader[Processes] = Reader(
    "gpu-processes", (COMPUTE_APPS, GPUS), _processes, tolerant=True
)


def _cgroups(processes: Processes) -> Files | Unknown:
    pids = {p.pid for found in processes.values() if not isinstance(found, Unknown) for p in found}
    chosen = sorted(pids)[:MOST_PIDS]
    if not chosen:
        return Unknown(Reason.NOT_PRESENT, "no process holds GPU memory")
    return Files("gpu-process-cgroups", tuple(f"/proc/{pid}/cgroup" for pid in chosen))


PROCESS_CGROUPS = Later("gpu-process-cgroups", (GPU_PROCESSES,), _cgroups)


def _owners(cgroups: Evidence) -> dict[int, str]:
    return {int(path.split("/")[2]): owner_of(text) for path, text in cgroups.texts().items()}


# Owners by pid; pids whose cgroup could not be read are left out.
PROCESS_OWNERS: Reader[dict[int, str]] = Reader(
    "gpu-process-owners", (PROCESS_CGROUPS,), _owners, tolerant=True
)
