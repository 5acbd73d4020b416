"""How fast one stream could decode: bounds in tokens a second, with what they rest on."""

from dataclasses import dataclass

from gpudoctor.model.fact import Unknown


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Bounds on one stream's decode speed, in tokens a second.

    `roofline` is what memory bandwidth alone allows, and nobody reaches; `reachable` adds what
    messages between GPUs and launches cost. `bytes_per_token` are read once each, `bandwidth` is
    GB/s of all GPUs that serve. `assumptions` are sentences on which both rest, `latencies` those
    that `reachable` adds.
    """

    roofline: float | Unknown
    reachable: float | Unknown
    bytes_per_token: float | Unknown
    bandwidth: float | Unknown
    assumptions: tuple[str, ...] = ()
    latencies: tuple[str, ...] = ()
