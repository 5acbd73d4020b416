"""A benchmark in words: engines, the run under way, figures, bars and the verdict."""

from collections.abc import Iterable, Iterator, Sequence

from textual.content import Content

from gpudoctor.bench.figures import figures
from gpudoctor.bench.run import FULL, QUICK
from gpudoctor.bench.verdict import LEAST_MARGIN, QUICK_MARGIN
from gpudoctor.model.bench import BenchRun, Comparison, Figures, Judgement, Serving
from gpudoctor.report_bench import change_text, milliseconds, rate_text, verdict_lines
from gpudoctor.report_ceiling import bars_of
from gpudoctor.screens.benched import Bench, Going, Weighed
from gpudoctor.screens.board import Board
from gpudoctor.screens.words import MUTED, hanging, host, host_line, number_of

JUDGED = {
    Judgement.FASTER: ("✓", "bold $text-success"),
    Judgement.SLOWER: ("✗", "bold $text-error"),
    Judgement.SAME: ("=", "bold"),
    Judgement.INCONCLUSIVE: ("?", "bold $text-warning"),
    Judgement.NOT_COMPARABLE: ("≠", "bold $text-secondary"),
}
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_BLOCKS = frozenset("▏▎▍▌▋▊▉█")
_NAMES, _COLUMN = 18, 27


def engine_row(serving: Serving, width: int) -> Content:
    """Return an engine in one line, or two where it is too long for one."""
    where = f" in {serving.container}" if serving.container is not None else ""
    version = f" {serving.version}" if serving.version else ""
    what = Content.assemble(
        host_line(f"{serving.kind}{version}", "bold", 40),
        (" serves ", MUTED),
        host_line(serving.model or "a model that it does not name", limit=80),
        (" (simulated)" if serving.simulated else "", MUTED),
    )
    at = Content.styled("at ", MUTED) + host_line(f"{serving.url}{where}", limit=80)
    fits = what.cell_length + at.cell_length < width
    return Content(" " if fits else "\n  ").join([what, at])


# the run under way, or the next


def now_content(board: Board, width: int, height: int = 1) -> Content:
    """Return how far the run is, or what would be measured, or why nothing can be."""
    bench = board.bench
    if bench.going is not None:
        return going_content(bench.going, width, board.simulated, height)
    lines = []
    if bench.said:
        lines.append(
            hanging(Content.styled("! ", "bold $text-warning"), host_line(bench.said), width)
        )
    if bench.problem:
        lines.append(
            hanging(Content.styled("✗ ", "bold $text-error"), host_line(bench.problem), width)
        )
    elif bench.engines:
        lines += _keys(bench, board.simulated)
    elif bench.looking:
        words = "once the audit has ended" if board.running else "…"
        lines.append(Content.styled(f"looking for the engine {words}", MUTED))
    return Content("\n").join(lines)


def _keys(bench: Bench, simulated: bool) -> list[Content]:
    if simulated:
        quick, full = "seconds: the engine is simulated", "a little longer"
    else:
        quick, full = length(bench, False), length(bench, True)
    return [
        Content.assemble(
            ("enter", "bold $text-primary"), (f"  quick run: {quick}", ""),
            (f"; tells changes beyond {QUICK_MARGIN:.0%}", MUTED),
        ),
        Content.assemble(
            ("f", "bold $text-primary"), (f"      full run: {full}", ""),
            (f"; tells changes beyond {LEAST_MARGIN:.0%}", MUTED),
        ),
    ]  # fmt: skip


def length(bench: Bench, full: bool) -> str:
    """Return how long a run takes, in words."""
    expected, hard = bench.expected(full), (FULL if full else QUICK).hard
    if expected is None:
        return f"{hard / 60:.0f} minutes at most" if full else "about half a minute"
    return f"about {expected:.0f} s" if expected < 120 else f"about {expected / 60:.0f} minutes"


def full_question(bench: Bench) -> Content:
    """Return the question before a full run: how long, and what it is good for."""
    blocks = f"{FULL.blocks} blocks with 1 stream, then {FULL.blocks} with 8, after a warm-up"
    return Content.assemble(
        (f"It takes {length(bench, True)}", "bold"),
        f": {blocks}.\n\n",
        (
            f"It tells changes from {LEAST_MARGIN:.0%} on, a quick run from {QUICK_MARGIN:.0%}. It "
            f"ends after {FULL.hard / 60:.0f} minutes, and x ends it before; what was measured is "
            "kept.",
            MUTED,
        ),
    )


def going_content(going: Going, width: int, simulated: bool = False, height: int = 1) -> Content:
    """Return a run under way: what for, how far, and tokens a second as they come."""
    kind = "full run" if going.full else "quick run"
    head = Content.assemble((kind, "bold"), (f", {going.purpose}" if going.purpose else "", MUTED))
    lines = [head, Content(_far(going, simulated))]
    if going.progress is not None:
        rate = f"{going.rate:.1f}" if going.rate is not None else "…"
        made_up = " simulated" if simulated else ""
        number = Content.assemble((f" {rate}", "bold"), (f" tok/s{made_up}", MUTED))
        room = max(8, min(80, width - number.cell_length - 1))
        rows = [Content.styled(row, "$primary") for row in chart(going.rates, room, height)]
        lines += [*rows[:-1], rows[-1] + number]
    ends = Content.styled(" ends it; what was measured is kept", MUTED)
    lines.append(Content.styled("x", "bold $text-primary") + ends)
    return Content("\n").join(lines)


