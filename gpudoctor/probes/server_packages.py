"""What a server's processes have mapped and installed, read through /proc/PID/root."""

import re

from gpudoctor.formats.pip_metadata import Packages, numbers, parse_packages
from gpudoctor.formats.proc_maps import Mapped, parse_maps
from gpudoctor.formats.serving import Server
from gpudoctor.model import Evidence, Files, Later, Reader, Reason, Tool, Unknown
from gpudoctor.probes.serving import SERVERS

_DENIED = 113
_MEANINGS = (
    (
        _DENIED,
        Unknown(Reason.NO_PERMISSION, "/proc/PID/maps of the server is not readable: run as root"),
    ),
)
# Distinct mapped files that a check reads; a package folder counts once.
_MAPS = (
    "o=1;for p in {pids};do awk -v p=$p '"
    '{{i=index($0,"/");if(!i)next;f=substr($0,i)}}'
    "f~/\\/lib(nccl|cuda|torch_cuda)[.]so|^.dev.shm.nccl-/{{if(!(f in s)){{s[f]=1;print p,f}}}}"
    "match(f,/(site|dist)-packages\\//){{f=substr(f,1,RSTART+RLENGTH-1);"
    "if(!(f in s)){{s[f]=1;print p,f}}}}' /proc/$p/maps 2>/dev/null&&o=0;done;"
    f"[ $o = 0 ]||exit {_DENIED}"
)
_WANTED = (
    "torch", "triton", "sglang", "sgl_kernel", "sglang_kernel", "vllm", "flashinfer*",
    "nvidia_nccl_cu*", "nvidia_cudnn_cu*", "nvidia_cutlass_dsl", "deep_gemm", "flash_attn",
    "tensorrt_llm", "llama_cpp_python", "transformers",
)  # fmt: skip
_SITE = re.compile(r"(/[A-Za-z0-9_.+@-]+)+")
_ROOT = re.compile(r"/proc/(\d+)/root/")


def _maps_probe(servers: tuple[Server, ...]) -> Tool:
    pids = [pid for s in servers[:8] for pid in (s.pid, *(w.pid for w in s.workers[:2]))]
    script = _MAPS.format(pids=" ".join(str(int(pid)) for pid in pids))
    return Tool("server-maps", "awk", script, cap=1 << 18, meanings=_MEANINGS)


SERVER_MAPS = Later("server-maps", (SERVERS,), _maps_probe)


def _mapped(servers: tuple[Server, ...], evidence: Evidence) -> dict[int, Mapped]:
    """Return what each server has mapped, launcher and workers together, by launcher pid."""
    by_pid = parse_maps(evidence.text)
    found = {}
    for server in servers:
        parts = [by_pid[p] for p in (server.pid, *(w.pid for w in server.workers)) if p in by_pid]
        if parts:
            found[server.pid] = Mapped.joined(parts)
    return found


MAPPED: Reader[dict[int, Mapped]] = Reader("server-mapped", (SERVERS, SERVER_MAPS), _mapped)


def _packages_probe(mapped: dict[int, Mapped]) -> Files | Unknown:
    patterns: list[str] = []
    for pid, files in mapped.items():
        for site in files.sites()[:3]:
            if not _SITE.fullmatch(site) or "/../" in site:
                continue
            root = f"/proc/{int(pid)}/root{site}"
            patterns.append(f"{root}/torch/version.py")
            patterns += [f"{root}/{name}-*.dist-info/METADATA" for name in _WANTED]
            patterns += [f"{root}/{n}-*.dist-info/direct_url.json" for n in ("sglang", "vllm")]
    if not patterns:
        return Unknown(Reason.NOT_PRESENT, "the server has no Python package folder mapped")
    return Files("server-packages", tuple(patterns), cap=4096, guarded=True, no_links=True)


SERVER_PACKAGES = Later("server-packages", (MAPPED,), _packages_probe)


def _packages(evidence: Evidence) -> dict[int, Packages]:
    """Return each server's packages by launcher pid."""
    by_pid: dict[int, dict[str, str]] = {}
    for path, text in evidence.texts().items():
        match = _ROOT.match(path)
        if match:
            by_pid.setdefault(int(match.group(1)), {})[path] = text
    return {pid: parse_packages(texts) for pid, texts in by_pid.items()}


PACKAGES: Reader[dict[int, Packages]] = Reader("server-packages", (SERVER_PACKAGES,), _packages)


def _cuda(packages: dict[int, Packages]) -> str | Unknown:
    """Return the newest CUDA that a server's torch was built for."""
    found = [p.torch.cuda for p in packages.values() if p.torch and p.torch.cuda]
    if not found:
        return Unknown(Reason.NOT_PRESENT, "no torch built for CUDA found in a serving process")
    return max(found, key=numbers)


CUDA_RUNTIME: Reader[str] = Reader("cuda-runtime", (PACKAGES,), _cuda)
