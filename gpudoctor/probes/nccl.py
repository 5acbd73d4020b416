"""How GPUs reach each other: topology, peer-to-peer permission, NCCL's settings and version."""

import re
from dataclasses import dataclass

from gpudoctor.formats.engines import Engine
from gpudoctor.formats.launch_flags import Flags, parse_flags
from gpudoctor.formats.pip_metadata import Packages
from gpudoctor.formats.proc_maps import Mapped
from gpudoctor.formats.serving import Server
from gpudoctor.formats.topo import Topology, parse_p2p, parse_topology
from gpudoctor.model import Evidence, Files, Later, Listing, Reader, Reason, Unknown
from gpudoctor.probes.gpu import another_nvidia_smi
from gpudoctor.probes.pci import GPU_FUNCTIONS, PciFunction
from gpudoctor.probes.server_packages import MAPPED, PACKAGES
from gpudoctor.probes.serving import SERVERS

NVIDIA_SMI_TOPO = another_nvidia_smi("nvidia-smi-topo", "topo -m")
NVIDIA_SMI_P2P = another_nvidia_smi("nvidia-smi-p2p", "topo -p2p r")

Functions = tuple[PciFunction, ...] | Unknown


def _why(evidence: Evidence, functions: Functions) -> Unknown | None:
    """Return why nvidia-smi gave no matrix; that there is no GPU goes before a missing tool."""
    if isinstance(functions, Unknown) and functions.reason is Reason.NOT_PRESENT:
        return functions
    return evidence.problem


def _topology(evidence: Evidence, functions: Functions) -> Topology | Unknown:
    return _why(evidence, functions) or parse_topology(evidence.text)


TOPOLOGY: Reader[Topology] = Reader(
    "gpu-topology", (NVIDIA_SMI_TOPO, GPU_FUNCTIONS), _topology, tolerant=True
)


def _p2p(evidence: Evidence, functions: Functions) -> dict[tuple[str, str], str] | Unknown:
    return _why(evidence, functions) or parse_p2p(evidence.text)


P2P_STATES: Reader[dict[tuple[str, str], str]] = Reader(
    "gpu-p2p-states", (NVIDIA_SMI_P2P, GPU_FUNCTIONS), _p2p, tolerant=True
)

INFINIBAND = Listing("infiniband-devices", ("/sys/class/infiniband/*",))
PORTS = Files(
    "infiniband-ports",
    tuple(f"/sys/class/infiniband/*/ports/*/{name}" for name in ("state", "link_layer", "rate")),
)


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """One RDMA port as the kernel prints it: state such as `4: ACTIVE`, link layer, rate."""

    device: str
    port: str
    state: str
    layer: str
    rate: str

    @property
    def active(self) -> bool:
        """Return whether the port carries traffic."""
        return self.state.startswith("4:")


def _rdma(devices: Evidence, ports: Evidence) -> tuple[RdmaPort, ...] | Unknown:
    """Return the RDMA ports; none at all is an empty tuple, not an Unknown."""
    for evidence in (devices, ports):
        if evidence.unread:
            return evidence.unread
    texts = ports.texts()
    found = []
    for path in sorted(texts):
        match = re.fullmatch(r"/sys/class/infiniband/([^/]+)/ports/(\d+)/state", path)
        if match:
            folder = path.removesuffix("state")
            layer, rate = (texts.get(folder + n, "").strip() for n in ("link_layer", "rate"))
            found.append(RdmaPort(match[1], match[2], texts[path].strip(), layer, rate))
    names = {path.rsplit("/", 1)[-1] for path, line in devices.files.items() if _read(line)}
    bare = sorted(names - {port.device for port in found})
    return tuple(found) + tuple(RdmaPort(name, "", "", "", "") for name in bare)


def _read(line: bytes | Unknown) -> bool:
    return not isinstance(line, Unknown)


RDMA: Reader[tuple[RdmaPort, ...]] = Reader("rdma-ports", (INFINIBAND, PORTS), _rdma, tolerant=True)

PEERMEM_MODULE = Listing("peermem-module", ("/sys/module/nvidia", "/sys/module/nvidia_peermem"))


def _peermem(evidence: Evidence) -> bool | Unknown:
    """Return whether nvidia_peermem is loaded; unknown without the nvidia module."""
    loaded = {path for path, line in evidence.files.items() if _read(line)}
    if "/sys/module/nvidia" not in loaded:
        return evidence.problem or Unknown(Reason.NOT_PRESENT, "the nvidia module is not loaded")
    return "/sys/module/nvidia_peermem" in loaded


