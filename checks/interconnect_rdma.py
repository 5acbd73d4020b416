"""RDMA network cards, and what lets them reach GPU memory."""

from gpudoctor.formats.version import series
from gpudoctor.model import (
    Class,
    Impact,
    Module,
    Reason,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    non_issue,
    unknown,
)
from gpudoctor.probes.gpu import NVIDIA_MODULE, NvidiaModule
from gpudoctor.probes.kernel import KERNEL_RELEASE
from gpudoctor.probes.nccl import PEERMEM, RDMA, RdmaPort


@check(
    "nccl-peermem",
    "nvidia_peermem",
    reads=(PEERMEM, RDMA),
    optional=(NVIDIA_MODULE, KERNEL_RELEASE),
    why="nvidia_peermem lets RDMA network cards reach GPU memory. On the open kernel module with "
    "Linux 5.12 or newer DMA-BUF does the same without it.",
    source="NVIDIA/open-gpu-kernel-modules nvidia-peermem.c; NVIDIA NCCL user guide, GPU "
    "troubleshooting",
    changes=(Module,),
)
def peermem(
    loaded: bool,
    ports: tuple[RdmaPort, ...],
    module: NvidiaModule | Unknown,
    release: str | Unknown,
) -> Verdict:
    """Judge the module against the RDMA devices that could use it."""
    state = "loaded" if loaded else "not loaded"
    nics = len({port.device for port in ports})
    observed = f"{state}; {nics} RDMA device(s)"
    if not ports and not loaded:
        return non_issue(
            "nvidia_peermem is not loaded, and nothing here could use it",
            observed,
            why="It is widely taken for the switch that enables GPU-to-GPU P2P. It is not: it "
            "registers GPU memory with RDMA network cards, and there is none. GPU-to-GPU P2P is "
            "in the nvidia module itself; loading this one would change nothing (see "
            "nccl-p2p-level for what does).",
        )
    if not ports:
        return info("nvidia_peermem is loaded, though no RDMA device could use it", observed)
    if loaded:
        return good("RDMA devices can reach GPU memory", observed)
    dmabuf = _dmabuf(module, release)
    if isinstance(dmabuf, Unknown):
        return unknown(dmabuf.reason, f"whether DMA-BUF replaces peermem: {dmabuf.detail}")
    if dmabuf:
        return info("Not loaded; DMA-BUF gives RDMA devices the same", observed)
    return issue(
        "RDMA devices cannot reach GPU memory: neither nvidia_peermem nor DMA-BUF",
        Class.P0,
        Impact.HIGH,
        observed,
        "loaded",
        changes=((Module("nvidia_peermem", caution=_PEERMEM_CAUTION),),),
    )


_PEERMEM_CAUTION = (
    "`Invalid argument` from modprobe means that the module was built without the RDMA stack's "
    "peer memory symbols: it does not apply there, and nothing is left loaded."
)


def _dmabuf(module: NvidiaModule | Unknown, release: str | Unknown) -> bool | Unknown:
    if isinstance(module, Unknown):
        return module
    if isinstance(release, Unknown) or isinstance(module.is_open, Unknown):
        return release if isinstance(release, Unknown) else Unknown(Reason.NOT_PRESENT, "flavour")
    return module.is_open and series(release) >= (5, 12)


@check(
    "nccl-rdma-nics",
    "RDMA network cards",
    reads=(RDMA,),
    why="They decide whether peermem and the locked-memory limit matter.",
    source="kernel.org Documentation/ABI/stable/sysfs-class-infiniband",
)
def rdma_nics(ports: tuple[RdmaPort, ...]) -> Verdict:
    """List the ports."""
    if not ports:
        return info("No RDMA network card")
    active = sum(port.active for port in ports)
    observed = "; ".join(
        f"{p.device} port {p.port}: {p.state} {p.layer} {p.rate}" if p.port else p.device
        for p in ports
    )
    return info(f"{active} of {len(ports)} RDMA port(s) active", observed)
