"""The CPUs: identity, frequency scaling and idle states."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.formats.cpuinfo import Cpu, parse_cpuinfo
from gpudoctor.formats.cpulist import parse_cpulist
from gpudoctor.model import Evidence, Files, Reader, Reason, Unknown
from gpudoctor.probes.kernel import INSIDE_CONTAINER, vouched

_CPU = "/sys/devices/system/cpu"

# The first processor's block fits; the rest of 256 alike does not have to travel.
CPUINFO = Files("cpuinfo", ("/proc/cpuinfo",), head=True)


def _cpu(evidence: Evidence) -> Cpu | Unknown:
    text = evidence.get("/proc/cpuinfo")
    return text if isinstance(text, Unknown) else parse_cpuinfo(text)


CPU: Reader[Cpu] = Reader("cpu", (CPUINFO,), _cpu)

ONLINE = Files("cpus-online", (f"{_CPU}/online",))


def _online(evidence: Evidence) -> frozenset[int] | Unknown:
    text = evidence.get(f"{_CPU}/online")
    return text if isinstance(text, Unknown) else parse_cpulist(text)


CPUS_ONLINE: Reader[frozenset[int]] = Reader("cpus-online", (ONLINE,), _online)


def _sockets(evidence: Evidence) -> int | Unknown:
    """Return the number of CPU packages."""
    packages = {int(text) for text in evidence.texts().values()}
    if not packages or min(packages) < 0:
        return Unknown(Reason.NOT_PRESENT, "the kernel does not tell which socket a CPU is in")
    return len(packages)


SOCKETS: Reader[int] = Reader(
    "sockets",
    (Files("cpu-packages", (f"{_CPU}/cpu[0-9]*/topology/physical_package_id",)),),
    _sockets,
)

_POLICY_FILES = ("scaling_governor", "scaling_driver", "energy_performance_preference")
CPUFREQ = Files("cpufreq", tuple(f"{_CPU}/cpufreq/policy*/{name}" for name in _POLICY_FILES))


@dataclass(frozen=True, slots=True)
class CpuFreq:
    """Frequency scaling: for each policy file, how many policies hold each value.

    `files` maps the paths to the values.
    """

    files: Mapping[str, str]
    governors: Counter[str]
    drivers: Counter[str]
    preferences: Counter[str]

    def other_than(self, name: str, value: str) -> tuple[str, ...]:
        """Return the paths of the files of that name that hold another value, by policy number."""
        paths = [p for p, v in self.files.items() if p.endswith(f"/{name}") and v != value]
        return tuple(sorted(paths, key=_numbers))

    @property
    def driver(self) -> str:
        """Return the scaling driver ("" where the policies name none)."""
        return next(iter(self.drivers), "")

    @property
    def hardware_led(self) -> bool:
        """Return whether the CPU itself picks clocks by a preference (EPP), whatever the governor.

        So it is with amd-pstate-epp and intel_pstate in active mode; passive intel_pstate calls
        itself intel_cpufreq.
        """
        return bool(self.drivers) and set(self.drivers) <= {"amd-pstate-epp", "intel_pstate"}


def _cpufreq(evidence: Evidence) -> CpuFreq | Unknown:
    if evidence.unread:
        return evidence.unread
    texts = {path: text.strip() for path, text in evidence.texts().items()}
    columns = [
        Counter(text for path, text in texts.items() if path.endswith(f"/{name}"))
        for name in _POLICY_FILES
    ]
    if not columns[0] and not columns[1]:
        return Unknown(Reason.NOT_PRESENT, "no CPU frequency driver shows policies here")
    return CpuFreq(texts, *columns)


CPU_FREQ: Reader[CpuFreq] = Reader("cpu-freq", (CPUFREQ,), _cpufreq, tolerant=True)

_IDLE_FILES = ("name", "latency", "disable", "usage")
CPUIDLE = Files(
    "cpuidle",
    (
        f"{_CPU}/cpuidle/current_driver",
        *(f"{_CPU}/cpu[0-9]*/cpuidle/state[0-9]*/{name}" for name in _IDLE_FILES),
        f"{_CPU}/cpu[0-9]*/power/pm_qos_resume_latency_us",
    ),
)


@dataclass(frozen=True, slots=True)
class IdleState:
    """One idle state as most CPUs have it; `latency` in µs is the declared upper bound.

    `switches` are the `disable` files of the CPUs that may enter it, by number, out of `total`
    CPUs; a CPU whose own resume-latency limit is below the state's latency may not. `usage` is the
    number of requests since boot over all CPUs.
    """

    name: str
    latency: int
    switches: tuple[str, ...]
    total: int
    usage: int

    @property
    def enabled(self) -> int:
        """Return how many CPUs may enter it."""
        return len(self.switches)

    @property
    def limits(self) -> tuple[str, ...]:
        """Return the files of the resume-latency limits of the CPUs that may enter it."""
        return tuple(limit_of(switch) for switch in self.switches)


def limit_of(file: str) -> str:
    """Return the file of a CPU's resume-latency limit, for a file of one of its idle states."""
    return f"{file.partition('/cpuidle/')[0]}/power/pm_qos_resume_latency_us"


