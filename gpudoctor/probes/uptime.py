"""How long the host has been up."""

from gpudoctor.model import Evidence, Files, Reader, Unknown


def _uptime(evidence: Evidence) -> float | Unknown:
    text = evidence.get("/proc/uptime")
    return text if isinstance(text, Unknown) else float(text.split()[0])


# Seconds since boot.
UPTIME: Reader[float] = Reader("uptime-seconds", (Files("pci-uptime", ("/proc/uptime",)),), _uptime)
