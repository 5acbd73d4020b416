"""/proc/cpuinfo: the first processor's identity."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cpu:
    """Who made the CPU and which; `family` and `model` are 0 where there is none (not x86)."""

    vendor: str
    family: int
    model: int
    name: str
    flags: frozenset[str]

    @property
    def is_amd(self) -> bool:
        """Return whether AMD made it."""
        return self.vendor == "AuthenticAMD"

    @property
    def is_zen5(self) -> bool:
        """Return whether this is AMD family 26 (1Ah: Zen 5, Turin and Granite Ridge)."""
        return self.is_amd and self.family == 26

    @property
    def is_virtual(self) -> bool:
        """Return whether a hypervisor shows itself to this CPU."""
        return "hypervisor" in self.flags


def parse_cpuinfo(text: str) -> Cpu:
    """Return the first processor of /proc/cpuinfo. Raises ValueError when there is none."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip().lower(), value.strip())
    if "processor" not in fields and "vendor_id" not in fields:
        raise ValueError("no processor in cpuinfo")
    name = fields.get("model name") or fields.get("cpu") or fields.get("hardware", "")
    return Cpu(
        fields.get("vendor_id", ""),
        _number(fields.get("cpu family", "")),
        _number(fields.get("model", "")),
        name,
        frozenset(fields.get("flags", fields.get("features", "")).split()),
    )


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