def _far(going: Going, simulated: bool) -> str:
    progress = going.progress
    if progress is None or going.stop.is_set():
        return f"{going.phase} …"
    block = f", block {progress.done + 1} of {progress.of}" if progress.of else ""
    known = progress.expected is not None and not simulated  # its seconds pass at a pace of its own
    about = f" of about {progress.expected:.0f} s" if known else ""
    return f"{progress.phase}{block} · {progress.seconds:.0f} s{about}"


def chart(rates: Iterable[float | None], width: int, height: int = 1) -> list[str]:
    """Return the last rates as bars of eighths on a scale from 0; a gap where there was none."""
    last = list(rates)[-width:]
    most = max((rate for rate in last if rate is not None), default=0.0)
    tall = [_eighths(rate, most, height) for rate in last]
    return [
        "".join(_EIGHTHS[min(8, max(0, eighths - 8 * row))] for eighths in tall).rjust(width)
        for row in reversed(range(height))
    ]


def _eighths(rate: float | None, most: float, height: int) -> int:
    """Return how many eighths of a cell a rate is high; at least one where there is any."""
    if rate is None or most <= 0:
        return 0
    return max(1, round(8 * height * max(0.0, rate) / most))


# what a run told


def shown_title(bench: Bench) -> str:
    """Return what the figures are of."""
    if bench.shown is None:
        return "Last run"
    run = bench.shown.run
    made_up = "Simulated run" if run.serving.simulated else "Last run"
    when = run.taken.replace("T", " ").partition("+")[0]
    return host_line(f"{made_up}: {'full' if run.full else 'quick'}, {when} UTC").markup


def shown_content(bench: Bench, width: int) -> Content:
    """Return the verdict, the figures and the bars of the last run."""
    if bench.shown is None:
        words = "No run of this host is kept yet."
        return Content.styled("" if bench.looking else words, MUTED)
    run, told, ceiling = bench.shown.run, bench.shown.told, bench.shown.ceiling
    lines = [*_about(run, width), Content("")]
    if told is not None:
        lines += [*verdict_content(told, width, run.serving.simulated), Content("")]
    lines += [
        *_table([figures(level) for level in run.levels], width, run.serving.simulated),
        Content(""),
    ]
    lines += [
        hanging(Content.styled("! ", "$text-warning"), host_line(one), width) for one in run.remarks
    ]
    if ceiling is not None:
        lines += [_bar(line) for line in bars_of(run, ceiling, width)]
    readings = [f"{name} {value}" for name, value in run.conditions.readings.items()]
    if readings:
        lines += [Content(""), hanging(Content(""), host_line("; ".join(readings), MUTED), width)]
    return Content("\n").join(lines)


def _about(run: BenchRun, width: int) -> Iterator[Content]:
    """Yield which engine a run measured, and that it ended early, if so."""
    serving = run.serving
    version = f" {serving.version}" if serving.version else ""
    after = f", after change {run.transaction}" if run.transaction else ""
    words = (
        f"{serving.kind}{version} serves {serving.model}: {run.tokens_asked} tokens a request, "
        f"client {run.path}{after}"
    )
    yield hanging(Content(""), host_line(words, MUTED), width)
    if serving.simulated:
        yield Content.styled(
            "simulated: the demo's engine is made up, no measurement", "$text-warning"
        )
    if run.stopped:
        blocks = number_of(sum(len(level.blocks) for level in run.levels), "block")
        lead = Content.styled("! ", "bold $text-warning")
        yield hanging(lead, host_line(f"stopped early, {blocks} kept: {run.stopped}"), width)


def verdict_content(told: Comparison, width: int, simulated: bool = False) -> list[Content]:
    """Return the verdict against the run before: the word, its interval, margin, why, flags."""
    first, *rest = verdict_lines(told)
    sign, style = JUDGED[told.judgement]
    lead = Content.assemble((f"{sign} {told.judgement}", style), ": ")
    words = f"{'simulated, ' if simulated else ''}{first.partition(': ')[2]}"
    lines = [hanging(Content(""), lead + host_line(words), width)]
    return lines + [hanging(Content("  "), host_line(line, MUTED), width) for line in rest]


def verdict_line(told: Comparison) -> str:
    """Return a verdict in one line: `faster: 16.7% less time per token (-18.5% to -16.6%)`."""
    if told.ratio is None or told.low is None or told.high is None:
        return f"{told.judgement}: {told.why}"
    change = told.ratio - 1
    more = f"{abs(change):.1%} {'more' if change > 0 else 'less'} time per token"
    between = f"({change_text(told.low)} to {change_text(told.high)})"
    why = "" if told.judgement in {Judgement.FASTER, Judgement.SLOWER} else f"; {told.why}"
    return f"{told.judgement}: {more} {between}{why}"


