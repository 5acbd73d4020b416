"""Panel 2: the container that serves: its kind, its devices, its limits, its driver libraries."""

from gpudoctor.checks.container_conf import devices_in_conf
from gpudoctor.checks.container_cpus import cpu_limit, cpuset_numa
from gpudoctor.checks.container_limits import memlock, memory_limit
from gpudoctor.checks.container_lxc import apparmor, device_cgroup, nesting
from gpudoctor.formats.listing import Entry
from gpudoctor.model import (
    Class,
    DeviceNodes,
    Impact,
    Needs,
    Reason,
    Unknown,
    Verdict,
    Worked,
    check,
    good,
    info,
    issue,
    unknown,
)
from gpudoctor.probes.container import (
    CHAR_MAJORS,
    CONTAINER_CONF,
    CONTAINER_GPU_NODES,
    CONTAINER_KIND,
    HOST_GPU_NODES,
    ContainerConf,
    Nodes,
    gpu_minors,
)
from gpudoctor.probes.container_gpu import CONTAINER_LIBRARIES, DRIVER_BUILD, Libraries

__all__ = [
    "apparmor",
    "cpu_limit",
    "cpuset_numa",
    "device_cgroup",
    "driver_match",
    "gpu_devices",
    "memlock",
    "memory_limit",
    "nesting",
    "runtime_kind",
]

_RESTART = Needs.CONTAINER_RESTART


@check(
    "lxc-runtime-kind",
    "Kind of container",
    reads=(CONTAINER_KIND,),
    why="The kind decides which fixes apply and where they are written.",
    source="systemd-detect-virt(1)",
    scope="container",
)
def runtime_kind(kind: str) -> Verdict:
    """Say what kind of container it is."""
    if kind == "none":
        return info("The serving side is no container, as systemd sees it", kind)
    return info(f"The container is {kind}", kind)


_UVM, _CTL = "/dev/nvidia-uvm", "/dev/nvidiactl"
_UNMAPPED = 65534


@check(
    "lxc-gpu-devices",
    "NVIDIA device nodes in the container",
    reads=(CONTAINER_GPU_NODES, HOST_GPU_NODES),
    optional=(CHAR_MAJORS, CONTAINER_CONF),
    why="CUDA needs nvidiactl, nvidia-uvm and each GPU's node. nvidia-smi works without nvidia-uvm "
    "while CUDA fails with error 999 or finds no device. A bind mount marked optional hides that a "
    "node was missing on the host.",
    source="proxmox/pve-container; NVIDIA driver README (device nodes)",
    scope="container",
    changes=(DeviceNodes, Worked),
)
def gpu_devices(
    inside: Nodes,
    host: Nodes,
    majors: dict[str, frozenset[int]] | Unknown,
    conf: ContainerConf | Unknown,
) -> Verdict:
    """Compare the nodes of both sides, and their numbers with what the kernel uses today."""
    if not gpu_minors(host):
        return unknown(Reason.NOT_PRESENT, "the host itself has no /dev/nvidia0 and so on")
    mine, theirs = len(gpu_minors(inside)), len(gpu_minors(host))
    seen = f"{mine} of {theirs} GPU nodes; {', '.join(sorted(inside)) or 'no NVIDIA node'}"
    missing = [path for path in (_CTL, _UVM) if path not in inside]
    if missing or not mine:
        return _missing(missing, host, seen, conf)
    stale = _stale(inside, host, majors)
    if stale:
        return issue(
            "A device node carries a number that the kernel does not use for it today",
            Class.P0,
            Impact.HIGH,
            "; ".join(stale),
            "the same numbers as on the host",
            needs=_RESTART,
            remedy="Pass the node as dev[n] (resolved when the container starts), or correct the "
            "number in the configuration or the CDI file, then restart the container.",
        )
    shut = sorted(path for path, entry in inside.items() if _is_shut(entry))
    if shut:
        return _no_access(shut, inside)
    if mine < theirs:
        return info("The container has fewer GPUs than the host (may be intended)", seen)
    return good("The container has every GPU's node, nvidiactl and nvidia-uvm", seen)


