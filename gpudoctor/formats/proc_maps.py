"""Files mapped by a process: the package folders and libraries that it really uses."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Mapped:
    """What a server's processes have mapped: package folders, libraries, NCCL's shared memory."""

    site_packages: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    nccl_shm: bool = False

    @classmethod
    def joined(cls, parts: "Sequence[Mapped]") -> "Mapped":
        """Return what several processes of one server have mapped together."""
        return cls(
            tuple(dict.fromkeys(site for part in parts for site in part.site_packages)),
            tuple(dict.fromkeys(path for part in parts for path in part.libraries)),
            any(part.nccl_shm for part in parts),
        )

    def library(self, name: str) -> tuple[str, ...]:
        """Return the mapped files of one library, such as `libnccl`."""
        return tuple(p for p in self.libraries if p.rsplit("/", 1)[-1].startswith(f"{name}.so"))

    def sites(self) -> tuple[str, ...]:
        """Return the package folders, the one that torch runs from first."""
        home = [p.partition("/torch/lib/")[0] for p in self.library("libtorch_cuda")]
        return tuple(sorted(self.site_packages, key=lambda site: site not in home))


def parse_maps(text: str) -> dict[int, Mapped]:
    """Parse `PID PATH` lines of mapped files into what each process has mapped."""
    found: dict[int, Mapped] = {}
    for line in text.split("\n"):
        pid, _, path = line.partition(" ")
        if not pid.isdigit() or not path.startswith("/"):
            continue
        before = found.get(int(pid), Mapped())
        found[int(pid)] = _with(before, path.removesuffix(" (deleted)"))
    return found


def _with(mapped: Mapped, path: str) -> Mapped:
    site = re.match(r"(/.*?/(?:site|dist)-packages)/", path)
    sites = mapped.site_packages
    if site and site.group(1) not in sites:
        sites = (*sites, site.group(1))
    name = path.rsplit("/", 1)[-1]
    libraries = mapped.libraries
    if re.match(r"lib(nccl|cuda|torch_cuda)\.so", name) and path not in libraries:
        libraries = (*libraries, path)
    shm = mapped.nccl_shm or path.startswith("/dev/shm/nccl-")
    return replace(mapped, site_packages=sites, libraries=libraries, nccl_shm=shm)
