"""The NVIDIA driver as the container sees it: libraries, loader path; and where its GPUs sit."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpudoctor.formats.listing import link_target
from gpudoctor.model import Evidence, Files, Listing, Reader, Reason, Side, Unknown
from gpudoctor.probes.container import CONTAINER_GPU_NODES, CONTAINER_INIT, Nodes, gpu_minors

_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",
    "/usr/local/cuda-*/compat",
)
LIBRARIES = Listing(
    "ct-driver-libraries",
    tuple(f"{f}/{name}.so*" for f in _FOLDERS for name in ("libcuda", "libnvidia-ml")),
    side=Side.CONTAINER,
)
LOADER = Files(
    "ct-loader-conf", ("/etc/ld.so.conf", "/etc/ld.so.conf.d/*.conf"), 4096, Side.CONTAINER, True
)
_VERSIONED = re.compile(r"(?P<lib>libcuda|libnvidia-ml)\.so\.(?P<version>\d{3,}\.\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Libraries:
    """Driver versions of the user-space libraries: those in use by library, and compat copies.

    More than one for a library: folders disagree, and the loader's order decides.
    `compat_first`: the loader's configuration names a compat folder.
    """

    used: dict[str, frozenset[str]]
    compat: frozenset[str]
    compat_first: bool


def _libraries(init: object, listing: Evidence, loader: Evidence) -> Libraries | Unknown:
    if isinstance(init, Unknown):
        return init
    if listing.unread:
        return listing.unread
    lines = {p: line for p, line in listing.files.items() if not isinstance(line, Unknown)}
    plain = {path: line for path, line in lines.items() if "/compat/" not in path}
    compat = _versions(path for path in lines if "/compat/" in path).get("libcuda", frozenset())
    named = any(re.search(r"/compat\b", text) for text in loader.texts().values())
    return Libraries(_in_use(plain), compat, named)


def _versions(names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the versions in file names, by library."""
    found: dict[str, frozenset[str]] = {}
    for match in filter(None, map(_VERSIONED.search, names)):
        found[match["lib"]] = found.get(match["lib"], frozenset()) | {match["version"]}
    return found


def _in_use(lines: dict[str, bytes]) -> dict[str, frozenset[str]]:
    """Return the versions that the .so.1 links lead to; without such links, all that lie there."""
    linked = _versions(link_target(line) for path, line in lines.items() if path.endswith(".so.1"))
    return _versions(path.rsplit("/", 1)[-1] for path in lines) | linked


CONTAINER_LIBRARIES: Reader[Libraries] = Reader(
    "ct-driver-libraries", (CONTAINER_INIT, LIBRARIES, LOADER), _libraries, tolerant=True
)

_VERSION_FILE = "/proc/driver/nvidia/version"
KERNEL_SIDE = Files("host-driver-version", (_VERSION_FILE,))
KERNEL_SIDE_IN = Files("ct-driver-version", (_VERSION_FILE,), side=Side.CONTAINER)
_MODULE = re.compile(r"^NVRM version:.*?\s(?P<version>\d{3,}\.\d+(?:\.\d+)?)\s", re.MULTILINE)


def _kernel_side(host: Evidence, inside: Evidence) -> str | Unknown:
    """Return the loaded module's version, from whichever side shows it: they share the kernel."""
    for evidence in (host, inside):
        match = _MODULE.search(f"{evidence.texts().get(_VERSION_FILE, '')} ")
        if match:
            return match["version"]
    return host.problem or Unknown(Reason.NOT_PRESENT, f"no version in {_VERSION_FILE}")


DRIVER_BUILD: Reader[str] = Reader(
    "driver-build", (KERNEL_SIDE, KERNEL_SIDE_IN), _kernel_side, tolerant=True
)

GPU_PLACES = Files(
    "gpu-places", ("/proc/driver/nvidia/gpus/*/information", "/sys/bus/pci/devices/*/numa_node")
)
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)


def _gpu_nodes(evidence: Evidence, nodes: Nodes) -> dict[int, int] | Unknown:
    """Return the NUMA node (-1: not told) of each GPU that the container has, by minor number."""
    texts = evidence.texts()
    places = {}
    for path, text in texts.items():
        match = _MINOR.search(text) if path.endswith("/information") else None
        if match:
            bdf = path.split("/")[-2].lower()
            node = texts.get(f"/sys/bus/pci/devices/{bdf}/numa_node")
            if node is not None:
                places[int(match.group(1))] = int(node)
    here = {minor: node for minor, node in places.items() if minor in gpu_minors(nodes)}
    return here or Unknown(Reason.NOT_PRESENT, "the container has no GPU whose place is known")


CONTAINER_GPU_PLACES: Reader[dict[int, int]] = Reader(
    "ct-gpu-places", (GPU_PLACES, CONTAINER_GPU_NODES), _gpu_nodes
)