def _idle_states(evidence: Evidence) -> tuple[IdleState, ...] | Unknown:
    """Return the idle states by declared latency, deepest last."""
    texts = evidence.texts()
    groups: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for path, name in texts.items():
        if not path.endswith("/name"):
            continue
        folder = path.removesuffix("name")
        latency = int(texts[f"{folder}latency"])
        enabled = int(texts[f"{folder}disable"]) == 0 and _permitted(texts, folder, latency)
        usage = int(texts.get(f"{folder}usage", "0"))
        switch = f"{folder}disable" if enabled else ""
        groups.setdefault((name.strip(), latency), []).append((switch, usage))
    states = [_idle_state(*key, seen) for key, seen in groups.items()]
    if not states:
        return Unknown(Reason.NOT_PRESENT, "no idle states are listed (cpuidle is off or hidden)")
    return tuple(sorted(states, key=lambda state: state.latency))


def _idle_state(name: str, latency: int, seen: Sequence[tuple[str, int]]) -> IdleState:
    switches = tuple(sorted((switch for switch, _ in seen if switch), key=_numbers))
    return IdleState(name, latency, switches, len(seen), sum(usage for _, usage in seen))


def _permitted(texts: dict[str, str], folder: str, latency: int) -> bool:
    """Return whether the CPU's own limit admits a state: 0 is no limit, n/a no latency at all."""
    limit = texts.get(limit_of(folder), "0").strip()
    if limit == "n/a":
        return latency == 0
    return not limit.isdigit() or int(limit) == 0 or latency <= int(limit)


IDLE_STATES: Reader[tuple[IdleState, ...]] = Reader("idle-states", (CPUIDLE,), _idle_states)

_DMA_LATENCY = "/dev/cpu_dma_latency"
# Opening for reading registers only the default, which asks for nothing (pm_qos_interface.rst).
DMA_LATENCY_FILE = Files("cpu-dma-latency", (_DMA_LATENCY,), cap=4)


def _dma_latency(evidence: Evidence, inside: str | Unknown) -> int | Unknown:
    """Return the wake-up latency in µs that all requests together allow."""
    raw = evidence.files.get(_DMA_LATENCY) or evidence.problem
    if not isinstance(raw, bytes):
        hidden = vouched(inside, "CPU latency requests")
        return hidden or raw or Unknown(Reason.NOT_PRESENT, f"{_DMA_LATENCY}: not there")
    if len(raw) != 4:
        raise ValueError(f"{len(raw)} bytes instead of 4")
    return int.from_bytes(raw, "little", signed=True)


DMA_LATENCY: Reader[int] = Reader(
    "cpu-dma-latency", (DMA_LATENCY_FILE, INSIDE_CONTAINER), _dma_latency, tolerant=True
)


def _numbers(path: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", path)]


def counted(values: Counter[str]) -> str:
    """Return `performance ×256` for one value, or each with its count."""
    return ", ".join(f"{value} \u00d7{count}" for value, count in values.most_common())
