"""The options of `gpudoctor bench` and `gpudoctor prove`."""

import argparse

_FIGURES = """\
TTFT     from just before the request is written on an open connection, to its first text
TPOT     (last text - first text) / (tokens - those of the first text); the server's own count
floor    lower quartile of the requests' TPOT, which is judged: noise only ever slows
typical  median of the requests' TPOT; one stream's tok/s is 1 / typical, without TTFT
gaps     between two pieces of text, all requests pooled; a piece may hold several tokens
spread   coefficient of variation between blocks of requests
wake-up  by how much sleeps of 2 ms on the host are too long, before the warm-up: how fast an idle
         CPU answers, not how fast decode is; improved or worse only where three quarters of one
         run lie beyond three quarters of the other, and the medians more than 10 % and 2 µs apart

A verdict draws whole blocks again (97.5 % interval) and claims only what lies beyond 2 %, beyond
the most that two or three full runs before differed by, and beyond what the blocks of a run vary
by; beyond 5 % after a single one; a quick run only what lies beyond 10 %.
"""


def add_bench_options(bench: argparse.ArgumentParser) -> None:
    """Add what `bench` takes, and the definitions of its figures."""
    bench.formatter_class = argparse.RawDescriptionHelpFormatter
    bench.epilog = _FIGURES
    bench.add_argument("--full", action="store_true", help="minutes: small changes can be told")
    _add_engine(bench)
    bench.add_argument("--streams", default="1,8", metavar="N,…", help="at a time (default: 1,8)")
    bench.add_argument(
        "--fresh", action="store_true", help="choose the output length anew, not as the last run"
    )
    bench.add_argument(
        "--copies",
        action="store_true",
        help="run nvbandwidth and nccl-tests too, where they are there: they take memory on each "
        "GPU and load the bus beside the engine",
    )
    bench.add_argument("--json", action="store_true", help="as JSON; docs/schema/bench.json")


def add_prove_options(prove: argparse.ArgumentParser) -> None:
    """Add what `prove` takes beside the checks."""
    prove.add_argument(
        "--budget", default="5m", metavar="TIME", help="about so long (30s to 60m; default: 5m)"
    )
    _add_engine(prove)
    prove.add_argument(
        "--keep", choices=("faster",), help="apply those that were faster then, as `fix` does"
    )
    prove.add_argument("--yes", action="store_true", help="do not ask")
    prove.add_argument("--json", action="store_true", help="as JSON; docs/schema/prove.json")


def _add_engine(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--url", metavar="URL", help="this engine; else found by its process")
    verb.add_argument(
        "--api-key-env", metavar="NAME", help="the variable here that holds its API key"
    )
    verb.add_argument(
        "--on-busy", default="refuse", choices=("refuse", "mark"), help="where others use it too"
    )
