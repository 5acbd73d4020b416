"""The verb that measures: bench."""

import argparse
import asyncio
import sys

from gpudoctor.bench.history import ceiling_of, earlier, judged, with_length
from gpudoctor.bench.measure import engine_of, measure_engine
from gpudoctor.cli_ask import columns
from gpudoctor.cli_measure import Meter, wish_of
from gpudoctor.report_bench import plain
from gpudoctor.report_ceiling import bars_of
from gpudoctor.snapshots.benchmarks import keep_run, kept_runs

_INCOMPLETE = 3


def bench_command(args: argparse.Namespace) -> int:
    """Measure the engine, keep the run, tell it beside the one before; return the exit code."""
    wish = wish_of(args)
    result, serving = asyncio.run(engine_of(args.make_target, wish))
    simulated = serving.simulated  # the demo leaves nothing
    who = result.identity
    known = () if simulated else kept_runs(who.machine_id, result.label, who.system_uuid)
    before = earlier(known, serving, wish)
    if not args.fresh:
        wish = with_length(wish, before)
    run = asyncio.run(
        measure_engine(args.make_target, wish, Meter(wish.full).tell, result, serving)
    )
    told = judged(before, run, wish.streams[0])
    last = before[-1] if before else None
    if not simulated:
        keep_run(run)
    if args.json:
        from gpudoctor.report_bench_json import bench_json

        sys.stdout.write(bench_json(run, told, ceiling_of(result, run), last))
    else:
        sys.stdout.write(plain(run, told, bars_of(run, ceiling_of(result, run), columns()), last))
    return _INCOMPLETE if run.stopped else 0
