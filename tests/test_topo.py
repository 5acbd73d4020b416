"""Topology matrices: every real output parses, and says what its text says."""

from pathlib import Path

import pytest

from gpudoctor.formats.topo import parse_p2p, parse_topology
from gpudoctor.text import clean

CORPUS = Path(__file__).parents[1].parent / "shared" / "corpus" / "nvidia-smi-text"
MATRICES = sorted(CORPUS.glob("topo-m/**/*.txt"))
STATES = sorted(CORPUS.glob("topo-p2p/*.txt"))

TABS = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNODE\tPIX\t0-31,64-95\t0\t\tN/A\n"
    "GPU1\tNODE\t X \tSYS\tN/A\tN/A\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
)


def test_escapes_nics_and_affinity() -> None:
    topology = parse_topology(clean(TABS))
    assert topology.gpus == ("GPU0", "GPU1")
    assert topology.nics == ("NIC0",)
    assert topology.pairs() == {("GPU0", "GPU1"): "NODE"}
    assert topology.cpus == {"GPU0": "0-31,64-95", "GPU1": "N/A"}
    assert topology.numa == {"GPU0": "0", "GPU1": "N/A"}
    assert topology.nic_names == {"NIC0": "mlx5_0"}


def test_empty_affinity_is_absent() -> None:
    text = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t\t\t\tN/A\n\n"
    assert parse_topology(text).cpus == {}


def test_kinds_are_sorted_by_distance() -> None:
    spaces = (
        "      GPU0  GPU1  GPU2  CPU Affinity\n"
        "GPU0   X    SYS   NV4   0-7\nGPU1  SYS    X    PIX   0-7\nGPU2  NV4   PIX    X    8-15\n"
    )
    assert parse_topology(spaces).kinds() == ("NV4", "PIX", "SYS")


@pytest.mark.parametrize("text", ["", "ERROR: Option -m is missing its value.\n", "GPU0 is lost\n"])
def test_no_matrix(text: str) -> None:
    with pytest.raises(ValueError, match="matrix"):
        parse_topology(text)


def test_p2p_after_a_complaint() -> None:
    text = 'Option "-p2p" is odd.\n \tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tOK\tX\t\n\nLegend:\n'
    assert parse_p2p(text) == {("GPU0", "GPU1"): "CNS", ("GPU1", "GPU0"): "OK"}


@pytest.mark.skipif(not MATRICES, reason="no corpus beside the repository")
@pytest.mark.parametrize("path", MATRICES, ids=[p.stem for p in MATRICES])
def test_every_real_matrix(path: Path) -> None:
    text = clean(path.read_bytes())
    if "GPU0" not in text:
        with pytest.raises(ValueError, match="matrix"):
            parse_topology(text)
        return
    topology = parse_topology(text)
    count = len(topology.gpus)
    assert topology.gpus == tuple(f"GPU{i}" for i in range(count))
    assert len(topology.pairs()) == count * (count - 1) // 2
    for gpu, cpus in topology.cpus.items():
        assert cpus == "N/A" or cpus[0].isdigit(), (gpu, cpus)
    for (a, b), link in topology.links.items():
        assert (link == "X") == (a == b), (a, b, link)


@pytest.mark.skipif(not STATES, reason="no corpus beside the repository")
@pytest.mark.parametrize("path", STATES, ids=[p.stem for p in STATES])
def test_every_real_p2p(path: Path) -> None:
    states = parse_p2p(clean(path.read_bytes()))
    gpus = {a for a, _ in states}
    assert len(states) == len(gpus) * (len(gpus) - 1) > 0


def test_states_of_p2p_are_no_links() -> None:
    text = "\tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n"
    with pytest.raises(ValueError, match="no links"):
        parse_topology(text)