PEERMEM: Reader[bool] = Reader("peermem-loaded", (PEERMEM_MODULE,), _peermem, tolerant=True)

_CONF_FILES = ("/etc/nccl.conf", "/root/.nccl.conf")


def _conf_probe(servers: tuple[Server, ...]) -> Files:
    roots = [f"/proc/{int(server.pid)}/root" for server in servers[:8]]
    paths = tuple(f"{root}{name}" for root in roots for name in reversed(_CONF_FILES))
    return Files("nccl-conf", paths, guarded=True, no_links=True)


NCCL_CONF = Later("nccl-conf", (SERVERS,), _conf_probe)


@dataclass(frozen=True, slots=True)
class NcclJob:
    """One server as NCCL sees it: GPUs in a communicator, and every NCCL_ setting it starts with.

    `settings` come from the environment at exec, else from its nccl.conf files.
    """

    server: Server
    ranks: int
    settings: dict[str, str] | Unknown

    def get(self, name: str) -> str | None:
        """Return a setting; call only where settings are known."""
        return None if isinstance(self.settings, Unknown) else self.settings.get(name)


_USES_NCCL = {Engine.SGLANG, Engine.VLLM, Engine.TGI, Engine.TENSORRT}


def ranks_of(flags: Flags) -> int:
    """Return tensor × pipeline parallel size: how many GPUs one model replica spans."""
    tp = flags.number("tensor-parallel-size", "tp-size", "tp", "num-shard") or 1
    return tp * (flags.number("pipeline-parallel-size", "pp-size", "pp") or 1)


def _jobs(servers: tuple[Server, ...] | Unknown, conf: Evidence) -> tuple[NcclJob, ...] | Unknown:
    if isinstance(servers, Unknown):
        return servers
    texts = conf.texts()
    return tuple(
        NcclJob(server, ranks_of(parse_flags(server.arguments)), _settings(server, texts))
        for server in servers
        if server.engine in _USES_NCCL
    ) or Unknown(Reason.NOT_PRESENT, "the engine that serves does not use NCCL")


def _settings(server: Server, texts: dict[str, str]) -> dict[str, str] | Unknown:
    """Return NCCL_ settings: /etc/nccl.conf, overridden by ~/.nccl.conf, then the environment."""
    if isinstance(server.env, Unknown):
        return server.env
    found: dict[str, str] = {}
    for name in _CONF_FILES:
        text = texts.get(f"/proc/{server.pid}/root{name}", "")
        for line in text.splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.lstrip().startswith("#"):
                found[key.strip()] = value.strip()
    return found | {k: v for k, v in server.env.items() if k.startswith("NCCL_")}


NCCL_JOBS: Reader[tuple[NcclJob, ...]] = Reader(
    "nccl-jobs", (SERVERS, NCCL_CONF), _jobs, tolerant=True
)

_NUMBERED = re.compile(r"libnccl\.so\.(\d+\.\d+(?:\.\d+)?)$")


def _version(
    mapped: dict[int, Mapped], packages: dict[int, Packages] | Unknown
) -> dict[int, str] | Unknown:
    """Return each server's NCCL version: of the mapped library, by its name or its wheel."""
    found: dict[int, str] = {}
    for pid, files in mapped.items():
        for path in files.library("libnccl"):
            named = _NUMBERED.search(path)
            if named:
                found[pid] = named.group(1)
            elif "/nvidia/nccl/lib/" in path and not isinstance(packages, Unknown):
                version = _wheel(packages.get(pid, Packages()))
                found |= {pid: version} if version else {}
    if found:
        return found
    if any(files.library("libnccl") for files in mapped.values()):
        return Unknown(Reason.NOT_PRESENT, "libnccl is mapped, but neither name nor wheel tell it")
    return Unknown(Reason.NOT_PRESENT, "no serving process has libnccl mapped")


def _wheel(packages: Packages) -> str | None:
    """Return the version of the one NCCL wheel; two of them write the same library file."""
    wheels = [name for name in packages.versions if name.startswith("nvidia-nccl-cu")]
    return packages.version(*wheels) if len(wheels) == 1 else None


def _versions(
    mapped: dict[int, Mapped] | Unknown, packages: dict[int, Packages] | Unknown
) -> dict[int, str] | Unknown:
    return mapped if isinstance(mapped, Unknown) else _version(mapped, packages)


NCCL_VERSIONS: Reader[dict[int, str]] = Reader(
    "nccl-versions", (MAPPED, PACKAGES), _versions, tolerant=True
)