def _table(levels: Sequence[Figures], width: int, simulated: bool) -> Iterator[Content]:
    """Yield the figures, a column for each number of streams, as many beside each other as fit."""
    fit = max(1, (width - _NAMES) // _COLUMN)
    for start in range(0, len(levels), fit):
        if start:
            yield Content("")
        yield from _columns(levels[start : start + fit], simulated)


def _columns(levels: Sequence[Figures], simulated: bool) -> Iterator[Content]:
    heads = [
        number_of(one.streams, "stream") + (" (simulated)" if simulated else "") for one in levels
    ]
    yield _cells("", heads, "bold")
    yield _cells("output", [rate_text(one.rate) for one in levels], "bold $text-primary")
    yield _cells("TPOT floor", [milliseconds(one.floor) for one in levels])
    yield _cells("TPOT typical", [milliseconds(one.typical) for one in levels])
    if any(one.server is not None for one in levels):
        yield _cells("the server's own", [milliseconds(one.server) for one in levels])
    yield _cells("TTFT p50, 90, 99", [_three(one.ttft) for one in levels])
    yield _cells("gaps p50, 90, 99", [_three(one.gap) for one in levels])
    yield _cells("spread of blocks", [_spread(one) for one in levels])
    yield _cells("requests", [_requests(one) for one in levels], MUTED)


def _cells(name: str, cells: Sequence[str], style: str = "") -> Content:
    row = Content.styled(f"{name:<{_NAMES}}", MUTED)
    for cell in cells:
        row += Content.styled(f"{cell:<{_COLUMN}}", style)
    return row.rstrip()


def _three(values: tuple[float, float, float] | None) -> str:
    """Return three percentiles in one unit."""
    if values is None:
        return "too little to tell"
    if max(values) < 0.9995:  # from there on three digits would be written as 1e+03
        return f"{', '.join(f'{value * 1e3:.3g}' for value in values)} ms"
    return f"{', '.join(f'{value:.3g}' for value in values)} s"


def _spread(told: Figures) -> str:
    return "too few blocks" if told.spread is None else f"{told.spread:.1%}"


def _requests(told: Figures) -> str:
    failed = f", {told.failed} failed" if told.failed else ""
    return f"{told.requests}{failed}, {told.tokens} tokens{' (pieces)' if told.estimated else ''}"


def _bar(line: str) -> Content:
    """Return a line of the bars with its bar in colour."""
    text = host_line(line.strip(), limit=400)
    indent = " " * (len(line) - len(line.lstrip()))
    at = [n for n, sign in enumerate(line) if sign in _BLOCKS]
    if not at:
        return Content(indent) + text.stylize(MUTED)
    first, last = at[0], at[-1] + 1
    return Content.assemble(line[:first], (line[first:last], "$primary"), host(line[last:], MUTED))


# beside a transaction


def weighed_content(weighed: Weighed, width: int, simulated: bool, back: bool = False) -> Content:
    """Return what a change did to decode, or how far that is known; `back`: it is taken back."""
    if weighed.going is not None:
        return going_content(weighed.going, width, simulated)
    if weighed.told is not None and weighed.before is not None and weighed.after is not None:
        sign, style = JUDGED[weighed.told.judgement]
        word, _, rest = verdict_line(weighed.told).partition(": ")
        made_up = " (simulated engine)" if simulated else ""
        made_up += ", before it was taken back" if back else ""
        lead = Content.assemble((f"{sign} {word}", style), ": ")
        lines = [hanging(Content(""), lead + host_line(f"{rest}{made_up}"), width)]
        lines.append(Content.styled(_from_to(weighed.before, weighed.after), MUTED))
        flags = [
            hanging(Content("  "), host_line(f"look at: {one}", MUTED), width)
            for one in weighed.told.flags
        ]
        return Content("\n").join([*lines, *_smaller(weighed, weighed.told), *flags])
    style = MUTED if weighed.busy else "$text-warning"
    return hanging(
        Content.styled("! " if not weighed.busy else "", style), host_line(weighed.said), width
    )


def _smaller(weighed: Weighed, told: Comparison) -> list[Content]:
    """Return how smaller changes could be told, where the runs were too short for them."""
    short = weighed.before is not None and not weighed.before.full
    if told.judgement is not Judgement.INCONCLUSIVE or not short:
        return []
    words = "  a full run before it (f in 4), then e here, tells smaller changes"
    return [Content.styled(words, MUTED)]


def _from_to(before: BenchRun, after: BenchRun) -> str:
    rates = [
        rate_text(figures(level).rate if (level := run.level(1)) is not None else None)
        for run in (before, after)
    ]
    return f"  1 stream: {rates[0]} before, {rates[1]} after; 4 shows all figures"
