"""Where a measured speed stands: three bars, each with what it rests on in the same lines."""

import textwrap
from collections.abc import Iterator

from gpudoctor.bench.figures import figures
from gpudoctor.model import Unknown
from gpudoctor.model.bench import BenchRun
from gpudoctor.model.ceiling import Ceiling

_NAMES = 11
_EIGHTHS = "▏▎▍▌▋▊▉█"
_LEAST_TEXT = 28


def bars_of(run: BenchRun, ceiling: Ceiling, columns: int) -> list[str]:
    """Return where one stream of a run stands; nothing where it was not measured alone."""
    level = run.level(1)
    if level is None:
        return []
    return bars(figures(level).rate, ceiling, columns, run.serving.simulated)


def bars(
    measured: float | Unknown | None, ceiling: Ceiling, columns: int, simulated: bool = False
) -> list[str]:
    """Return the lines of measured, reachable and roofline, in tokens a second of one stream.

    `measured` is None where nothing was measured. All bars share one scale; what is unknown has
    none, and says why.
    """
    values = (measured, ceiling.reachable, ceiling.roofline)
    scale = max((v for v in values if v is not None and not isinstance(v, Unknown)), default=0.0)
    width = max(10, min(40, (columns - _NAMES - 14) // 4))
    lines = ["One stream, tokens a second" + (" (simulated engine)" if simulated else "")]
    rows = (
        ("measured", measured, _share(measured, ceiling, simulated)),
        ("reachable", ceiling.reachable, "; ".join(ceiling.latencies)),
        ("roofline", ceiling.roofline, "; ".join(ceiling.assumptions)),
    )
    for name, value, said in rows:
        lines += [line.rstrip() for line in _row(name, value, said, scale, width, columns)]
    return lines


def _share(measured: float | Unknown | None, ceiling: Ceiling, simulated: bool) -> str:
    """Return what share of both bounds was measured."""
    if measured is None or isinstance(measured, Unknown):
        return ""
    shares = [
        f"{100 * measured / bound:.1f} % of {name}"
        for name, bound in (("reachable", ceiling.reachable), ("the roofline", ceiling.roofline))
        if not isinstance(bound, Unknown) and bound > 0
    ]
    return ", ".join([*(["of a simulated engine"] if simulated else []), *shares])


def _row(
    name: str, value: float | Unknown | None, said: str, scale: float, width: int, columns: int
) -> Iterator[str]:
    """Yield one bar, its number, and its sentences beside and below it."""
    if value is None or isinstance(value, Unknown):
        text = "not measured" if value is None else f"unknown ({value.reason}): {value.detail}"
        yield from _hung(f"  {name:<{_NAMES}}", text, columns)
        return
    number = f"{value:.2f}" if value < 20 else f"{value:.0f}"
    head = f"  {name:<{_NAMES}}{_bar(value, scale, width):<{width}} {number:>6}  "
    if columns - len(head) < _LEAST_TEXT:
        yield head.rstrip()
        yield from _hung(" " * (_NAMES + 2), said, columns) if said else ()
        return
    yield from _hung(head, said, columns)


def _bar(value: float, scale: float, width: int) -> str:
    """Return a bar of eighths, at least one of them for what is more than nothing."""
    eighths = max(1, round(8 * width * value / scale)) if scale > 0 and value > 0 else 0
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest - 1] if rest else "")


def _hung(head: str, text: str, columns: int) -> list[str]:
    """Return text beside a head, its further lines below its own first."""
    room = max(columns - len(head), 10)
    wrapped = textwrap.wrap(text, room, break_long_words=True, break_on_hyphens=False) or [""]
    return [(head if not n else " " * len(head)) + line for n, line in enumerate(wrapped)]
