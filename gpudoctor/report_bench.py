"""A benchmark and its verdict as text, Markdown-free and equal to its JSON."""

from collections.abc import Sequence

from gpudoctor.bench.figures import figures
from gpudoctor.model.bench import BenchRun, Comparison, Figures, Judgement
from gpudoctor.text import one_line

# Between blocks; above it even a full run tells only large changes.
_NOISY = 0.03
SIMULATED = "SIMULATED: the demo host's engine is made up; these are no measurements"


def plain(run: BenchRun, comparison: Comparison | None = None, bars: Sequence[str] = ()) -> str:
    """Return a run, what it says against an earlier one, and where it stands (`bars`)."""
    lines = [*_head(run), ""]
    for level in run.levels:
        lines += [*level_lines(figures(level)), ""]
    if run.stopped:
        lines += [f"stopped early: {one_line(run.stopped, 300)}", ""]
    lines += [f"note: {one_line(remark, 300)}" for remark in run.remarks]
    lines += [f"{name:<12} {value}" for name, value in run.conditions.readings.items()]
    lines += ["", *bars] if bars else []
    if comparison is not None:
        lines += ["", *verdict_lines(comparison)]
    return "\n".join(lines).rstrip() + "\n"


def _head(run: BenchRun) -> list[str]:
    serving = run.serving
    version = f" {serving.version}" if serving.version else ""
    blocks = len(run.levels[0].blocks) if run.levels else 0
    kind = "full" if run.full else "quick"
    lines = [
        f"{one_line(run.label, 80)}: {one_line(serving.kind + version, 60)} serves "
        f"{one_line(serving.model, 80)} at {one_line(serving.url, 80)}",
        f"{kind} run {run.id}, {run.taken}: {blocks} blocks, {run.tokens_asked} tokens a request, "
        f"temperature 0, client {run.path}",
    ]
    return [SIMULATED, *lines] if serving.simulated else lines


def level_lines(told: Figures) -> list[str]:
    """Return the figures of one level, one line each."""
    who = "1 stream" if told.streams == 1 else f"{told.streams} streams together"
    failed = f", {told.failed} failed" if told.failed else ""
    counted = " (pieces counted: the server told no tokens)" if told.estimated else ""
    lines = [
        f"{who}: {told.requests} requests{failed}, {told.tokens} tokens{counted}",
        f"  output     {_rate(told.rate)}",
        f"  TPOT       typical {_ms(told.typical)}, floor {_ms(told.floor)}{_server(told)}",
        f"  TTFT       {_three(told.ttft)}",
        f"  gaps       {_three(told.gap)}",
    ]
    if told.spread is not None:
        noisy = ": too much for small changes to be told" if told.spread > _NOISY else ""
        lines.append(f"  spread     {told.spread:.1%} between blocks{noisy}")
    return lines


def verdict_lines(told: Comparison) -> list[str]:
    """Return the verdict: the word first, then the interval, what it rests on, and the flags."""
    if told.ratio is None or told.low is None or told.high is None:
        return [f"{told.judgement}: {one_line(told.why, 300)}"]
    lines = [
        f"{told.judgement}: time per token {_change(told.ratio)} "
        f"({_change(told.low)} to {_change(told.high)} with 97.5 % confidence); {told.why}",
        f"  a claim must exceed {told.margin:.1%} here",
    ]
    if told.typical is not None:
        lines.append(f"  typical time per token {_change(told.typical)}; judged is the floor")
    if told.judgement is Judgement.INCONCLUSIVE and told.detectable is not None:
        lines.append(f"  these blocks could have shown a change of {told.detectable:.0%} or more")
    return lines + [f"  look at: {one_line(flag, 200)}" for flag in told.flags]


def _change(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"


def _rate(rate: float | None) -> str:
    return "too little to tell" if rate is None else f"{rate:.2f} tok/s"


def _server(told: Figures) -> str:
    return "" if told.server is None else f", the server's own {_ms(told.server)}"


def _three(values: tuple[float, float, float] | None) -> str:
    if values is None:
        return "too little to tell"
    return ", ".join(
        f"{name} {_ms(v)}" for name, v in zip(("p50", "p90", "p99"), values, strict=True)
    )


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
