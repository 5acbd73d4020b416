"""Panel 8, host side: power supplies, and limits and heat of the CPUs."""

from dataclasses import dataclass

from gpudoctor.checks.per_gpu import Gpus, unread
from gpudoctor.formats.dmi_supplies import Supply, parse_supplies
from gpudoctor.model import (
    Class,
    Evidence,
    Files,
    Impact,
    Reader,
    Reason,
    Tool,
    Unknown,
    Verdict,
    check,
    good,
    info,
    issue,
    unknown,
)
from gpudoctor.probes.cpu import SOCKETS
from gpudoctor.probes.gpu import GPUS
from gpudoctor.tables.gpu_limits import limit

# Without the tables in sysfs dmidecode would search /dev/mem, which lockdown logs.
_NO_TABLES = 121
DMI_SUPPLIES = Tool(
    "dmi-power-supplies",
    "dmidecode",
    f"[ -e /sys/firmware/dmi/tables/DMI ]||exit {_NO_TABLES};exec dmidecode -t 39",
    cap=1 << 16,
    meanings=((_NO_TABLES, Unknown(Reason.NOT_PRESENT, "the kernel shows no DMI tables")),),
)


def _supplies(evidence: Evidence) -> tuple[Supply, ...] | Unknown:
    if "Permission denied" in evidence.stderr:
        return Unknown(Reason.NO_PERMISSION, "dmidecode needs root")
    nothing = Unknown(Reason.NOT_PRESENT, "the firmware lists no power supply with its rating")
    found = parse_supplies(evidence.text)
    return found if any(s.present and s.watts for s in found) else nothing


SUPPLIES: Reader[tuple[Supply, ...]] = Reader("power-supplies", (DMI_SUPPLIES,), _supplies)


@check(
    "pwr-psu-capacity",
    "Capacity of the power supplies",
    reads=(SUPPLIES, GPUS, SOCKETS),
    why="Heavy prefill takes all GPUs to their limits at once. With N+1 supplies one may fail, so "
    "one does not count; at low-line voltage a supply gives less than its rating.",
    source="dmidecode type 39 (DMTF SMBIOS, system power supply); nvidia-smi manual (power limit)",
)
def psu_capacity(supplies: tuple[Supply, ...], gpus: Gpus, sockets: int) -> Verdict:
    """Compare what the supplies give, less one, with GPU limits and an upper bound for CPUs."""
    limits = [gpu.power.enforced for gpu in gpus]
    absent = next((value for value in limits if isinstance(value, Unknown)), None)
    if absent is not None:
        return unread("power limits", absent)
    usable = usable_watts(supplies)
    if isinstance(usable, Unknown):
        return unknown(usable.reason, usable.detail)
    watts = sum(value for value in limits if not isinstance(value, Unknown))
    return _balance(usable, sum(s.healthy for s in supplies), watts, sockets)


def usable_watts(supplies: tuple[Supply, ...]) -> int | Unknown:
    """Return W that the supplies give with the largest of several failed."""
    ratings = sorted(s.watts for s in supplies if s.healthy)
    if not ratings or 0 in ratings:
        return Unknown(Reason.NOT_PRESENT, "no rating is known for a working power supply")
    return sum(ratings[:-1]) if len(ratings) > 1 else ratings[0]


def needed_watts(gpus: float, sockets: int) -> float:
    """Return W that GPUs with limits of `gpus` W together and CPUs may take, with headroom."""
    load = gpus + sockets * limit("pwr-psu-capacity", "socket_w")
    return load * limit("pwr-psu-capacity", "headroom")


def _balance(usable: int, supplies: int, gpus: float, sockets: int) -> Verdict:
    socket, least = (
        limit("pwr-psu-capacity", "socket_w"),
        limit("pwr-psu-capacity", "socket_least_w"),
    )
    seen = (
        f"{usable} W usable of {supplies} supplies; GPUs {gpus:g} W, "
        f"{sockets} CPU(s), not read, counted with {socket:g} W each at most"
    )
    needed = needed_watts(gpus, sockets)
    wanted = f"{needed:.0f} W"
    if needed <= usable:
        return good("The power supplies carry all limits at once", observed=seen, expected=wanted)
    return issue(
        "The power supplies may not carry all limits at once",
        Class.FW,
        Impact.HIGH if gpus + sockets * least > usable else Impact.LOW,
        observed=seen,
        expected=wanted,
        remedy="Add supplies, feed them from 200-240 V, or lower the GPUs' limits: "
        "`nvidia-smi -i N -pl WATTS` (undo: the old WATTS; lost at reboot).",
    )


_POLICY, _CAP = "/sys/devices/system/cpu/cpufreq/policy*/", "/sys/class/powercap/*/"
_FREQUENCIES = Files(
    "cpu-frequency-limits", (f"{_POLICY}scaling_max_freq", f"{_POLICY}cpuinfo_max_freq"), cap=64
)
_CAPS = Files(
    "cpu-power-caps",
    (f"{_CAP}name", f"{_CAP}constraint_0_power_limit_uw", f"{_CAP}constraint_0_max_power_uw"),
    cap=64,
)


@dataclass(frozen=True, slots=True)
class FrequencyLimit:
    """How many policies are held below the hardware's highest frequency; kHz of the lowest."""

    capped: int
    policies: int
    lowest: int
    hardware: int


