"""The verb that measures: bench."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from gpudoctor.bench.figures import figures
from gpudoctor.bench.measure import Wish, engine_of, fits, measure_engine
from gpudoctor.bench.standing import standing
from gpudoctor.bench.verdict import compare
from gpudoctor.cli_ask import columns
from gpudoctor.cli_measure import Meter, wish_of
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.bench import BenchRun, Comparison, Serving
from gpudoctor.model.ceiling import Ceiling
from gpudoctor.report_bench import plain
from gpudoctor.report_ceiling import bars
from gpudoctor.snapshots.benchmarks import keep_run, kept_runs

_INCOMPLETE = 3
# What `ask` writes before it asks for output.
_PROMPT_TOKENS = 64


def bench_command(args: argparse.Namespace) -> int:
    """Measure the engine, keep the run, tell it beside the one before; return the exit code."""
    wish = wish_of(args)
    result, serving = asyncio.run(engine_of(args.make_target, wish))
    earlier = _earlier(result, serving, wish)
    if earlier and not args.fresh:
        wish = _with_length(wish, earlier[-1])
    run = asyncio.run(measure_engine(args.make_target, wish, Meter().tell, result, serving))
    told = _compared(earlier, run, wish)
    if not serving.simulated:
        keep_run(run)
    if args.json:
        from gpudoctor.report_bench_json import bench_json

        sys.stdout.write(bench_json(run, told, _ceiling(result, run)))
    else:
        sys.stdout.write(plain(run, told, _bars(result, run)))
    return _INCOMPLETE if run.stopped else 0


def _earlier(result: AuditResult, serving: Serving, wish: Wish) -> list[BenchRun]:
    """Return up to two earlier runs of the same thing, older first."""
    if serving.simulated:
        return []
    known = kept_runs(result.identity.machine_id, result.label)
    same = (run for run in known if fits(run, serving, wish.streams) and run.full == wish.full)
    return list(reversed(list(islice(same, 2))))


def _with_length(wish: Wish, run: BenchRun) -> Wish:
    return replace(wish, tokens=run.tokens_asked)


def _compared(earlier: Sequence[BenchRun], run: BenchRun, wish: Wish) -> Comparison | None:
    return compare(earlier, run, wish.streams[0]) if earlier else None


def _ceiling(result: AuditResult, run: BenchRun) -> Ceiling:
    """Return what one stream could reach there, halfway through a request's output."""
    return standing(result, run.serving, _PROMPT_TOKENS + run.tokens_asked // 2)


def _bars(result: AuditResult, run: BenchRun) -> list[str]:
    """Return where one stream stands against what could be reached there."""
    level = run.level(1)
    if level is None:
        return []
    rate = figures(level).rate
    return bars(rate, _ceiling(result, run), columns(), run.serving.simulated)
