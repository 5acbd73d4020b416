"""Settings of single GPUs by nvidia-smi: persistence mode, power limit, compute mode."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpudoctor.fixes.mechanism import Mechanism, Proof, Seen, Values
from gpudoctor.model import GpuSetting, Reason, Unknown
from gpudoctor.shell import quote

_SMI = "nvidia-smi"
_FORMAT = "--format=csv,noheader,nounits"


@dataclass(frozen=True, slots=True)
class _Setting:
    """How nvidia-smi names a setting: the field it is read by, its values, the option that sets it.

    `values` is an extended regular expression; what prints otherwise (`[N/A]`, `ERR!`) is no value.
    """

    name: str
    field: str
    values: str
    option: str
    numbers: Mapping[str, str]
    beside: tuple[str, ...] = ()


_SETTINGS = {
    "persistence": _Setting(
        "persistence mode",
        "persistence_mode",
        "Enabled|Disabled",
        "-pm",
        {"Enabled": "1", "Disabled": "0"},
    ),
    "power-limit": _Setting(
        "power limit",
        "power.limit",
        "[0-9]+[.][0-9][0-9]",
        "-pl",
        {},
        ("power.min_limit", "power.max_limit"),
    ),
    # Exclusive_Thread (1) can no longer be set, so it is no value that an undo could give back.
    "compute-mode": _Setting(
        "compute mode",
        "compute_mode",
        "Default|Prohibited|Exclusive_Process",
        "-c",
        {"Default": "0", "Prohibited": "2", "Exclusive_Process": "3"},
    ),
}


class GpuMechanism(Mechanism[GpuSetting]):
    """One setting of one GPU is one item; the GPU is named by its PCI address.

    Persistence mode is set GPU by GPU, not by starting nvidia-persistenced. Debian and Ubuntu start
    that with --no-persistence-mode, so a running daemon says nothing of the mode; and when it is
    stopped, it lets go of every GPU, those too whose mode was on before. Where the daemon runs,
    nvidia-smi asks it for the mode, GPU by GPU.
    """

    proof = Proof.STAND_IN

    def reads(self, change: GpuSetting) -> dict[str, str]:
        """Return the read text of every GPU's setting, and one of what nvidia-smi says of all."""
        how = _SETTINGS[change.setting]
        fields = ",".join(("pci.bus_id", how.field, *how.beside))
        items = {
            _item(bdf, how): f"{_query(how.field, bdf)} | grep -xE {quote(how.values)}"
            for bdf in change.gpus
        }
        return items | {_SMI: f"{_query(fields)} | tr '\\n' ';'"}

    def refuse(self, change: GpuSetting, now: Seen) -> str:
        """Return why a GPU's setting cannot be changed and given back there."""
        said = now[_SMI]
        for value in now.values():
            if isinstance(value, Unknown) and value.reason is Reason.TOOL_MISSING:
                return "nvidia-smi is not installed there"
            if isinstance(value, Unknown) and value.reason is not Reason.PARSE_FAILED:
                return f"nvidia-smi cannot be asked there ({value})"
        if isinstance(said, Unknown):
            return f"nvidia-smi cannot be asked there ({said})"
        rows, how = _rows(said), _SETTINGS[change.setting]
        return next((s for bdf in change.gpus if (s := _why_not(change, how, bdf, rows, now))), "")

    def wanted(self, change: GpuSetting, before: Values) -> dict[str, str]:
        """Return the wanted value of every GPU, as nvidia-smi will print it."""
        how = _SETTINGS[change.setting]
        return {_item(bdf, how): _printed(change) for bdf in change.gpus}

    def write(self, change: GpuSetting, item: str, before: Values) -> str:
        """Return the command that sets it on one GPU."""
        return _set(change, item, _printed(change))

    def undo(self, change: GpuSetting, item: str, before: Values) -> str:
        """Return the command that sets the value captured from that GPU."""
        return _set(change, item, before[item])

    def guard(self, change: GpuSetting, item: str, before: Values) -> str:
        """Return the text that says what turning persistence mode off again would tear down.

        With no process on a GPU the driver then drops its power limit, which only persistence kept.
        """
        if before[item] != "Disabled":
            return ""
        bdf = _bdf(item)
        limits = (f'"$({_query(field, bdf)})"' for field in ("power.limit", "power.default_limit"))
        apps = f"nvidia-smi -i {quote(bdf)} --query-compute-apps=pid --format=csv,noheader"
        why = f"nothing runs on {bdf}, and its power limit would fall back to the default"
        return f'[ {" = ".join(limits)} ] || [ -n "$({apps})" ] || echo {quote(why)}'


def _item(bdf: str, how: _Setting) -> str:
    return f"{bdf} {how.name}"


def _bdf(item: str) -> str:
    return item.partition(" ")[0]


def _query(fields: str, bdf: str = "") -> str:
    gpu = f"-i {quote(bdf)} " if bdf else ""
    return f"nvidia-smi {gpu}--query-gpu={fields} {_FORMAT}"


def _printed(change: GpuSetting) -> str:
    return f"{float(change.value):.2f}" if change.setting == "power-limit" else change.value


def _set(change: GpuSetting, item: str, value: str) -> str:
    """Return the command; nvidia-smi complains on its standard output."""
    how = _SETTINGS[change.setting]
    return f"nvidia-smi -i {quote(_bdf(item))} {how.option} {how.numbers.get(value, value)} >&2"


def _rows(said: str) -> dict[str, list[str]]:
    """Return what nvidia-smi printed of each GPU, by PCI address with a domain of four digits.

    What it says in place of a list (`No devices were found`) stands there alone.
    """
    cells = [[cell.strip() for cell in row.split(",")] for row in said.split(";") if row.strip()]
    return {row[0].lower()[-12:] if row[1:] else row[0]: row[1:] for row in cells}


def _why_not(
    change: GpuSetting, how: _Setting, bdf: str, rows: Mapping[str, list[str]], now: Seen
) -> str:
    """Return why one GPU cannot be set, or its value not be given back."""
    if bdf not in rows:
        told = "; ".join(key for key, cells in rows.items() if not cells)
        return f"nvidia-smi lists no GPU {bdf} there{told and f': {told}'}"
    value, *limits = rows[bdf]
    if isinstance(now[_item(bdf, how)], Unknown):
        return f"nvidia-smi gives no {how.name} that could be given back for {bdf}: {value}"
    if how.beside:
        return _out_of_bounds(bdf, value, _printed(change), limits)
    return ""


def _out_of_bounds(bdf: str, before: str, wanted: str, limits: list[str]) -> str:
    try:
        least, most = (float(text) for text in limits)
    except ValueError:
        return f"nvidia-smi gives no bounds for the power limit of {bdf}: {', '.join(limits)}"
    for what, watts in (("", float(wanted)), (", which it has now,", float(before))):
        if not least <= watts <= most:
            return f"{watts:g} W{what} is outside what {bdf} takes ({least:g} to {most:g} W)"
    return ""