def _frequency(evidence: Evidence) -> FrequencyLimit | Unknown:
    texts = evidence.texts()
    pairs = [
        (int(text), int(texts[path.replace("scaling_max", "cpuinfo_max")]))
        for path, text in texts.items()
        if path.endswith("/scaling_max_freq")
    ]
    if not pairs:
        return Unknown(Reason.NOT_PRESENT, "no CPU frequency driver shows its limits here")
    share = limit("pwr-cpu-limits", "share")
    lowest, hardware = min(pairs, key=lambda pair: pair[0] / pair[1])
    capped = sum(scaling < most * share for scaling, most in pairs)
    return FrequencyLimit(capped, len(pairs), lowest, hardware)


FREQUENCY_LIMIT: Reader[FrequencyLimit] = Reader("cpu-frequency-limit", (_FREQUENCIES,), _frequency)


def _package_caps(evidence: Evidence) -> dict[str, tuple[float, float]] | Unknown:
    """Return the long-term limit and the highest allowed, in W, of each CPU package."""
    if evidence.problem is not None:
        return evidence.problem
    texts = evidence.texts()
    folders = [path.removesuffix("name") for path, t in texts.items() if t.startswith("package-")]
    names = ("constraint_0_power_limit_uw", "constraint_0_max_power_uw")
    return {
        texts[f"{folder}name"]: (
            int(texts[folder + names[0]]) / 1e6,
            int(texts[folder + names[1]]) / 1e6,
        )
        for folder in folders
        if all(folder + name in texts for name in names)
    }


PACKAGE_CAPS: Reader[dict[str, tuple[float, float]]] = Reader(
    "cpu-package-caps", (_CAPS,), _package_caps
)


@check(
    "pwr-cpu-limits",
    "Limits on CPU frequency and power",
    reads=(FREQUENCY_LIMIT,),
    optional=(PACKAGE_CAPS,),
    why="A capped CPU launches kernels slower, which bounds decode without CUDA graphs; with them "
    "it matters little.",
    source="kernel.org admin-guide/pm/cpufreq.rst; kernel.org power/powercap/powercap.rst",
)
def cpu_limits(
    frequency: FrequencyLimit, packages: dict[str, tuple[float, float]] | Unknown
) -> Verdict:
    """Judge software frequency caps, then package power limits below the highest."""
    seen = f"{frequency.lowest / 1e6:.2f} of {frequency.hardware / 1e6:.2f} GHz"
    if frequency.capped:
        return issue(
            "The CPU frequency is capped by a setting",
            Class.P0,
            Impact.LOW,
            observed=f"{seen} on {frequency.capped} of {frequency.policies} policies",
            expected="the hardware's highest",
            remedy="`cpupower frequency-set -u FREQUENCY` with the hardware's highest; look for "
            "who lowers it (tlp, tuned, power-profiles-daemon, boost switched off).",
        )
    least = limit("pwr-cpu-limits", "package")
    caps = {} if isinstance(packages, Unknown) else packages
    low = [f"{n} {now:g} of {top:g} W" for n, (now, top) in caps.items() if 0 < now < top * least]
    if low:
        return info("The CPU packages have a lowered power limit", observed=", ".join(low))
    return good("No cap on CPU frequency or power shows", observed=seen)


# By driver: reading the sensors of disks (drivetemp, nvme) sends the disks commands.
_CHIPS = ("pci/drivers/k10temp", "pci/drivers/zenpower", "platform/drivers/coretemp")
_SENSORS = Files(
    "cpu-temperatures",
    tuple(
        f"/sys/bus/{chip}/*/hwmon/hwmon*/temp*_{n}" for chip in _CHIPS for n in ("input", "label")
    ),
    cap=64,
)


def _hottest(evidence: Evidence) -> float | Unknown:
    """Return degrees C of the hottest CPU sensor; Tctl, which may be offset, where alone."""
    texts = evidence.texts()
    chips = {path.rpartition("/")[0] + "/" for path in texts}
    heat = [value for chip in chips for value in _chip(texts, chip)]
    if not heat:
        return Unknown(Reason.NOT_PRESENT, "no CPU temperature sensor (k10temp, coretemp) is there")
    return max(heat)


def _chip(texts: dict[str, str], chip: str) -> list[float]:
    inputs = [p for p in texts if p.startswith(chip) and p.endswith("_input")]
    labels = {p: texts.get(p.replace("_input", "_label"), "").strip() for p in inputs}
    has_die = "Tdie" in labels.values()
    return [int(texts[p]) / 1000 for p in inputs if not (has_die and labels[p] == "Tctl")]


CPU_TEMPERATURE: Reader[float] = Reader("cpu-temperature", (_SENSORS,), _hottest)


@check(
    "pwr-cpu-temp",
    "CPU temperature",
    reads=(CPU_TEMPERATURE,),
    why="A hot CPU drops its boost, which slows the threads that launch work.",
    source="kernel.org hwmon/k10temp.rst, hwmon/coretemp.rst",
)
def cpu_temp(celsius: float) -> Verdict:
    """Judge the hottest CPU sensor."""
    seen, wanted = f"{celsius:.0f} \u00b0C", f"below {limit('pwr-cpu-temp', 'good'):g} \u00b0C"
    if celsius < limit("pwr-cpu-temp", "good"):
        return good("The CPUs are cool enough", observed=seen, expected=wanted)
    if celsius < limit("pwr-cpu-temp", "bad"):
        return info("The CPUs are warm", observed=seen, expected=wanted)
    return issue(
        "The CPUs are hot",
        Class.FW,
        Impact.LOW,
        observed=seen,
        expected=wanted,
        remedy="Check heat sinks, fans and the inlet temperature.",
    )
