"""cgroup v2 files: single values, flat keyed counters, and cpu.max."""


def parse_amount(text: str) -> int | None:
    """Return bytes or a count; None for `max`. Raises ValueError on anything else."""
    word = text.strip()
    return None if word == "max" else int(word)


def parse_counters(text: str) -> dict[str, int]:
    """Return the counters of a flat keyed file (memory.events, cpu.stat)."""
    found = {}
    for line in text.splitlines():
        name, _, number = line.strip().partition(" ")
        if number.strip().isdigit():
            found[name] = int(number)
    return found


def parse_cpu_max(text: str) -> float | None:
    """Return the quota in CPUs; None when unlimited. Raises ValueError on anything else."""
    quota, period = text.split()
    return None if quota == "max" else int(quota) / int(period)
