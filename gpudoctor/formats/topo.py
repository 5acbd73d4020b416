"""Output of `nvidia-smi topo`: the matrix of `-m` and the peer-to-peer states of `-p2p`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

_ESCAPE = re.compile(r"[\x1b\ufffd]\[[0-9;]*m")
_DEVICE = re.compile(r"(?:GPU|NIC)\d+|(?:mlx|bnxt_re|irdma|qedr|efa|rdmap|rocep|ib|hfi1_)[\w.:-]*")
_LINK = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV\d+")
_GLUED = re.compile(rf"(?:{_LINK.pattern})+")
_NIC_NAME = re.compile(r"^[ \t]*(NIC\d+):[ \t]*(\S+)", re.MULTILINE)
_STATES = frozenset({"X", "OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})


@dataclass(frozen=True, slots=True)
class Topology:
    """The matrix: link kind by (row, column), CPU and NUMA affinity by GPU where one is given."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    links: Mapping[tuple[str, str], str]
    cpus: Mapping[str, str] = field(default_factory=dict)
    numa: Mapping[str, str] = field(default_factory=dict)
    nic_names: Mapping[str, str] = field(default_factory=dict)

    def pairs(self) -> dict[tuple[str, str], str]:
        """Return the link kind of each pair of GPUs once."""
        return {
            (a, b): link
            for a, b in combinations(self.gpus, 2)
            if (link := self.links.get((a, b)) or self.links.get((b, a)))
        }

    def kinds(self) -> tuple[str, ...]:
        """Return the distinct link kinds between GPUs, nearest first."""
        return tuple(sorted(set(self.pairs().values()), key=_distance))


def _distance(kind: str) -> tuple[int, str]:
    order = ("PIX", "PXB", "PHB", "NODE", "SYS")
    return (order.index(kind) + 1 if kind in order else 0, kind)


def parse_topology(text: str) -> Topology:
    """Parse `topo -m`, tab- or space-separated. Raises ValueError where no matrix is in it."""
    lines = [_ESCAPE.sub("", line) for line in text.split("\n")]
    at = next((i for i, line in enumerate(lines) if _is_header(line)), None)
    if at is None:
        raise ValueError("no topology matrix in the output of nvidia-smi topo -m")
    columns = _columns(lines[at])
    affinity = "CPU Affinity" in lines[at]
    links: dict[tuple[str, str], str] = {}
    tails: dict[str, list[str]] = {}
    for line in lines[at + 1 :]:
        words = _fields(line)
        row = words[0] if words else ""
        if row not in columns:
            if tails and not row:
                break
            continue
        cells = words[1 : 1 + len(columns)]
        links |= {(row, c): w for c, w in zip(columns, cells, strict=False) if _LINK.fullmatch(w)}
        tails[row] = words[1 + len(columns) :] if affinity else []
    gpus = tuple(c for c in columns if c.startswith("GPU") and c in tails)
    if not gpus:
        raise ValueError("the topology matrix has no GPU row")
    if len(gpus) > 1 and not any(a in gpus and b in gpus and a != b for a, b in links):
        raise ValueError("the matrix names no links between GPUs: not that of topo -m")
    return Topology(
        gpus,
        tuple(c for c in columns if not c.startswith("GPU")),
        links,
        {gpu: cpus for gpu in gpus if (cpus := "".join(tails[gpu][:1]))},
        {gpu: node for gpu in gpus if (node := "".join(tails[gpu][1:2]))},
        dict(_NIC_NAME.findall(text)),
    )


def _fields(line: str) -> list[str]:
    """Return a row's fields: between tabs as printed, else words, glued cells of pastes split."""
    if "\t" in line:
        return [field.strip() for field in line.split("\t")]
    words: list[str] = []
    for word in line.split():
        words += _LINK.findall(word) if _GLUED.fullmatch(word) else [word]
    return words


def _columns(header: str) -> list[str]:
    words = re.sub(r"(\d)(?=(?:GPU|NIC)\d)", r"\1 ", header).split()
    end = next((i for i, word in enumerate(words) if not _DEVICE.fullmatch(word)), len(words))
    return words[:end]


def _is_header(line: str) -> bool:
    words = line.split()
    if not words or words[0] != "GPU0":
        return False
    return len(words) == 1 or words[1] in {"CPU", "GPU1"} or _DEVICE.fullmatch(words[1]) is not None


def parse_p2p(text: str) -> dict[tuple[str, str], str]:
    """Parse `topo -p2p r`: the state of each ordered pair of GPUs. ValueError without a matrix."""
    columns: list[str] = []
    states: dict[tuple[str, str], str] = {}
    for line in text.split("\n"):
        words = _ESCAPE.sub("", line).split()
        if not words or not words[0].startswith("GPU"):
            continue
        if all(re.fullmatch(r"GPU\d+", word) for word in words) and not columns:
            columns = words
            continue
        cells = zip(columns, words[1:], strict=False)
        states |= {(words[0], c): w for c, w in cells if w in _STATES and c != words[0]}
    if not columns:
        raise ValueError("no matrix in the output of nvidia-smi topo -p2p")
    return states
