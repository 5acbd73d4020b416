"""What nvidia-smi tells about one GPU, typed: every field is a value or why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpudoctor.model import Unknown

Number = float | Unknown
Whole = int | Unknown
Word = str | Unknown
Flag = bool | Unknown


@dataclass(frozen=True, slots=True)
class Setting:
    """A mode that changes at the next reset: what holds now and what is pending."""

    current: Word
    pending: Word


@dataclass(frozen=True, slots=True)
class Memory:
    """Sizes in MiB; `reserved` is absent on old drivers."""

    total: Whole
    reserved: Whole
    used: Whole
    free: Whole


@dataclass(frozen=True, slots=True)
class Temperature:
    """Degrees C. `margin` is the T.Limit distance left; `slow_at` an absolute threshold."""

    gpu: Number
    margin: Number
    slow_at: Number
    memory: Number


@dataclass(frozen=True, slots=True)
class Power:
    """Watts of the GPU alone. `enforced` may lie below `requested` by an external cap."""

    draw: Number
    enforced: Number
    requested: Number
    default: Number
    lowest: Number
    highest: Number


@dataclass(frozen=True, slots=True)
class Clocks:
    """MHz."""

    sm: Number
    memory: Number


@dataclass(frozen=True, slots=True)
class Link:
    """PCIe generation and lane count, as the driver sees them; `host_max_gen` on newer drivers."""

    gen: Whole
    max_gen: Whole
    device_max_gen: Whole
    host_max_gen: Whole
    width: Whole
    max_width: Whole
    replays: Whole


@dataclass(frozen=True, slots=True)
class EccCounts:
    """Error counts: volatile since the driver was loaded, aggregate over the board's life."""

    volatile_corrected: Whole
    volatile_uncorrected: Whole
    aggregate_corrected: Whole
    aggregate_uncorrected: Whole
    volatile_sram_uncorrected: Whole
    sram_threshold_exceeded: Flag


@dataclass(frozen=True, slots=True)
class Remapping:
    """Row remapping: rows remapped, a remap pending a reset, a failed one, exhausted banks."""

    corrected: Whole
    uncorrected: Whole
    pending: Flag
    failed: Flag
    banks_left_none: Whole


@dataclass(frozen=True, slots=True)
class Retirement:
    """Retired pages of GPUs before Ampere."""

    single_bit: Whole
    double_bit: Whole
    pending: Flag


@dataclass(frozen=True, slots=True)
class Repair:
    """Repairs that wait for a reset, and memory that cannot be repaired (newest drivers)."""

    channel_pending: Flag
    tpc_pending: Flag
    unrepairable: Flag


@dataclass(frozen=True, slots=True)
class Process:
    """A process with memory on the GPU: type C, G or C+G, MiB used."""

    pid: int
    kind: str
    name: str
    used: Whole


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, by its sysfs BDF; `index` is its place in nvidia-smi, not CUDA's order.

    `sick` holds the distinct alarming words found among its values; `reasons` maps clock event
    reasons (`hw_slowdown`) to active or not, `counters` to microseconds since the driver loaded.
    """

    bdf: str
    index: int
    uuid: Word
    name: Word
    brand: Word
    architecture: Word
    device: Whole
    part_number: Word
    vbios: Word
    gsp_firmware: Word
    minor: Whole
    persistence: Flag
    addressing: Word
    compute_mode: Word
    mig: Setting
    mig_instances: int
    ecc: Setting
    ecc_counts: EccCounts
    virtualization: Word
    host_vgpu: Word
    recovery_action: Word
    reset_required: Flag
    drain_and_reset: Flag
    pstate: Word
    memory: Memory
    bar1: Memory
    temperature: Temperature
    power: Power
    clocks: Clocks
    max_clocks: Clocks
    boost_limit: Number
    utilization: Whole
    reasons: Mapping[str, Flag]
    counters: Mapping[str, Whole]
    link: Link
    fabric_state: Word
    fabric_status: Word
    c2c: Word
    fan: Word
    remapping: Remapping | Unknown
    retirement: Retirement
    repair: Repair
    processes: tuple[Process, ...] | Unknown
    sick: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Return the product name without its vendor, or a plain `GPU`."""
        return "GPU" if isinstance(self.name, Unknown) else self.name.removeprefix("NVIDIA ")

    @property
    def computing(self) -> int:
        """Return how many processes compute on it, as far as nvidia-smi lists them."""
        found = () if isinstance(self.processes, Unknown) else self.processes
        return sum("C" in process.kind for process in found)
