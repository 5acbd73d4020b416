"""A benchmark and its verdict as text, Markdown-free and equal to its JSON."""

from collections.abc import Sequence

from gpudoctor.bench.figures import figures, quantile
from gpudoctor.bench.witness import alike, witnessed
from gpudoctor.model.bench import BenchRun, Comparison, Figures, Judgement, Witness, Witnessed
from gpudoctor.text import one_line

# Between blocks; above it even a full run tells only large changes.
_NOISY = 0.03
SIMULATED = "SIMULATED: the demo host's engine is made up; these are no measurements"


_MOST_LISTED = 8
_WAKING = "it tells how fast an idle CPU answers, not how fast decode is"


def plain(
    run: BenchRun,
    comparison: Comparison | None = None,
    bars: Sequence[str] = (),
    before: BenchRun | None = None,
) -> str:
    """Return a run, what it says against the one `before`, and where it stands (`bars`)."""
    lines = [*_head(run), ""]
    for level in run.levels:
        lines += [*level_lines(figures(level)), ""]
    if run.stopped:
        lines += [f"stopped early: {one_line(run.stopped, 300)}", ""]
    lines += [f"note: {one_line(remark, 300)}" for remark in run.remarks]
    lines += [f"{name:<12} {value}" for name, value in run.conditions.readings.items()]
    for one in run.witnesses:
        lines += ["", *witness_lines(one, alike(one, before.witnesses if before else ()))]
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
        f"  output     {rate_text(told.rate)}",
        f"  TPOT       typical {milliseconds(told.typical)}, "
        f"floor {milliseconds(told.floor)}{_server(told)}",
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
        f"{told.judgement}: time per token {change_text(told.ratio)} "
        f"({change_text(told.low)} to {change_text(told.high)} with 97.5 % confidence); {told.why}",
        f"  a claim must exceed {told.margin:.1%} here",
    ]
    if told.typical is not None:
        lines.append(f"  typical time per token {change_text(told.typical)}; judged is the floor")
    if told.judgement is Judgement.INCONCLUSIVE and told.detectable is not None:
        lines.append(f"  these blocks could have shown a change of {told.detectable:.0%} or more")
    return lines + [f"  look at: {one_line(flag, 200)}" for flag in told.flags]


def witness_lines(now: Witness, before: Witness | None) -> list[str]:
    """Return a direct measurement as what it is, and against an earlier one like it."""
    if now.unknown:
        return [f"{one_line(now.name, 60)}: unknown ({one_line(now.unknown, 200)})"]
    lines = [f"{one_line(now.name, 60)}: {_told(now)}", f"  {_taken(now)}"]
    lines += [f"  {one_line(now.beside, 300)}"] if now.beside else []
    if before is not None and not before.unknown:
        lines.append(f"  the run before: {_told(before)}")
    if before is not None and not now.labels:
        lines.append(f"  {moved_line(witnessed(before, now))}")
    return lines if now.labels else [*lines, f"  {_WAKING}"]


def moved_line(told: Witnessed) -> str:
    """Return two measurements of samples and what may be claimed of them, in one line."""
    name = one_line(told.after.name, 60)
    if unknown := told.before.unknown or told.after.unknown:
        return f"{name}: not measured ({one_line(unknown, 200)})"
    moves = [
        f"p{share * 100:.0f} {quantile(told.before.values, share):.1f} -> "
        f"{quantile(told.after.values, share):.1f}"
        for share in (0.5, 0.99)
    ]
    return f"{name} {', '.join(moves)} {one_line(told.after.unit, 10)}: {told.moved}"


def witnessed_lines(told: Witnessed) -> list[str]:
    """Return what a fix does to a direct measurement, how that was taken, and what it tells."""
    if told.before.unknown or told.after.unknown:
        return [moved_line(told)]
    lines = [moved_line(told), f"  {_taken(told.after)}; {_WAKING}"]
    for which, one in (("without", told.before), ("with", told.after)):
        lines += [f"  last turn {which} it: {one_line(one.beside, 300)}"] if one.beside else []
    return lines


def _told(one: Witness) -> str:
    """Return the percentiles of samples, or the range over what is labelled."""
    unit = one_line(one.unit, 10)
    if not one.labels:
        shares = ", ".join(
            f"p{share * 100:.0f} {quantile(one.values, share):.1f}" for share in (0.5, 0.9, 0.99)
        )
        return f"{shares} {unit}"
    pairs = list(zip(one.values, one.labels, strict=True))
    low, high = min(pairs), max(pairs)
    if len(pairs) <= _MOST_LISTED:
        return f"{', '.join(map(_pair, pairs))} {unit}"
    return f"lowest {_pair(low)}, highest {_pair(high)} {unit} of {len(pairs)}"


def _pair(pair: tuple[float, str]) -> str:
    return f"{one_line(pair[1], 30)} {pair[0]:.2f}"


def _taken(one: Witness) -> str:
    how = one_line(one.how, 200)
    return how if one.labels else f"{len(one.values)} {how}"


def change_text(ratio: float) -> str:
    """Return a ratio as the change that it is, with its sign."""
    return f"{ratio - 1:+.1%}"


def rate_text(rate: float | None) -> str:
    """Return tokens a second, or that too little came."""
    return "too little to tell" if rate is None else f"{rate:.2f} tok/s"


def _server(told: Figures) -> str:
    return "" if told.server is None else f", the server's own {milliseconds(told.server)}"


def _three(values: tuple[float, float, float] | None) -> str:
    if values is None:
        return "too little to tell"
    return ", ".join(
        f"{name} {milliseconds(v)}" for name, v in zip(("p50", "p90", "p99"), values, strict=True)
    )


def milliseconds(seconds: float | None) -> str:
    """Return a short time with its unit."""
    if seconds is None:
        return "unknown"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