def _missing(missing: list[str], host: Nodes, seen: str, conf: ContainerConf | Unknown) -> Verdict:
    lacking = missing or ["/dev/nvidia0"]
    absent = [path for path in missing if path not in host]
    first = f"On the host: nvidia-modprobe -u -c=0 makes {_UVM}. " if _UVM in absent else ""
    return issue(
        f"{' and '.join(lacking)} missing in the container",
        Class.P0,
        Impact.HIGH,
        seen,
        "nvidiactl, nvidia-uvm and each GPU's node",
        remedy=f"{first}On Proxmox: pct set ID --dev[n] {lacking[0]}, [n] being the next free "
        "number (live at once; undo: --delete dev[n]); elsewhere add it to the configuration and "
        "restart the container.",
        changes=((DeviceNodes(caution=_NODES_CAUTION),),)
        if _UVM in absent
        else devices_in_conf(conf, [p for p in lacking if p in host], live=True),
    )


_NODES_CAUTION = (
    "It makes the host's nodes only; the container still needs an entry for them. It loads "
    "nvidia_uvm where that is not loaded."
)


def _stale(inside: Nodes, host: Nodes, majors: dict[str, frozenset[int]] | Unknown) -> list[str]:
    """Return the needed nodes whose numbers differ from the host's or from /proc/devices."""
    found = []
    needed = [_CTL, _UVM, *(f"/dev/nvidia{minor}" for minor in sorted(gpu_minors(inside)))]
    for path in needed:
        number = inside[path].device
        wanted = host[path].device if path in host else number
        today = majors.get("nvidia-uvm") if path == _UVM and isinstance(majors, dict) else None
        if number is None or wanted is None:
            continue
        if number != wanted:
            found.append(f"{path} is {_pair(number)} inside, {_pair(wanted)} on the host")
        elif today and number[0] not in today:
            found.append(f"{path} is {_pair(number)}, the kernel uses {min(today)}")
    return found


def _pair(device: tuple[int, int]) -> str:
    return f"{device[0]}:{device[1]}"


def _is_shut(entry: Entry) -> bool:
    """Return whether only an owner that the container does not know may open a node."""
    return entry.uid == _UNMAPPED and entry.mode[7:9] != "rw"


def _no_access(shut: list[str], inside: Nodes) -> Verdict:
    node = inside[shut[0]]
    return issue(
        "The container may not open its NVIDIA nodes",
        Class.P0,
        Impact.MEDIUM,
        f"{', '.join(shut)}: mode {node.mode}, owner not mapped",
        "crw-rw-rw-",
        needs=_RESTART,
        remedy="On the host: options nvidia NVreg_DeviceFileMode=0666 in /etc/modprobe.d (chmod "
        "alone is lost at the next boot), or dev[n] entries with mode=0666.",
    )


@check(
    "lxc-driver-match",
    "Driver libraries in the container",
    reads=(DRIVER_BUILD, CONTAINER_LIBRARIES),
    why="The user-space libraries and the kernel module of a driver must be of the same build, or "
    "NVML and CUDA refuse to start. The CUDA toolkit's version may differ freely.",
    source="NVIDIA/open-gpu-kernel-modules README; NVIDIA CUDA compatibility guide",
    scope="container",
)
def driver_match(kernel: str, libraries: Libraries) -> Verdict:
    """Compare the loaded module's version with the libraries that the loader finds."""
    seen = f"module {kernel}; {_listed(libraries) or 'no libraries found'}"
    if not libraries.used:
        return unknown(
            Reason.NOT_PRESENT, "no libcuda or libnvidia-ml in the container's usual folders"
        )
    if any(kernel not in versions for versions in libraries.used.values()):
        return issue(
            "The container's driver libraries are of another build than the kernel module",
            Class.P0,
            Impact.HIGH,
            seen,
            kernel,
            needs=_RESTART,
            remedy=f"Install the user space of driver {kernel} in the container (a .run file with "
            "--no-kernel-modules), hold it there, and leave the host's module alone. A Docker "
            "image should hold no driver library: the toolkit mounts the host's.",
        )
    newer = sorted(v for v in libraries.compat if _numbers(v) > _numbers(kernel))
    if newer and libraries.compat_first:
        return issue(
            "A newer compat libcuda is on the loader's path",
            Class.P0,
            Impact.MEDIUM,
            f"{seen}; compat {', '.join(newer)}",
            "no compat folder before the driver's own",
            needs=Needs.SERVER_RESTART,
            remedy="Take the cuda/compat folder out of /etc/ld.so.conf.d and LD_LIBRARY_PATH, run "
            "ldconfig, and restart the server.",
        )
    if any(len(versions) > 1 for versions in libraries.used.values()):
        return info("Several builds of the driver libraries lie in the container", seen, kernel)
    return good("Driver libraries and kernel module are of the same build", seen, kernel)


def _listed(libraries: Libraries) -> str:
    return ", ".join(
        f"{name} {' and '.join(sorted(versions))}"
        for name, versions in sorted(libraries.used.items())
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
