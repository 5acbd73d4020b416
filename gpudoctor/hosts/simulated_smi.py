"""nvidia-smi's settings on a simulated machine.

Each setting of a GPU is a file below a folder that no host has, named by its field of --query-gpu.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpudoctor.hosts.simulated_shell import NotSimulated
from gpudoctor.hosts.simulated_tools import Output, Program

if TYPE_CHECKING:
    from gpudoctor.hosts.simulated import SimulatedMachine

_HOME = "/gpudoctor/gpu"
_ALL_DONE = "All done.\n"
_MODES = {"0": "Default", "2": "Prohibited", "3": "Exclusive_Process"}
_FORMAT = "--format=csv,noheader,nounits"


def gpu_files(gpus: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """Return the files that hold the settings of a seed's GPUs."""
    return {
        f"{_HOME}/{gpu['bdf']}/{field}": f"{value}\n".encode()
        for gpu in gpus
        for field, value in _fields(gpu).items()
    }


def _fields(gpu: Mapping[str, Any]) -> dict[str, str]:
    watts = {"limit": "limit_w", "min_limit": "min_w", "max_limit": "max_w"}
    watts["default_limit"] = "default_w"
    return {
        "persistence_mode": gpu["persistence"],
        "compute_mode": gpu["compute_mode"],
        "pid": str(gpu["pid"]),
        **{f"power.{name}": f"{gpu[key]:.2f}" for name, key in watts.items()},
    }


def as_set(machine: "SimulatedMachine", gpu: Mapping[str, Any]) -> dict[str, Any]:
    """Return a seed's GPU with its settings as they are now."""
    now = {name: machine.text(f"{_HOME}/{gpu['bdf']}/{name}") for name in _fields(gpu)}
    return dict(gpu) | {
        "persistence": now["persistence_mode"],
        "compute_mode": now["compute_mode"],
        "limit_w": float(now["power.limit"] or 0),
    }


def _nvidia_smi(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`[-i BDF]` and a query of fields or processes, `-pm 0|1`, `-pl WATTS` or `-c 0|2|3`."""
    bdfs = sorted({path.split("/")[3] for path in machine.files if path.startswith(f"{_HOME}/")})
    if not bdfs:
        return Output(err="sh: nvidia-smi: not found\n", exit=127)
    words = list(argv)
    if words[:1] == ["-i"]:
        if words[1] not in bdfs:
            return Output("No devices were found\n", exit=6)
        bdfs, words = [words[1]], words[2:]
    if words[1:] == [_FORMAT] or words[1:] == [_FORMAT.removesuffix(",nounits")]:
        fields = words[0].partition("=")[2].split(",")
        return Output("".join(f"{_row(machine, bdf, fields)}\n" for bdf in bdfs))
    if len(words) != 2 or words[0] not in _SETS or len(bdfs) != 1:
        raise NotSimulated(f"nvidia-smi {' '.join(argv)}")
    return _SETS[words[0]](machine, bdfs[0], words[1])


def _row(machine: "SimulatedMachine", bdf: str, fields: Sequence[str]) -> str:
    told = {"pci.bus_id": f"0000{bdf}".upper()}
    return ", ".join(
        told.get(name) or machine.text(f"{_HOME}/{bdf}/{name}") or "[N/A]" for name in fields
    )


def _persistence(machine: "SimulatedMachine", bdf: str, value: str) -> Output:
    word = "Enabled" if value == "1" else "Disabled"
    machine.write(f"{_HOME}/{bdf}/persistence_mode", f"{word}\n")
    return Output(f"{word} Legacy persistence mode for GPU 0000{bdf.upper()}.\n{_ALL_DONE}")


def _power(machine: "SimulatedMachine", bdf: str, value: str) -> Output:
    limits = [machine.text(f"{_HOME}/{bdf}/power.{name}_limit") for name in ("min", "max")]
    least, most = (float(text or 0) for text in limits)
    watts = float(value)
    if not least <= watts <= most:
        return Output(
            f"Provided power limit {watts:.2f} W is not a valid power limit which should be "
            f"between {least:.2f} W and {most:.2f} W for GPU 0000{bdf.upper()}\n"
            "Terminating early due to previous errors.\n",
            exit=2,
        )
    machine.write(f"{_HOME}/{bdf}/power.limit", f"{watts:.2f}\n")
    return Output(_ALL_DONE)


def _compute(machine: "SimulatedMachine", bdf: str, value: str) -> Output:
    machine.write(f"{_HOME}/{bdf}/compute_mode", f"{_MODES[value]}\n")
    return Output(_ALL_DONE)


_SETS: dict[str, Callable[["SimulatedMachine", str, str], Output]] = {
    "-pm": _persistence,
    "-pl": _power,
    "-c": _compute,
}
SMI: dict[str, Program] = {"nvidia-smi": _nvidia_smi}
