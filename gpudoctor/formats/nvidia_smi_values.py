"""Single values of nvidia-smi: absent words, numbers with units, bus ids."""

import re
from functools import cache

from gpudoctor.model import Reason, Unknown

# A value in one of these words is no value (unsupported, hidden, retired).
_ABSENT = {
    "",
    "n/a",
    "not supported",
    "not found",
    "not available",
    "none reported",
    "unknown",
    "requested functionality has been deprecated",
    "function not found",
}
# These also say that the GPU itself is in trouble.
_SICK = {"gpu is lost", "unknown error", "err!", "gpu requires reset"}
_DENIED = {"insufficient permissions"}

_NUMBER = re.compile(r"(?a)(-?\d{1,15}(?:\.\d{1,9})?)\s*(?:[%a-zA-Z/]+(?:\(s\))?)?")
_BUS_ID = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])")


def plain(text: str | None) -> str:
    """Return a node's text without white space around it and without the brackets of CSV."""
    word = " ".join((text or "").split())
    return word[1:-1].strip() if word.startswith("[") and word.endswith("]") else word


def is_sick(text: str | None) -> bool:
    """Return whether a value says that its GPU is lost or wants a reset."""
    return plain(text).casefold() in _SICK


def word(text: str | None) -> str | Unknown:
    """Return a value as it stands, or why it is absent."""
    value = plain(text)
    lower = value.casefold()
    if text is None or lower in _ABSENT:
        return _absent(value)
    if lower in _SICK:
        return Unknown(Reason.GPU_AT_RISK, f"nvidia-smi says {value!r} instead of a value")
    if lower in _DENIED:
        return Unknown(Reason.NO_PERMISSION, f"nvidia-smi says {value!r}")
    return value


@cache
def _absent(value: str) -> Unknown:
    said = f"nvidia-smi says {value!r}" if value else "nvidia-smi does not report it"
    return Unknown(Reason.NOT_PRESENT, said)


def number(text: str | None) -> float | Unknown:
    """Return the number of a value with any unit (`37 C`, `600.00 W`, `16x`, `512 bank(s)`)."""
    value = word(text)
    if isinstance(value, Unknown):
        return value
    match = _NUMBER.fullmatch(value)
    if match is None:
        return Unknown(Reason.PARSE_FAILED, f"{value[:40]!r} is no number")
    return float(match.group(1))


def whole(text: str | None) -> int | Unknown:
    """Return the whole number of a value with any unit."""
    value = number(text)
    return value if isinstance(value, Unknown) else int(value)


def flag(text: str | None) -> bool | Unknown:
    """Return a yes or no value: Yes, Enabled, Active against No, Disabled, Not Active."""
    value = word(text)
    if isinstance(value, Unknown):
        return value
    lower = value.casefold()
    if lower in {"yes", "enabled", "active"}:
        return True
    if lower in {"no", "disabled", "not active"}:
        return False
    return Unknown(Reason.PARSE_FAILED, f"{value[:40]!r} is neither yes nor no")


def sysfs_bdf(bus_id: str) -> str:
    """Return a bus id in the notation of sysfs: `00000000:0A:00.0` is `0000:0a:00.0`.

    Raises ValueError when it is no bus id.
    """
    match = _BUS_ID.fullmatch(bus_id.strip())
    if match is None:
        raise ValueError(f"{bus_id[:40]!r} is no PCI bus id")
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()
