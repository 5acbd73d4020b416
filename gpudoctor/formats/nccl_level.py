"""How far NCCL lets GPUs talk directly: path kinds in its order, its default, and overrides."""

from collections.abc import Mapping

# NCCL's own names, nearest first (graph/topo.h); PHB and NODE of nvidia-smi are both its PHB.
ORDER = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
_LEGACY = ("LOC", "PIX", "PXB", "PHB", "SYS")


def of_link(link: str) -> str:
    """Return NCCL's path kind for a cell of `nvidia-smi topo -m`."""
    if link.startswith("NV"):
        return "NVL"
    return {"NODE": "PHB", "X": "LOC"}.get(link, link)


def allows(level: str, link: str) -> bool:
    """Return whether P2P is used over a link at this cutoff."""
    return ORDER.index(of_link(link)) <= ORDER.index(level)


def default_level(amd: bool, gpus: int) -> str:
    """Return NCCL's own cutoff: within PCIe switches, or anywhere for up to two GPUs on AMD."""
    return "SYS" if amd and gpus <= 2 else "PXB"


def user_level(settings: Mapping[str, str]) -> str | None:
    """Return the cutoff that NCCL_P2P_DISABLE or NCCL_P2P_LEVEL sets; None for neither.

    NCCL ignores words that it does not know (NODE is one); numbers are its old scale.
    """
    if settings.get("NCCL_P2P_DISABLE", "").strip() == "1":
        return "LOC"
    word = settings.get("NCCL_P2P_LEVEL", "").strip()
    if word in ORDER:
        return word
    if word[:1].isdigit():
        digits = word[: len(word) - len(word.lstrip("0123456789"))]
        return _LEGACY[min(int(digits), len(_LEGACY) - 1)]
    return None
