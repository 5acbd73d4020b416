"""How often the verdict is right: series of a real server recorded, then compared with itself.

Record (minutes; the server is tests/decode_server's, smollm2 on one thread, PID from its READY
line), then study as often as wanted:

    python benchmarks/verdict_study.py record http://127.0.0.1:18080 PID series.jsonl --phases 21
    python benchmarks/verdict_study.py study series.jsonl

`record` runs full phases of eight blocks one after another (A, the real A/A runs), and after every
second one while the server is really slowed down by 10 % or 5 % (it is stopped for a share of every
40 ms). `study` judges each phase by the one, two or three A before it, and 1,000 times windows of
eight neighbouring blocks: the next ones, or any.
"""

import argparse
import asyncio
import itertools
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gpudoctor.bench.beside import open_beside
from gpudoctor.bench.figures import tpots, variation
from gpudoctor.bench.run import FULL, Run
from gpudoctor.bench.verdict import FULL_BLOCKS, compare, floor_of, spread
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.bench import BenchRun, Block, Level, Request, Serving

SLOW = Path(__file__).parents[1] / "tests" / "decode_server" / "slow.py"
PAIRS = 1000
BEFORE = (1, 2, 3)
STEADY = 0.02
TOKENS = 128
Series = dict[str, list[list[list[float]]]]
Pair = tuple[list[BenchRun], BenchRun]


async def _nobody() -> str:
    return ""


async def phase(url: str, model: str, tokens: int) -> tuple[int, list[list[float]]]:
    """Return the output length and the times per token of one full phase, block by block."""
    serving = Serving("llama.cpp", url, model)
    target = LiveTarget(LocalTransport())
    async with open_beside(target, serving) as beside:
        run = Run(beside, serving, FULL, _nobody, lambda progress: None, tokens)
        measured = await run.measure((1,))
    return measured.tokens, [tpots(block) for block in measured.levels[0].blocks]


def record(url: str, pid: int, path: Path, phases: int, model: str) -> None:
    """Append each phase to the file as it ends: A always, after every second a slowed one."""
    tokens = 0
    for number in range(phases):
        tokens, blocks = asyncio.run(phase(url, model, tokens))
        keep(path, "A", blocks)
        if number % 2:
            percent = 10 if number % 4 == 1 else 5
            slow = subprocess.Popen([sys.executable, SLOW, str(pid), str(percent), "600"])
            try:
                keep(path, f"+{percent}", asyncio.run(phase(url, model, tokens))[1])
            finally:
                slow.terminate()
                slow.wait()
                subprocess.run(["kill", "-CONT", str(pid)], check=True)


def keep(path: Path, what: str, blocks: list[list[float]]) -> None:
    """Append one phase and tell it."""
    with path.open("a") as stream:
        stream.write(json.dumps({"what": what, "blocks": blocks}) + "\n")
    floors = [floor_of(block) for block in blocks]
    print(f"{what:>4}: {1e3 * floor_of(floors):.2f} ms, spread {variation(floors):.1%}", flush=True)


def as_run(blocks: Sequence[Sequence[float]]) -> BenchRun:
    """Return times per token as a run that the verdict takes."""
    serving = Serving("llama.cpp", "", "m")
    level = Level(1, tuple(Block(tuple(map(_request, block))) for block in blocks))
    return BenchRun("", "", "", "", "", serving, (level,), TOKENS, True)


def _request(pace: float) -> Request:
    return Request(0.0, (1.0,), 1.0 + pace * (TOKENS - 1), TOKENS, finish="length")


def study(path: Path) -> None:
    """Print how often each judgement comes of phases and of windows of the recorded series."""
    series: Series = {}
    real = []
    before: list[BenchRun] = []
    for row in map(json.loads, path.read_text().splitlines()):
        series.setdefault(row["what"], []).append(row["blocks"])
        run = as_run(row["blocks"])
        real += [
            (row["what"], runs, run) for some in BEFORE if (runs := before[-some:])[some - 1 :]
        ]
        before += [run] if row["what"] == "A" else []
    for what, some in itertools.product(sorted(series), BEFORE):
        told(
            f"{what} for real, {some} before",
            [(b, a) for w, b, a in real if (w, len(b)) == (what, some)],
        )
    quiet = [block for blocks in series["A"] for block in blocks]
    chance = random.Random(1)
    for some in BEFORE:
        told(
            f"A resampled, {some} before, next", [_next(chance, quiet, some) for _ in range(PAIRS)]
        )
        told(f"A resampled, {some} before, any", [_any(chance, quiet, some) for _ in range(PAIRS)])
        for what in sorted(series.keys() - {"A"}):
            slow = [block for blocks in series[what] for block in blocks]
            pairs = [
                (_runs(chance, quiet, some), _runs(chance, slow, 1)[0]) for _ in range(PAIRS // 3)
            ]
            told(f"{what} resampled, {some} before", pairs)
            steady = [p for p in pairs if max(map(_spread, (*p[0], p[1]))) <= STEADY]
            told(f"{what} resampled, {some} before, spread at most {STEADY:.0%}", steady)


def _spread(run: BenchRun) -> float:
    return spread(run.levels[0].blocks) or 0.0


def _cut(blocks: Sequence[list[float]], at: int) -> BenchRun:
    return as_run(blocks[at : at + FULL_BLOCKS])


def _runs(chance: random.Random, blocks: Sequence[list[float]], some: int) -> list[BenchRun]:
    """Return so many neighbouring windows."""
    at = chance.randrange(len(blocks) - some * FULL_BLOCKS + 1)
    return [_cut(blocks, at + FULL_BLOCKS * each) for each in range(some)]


def _next(chance: random.Random, blocks: Sequence[list[float]], some: int) -> Pair:
    *before, after = _runs(chance, blocks, some + 1)
    return before, after


def _any(chance: random.Random, blocks: Sequence[list[float]], some: int) -> Pair:
    """Return neighbouring windows, and one that shares no block with them."""
    length = some * FULL_BLOCKS
    at = chance.randrange(len(blocks) - length + 1)
    free = [
        other
        for other in range(len(blocks) - FULL_BLOCKS + 1)
        if other >= at + length or other + FULL_BLOCKS <= at
    ]
    before = [_cut(blocks, at + FULL_BLOCKS * each) for each in range(some)]
    return before, _cut(blocks, chance.choice(free))


def told(name: str, pairs: Sequence[Pair]) -> None:
    """Print one row of the table."""
    count = Counter(compare(before, after).judgement for before, after in pairs)
    shares = ", ".join(f"{j} {n / len(pairs):.1%}" for j, n in count.most_common())
    print(f"{name} ({len(pairs)}): {shares}", flush=True)


def main() -> None:
    """Record or study."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("url")
    recording.add_argument("pid", type=int)
    recording.add_argument("file", type=Path)
    recording.add_argument("--phases", type=int, default=21)
    recording.add_argument("--model", default="smollm2")
    recording.set_defaults(run=lambda a: record(a.url, a.pid, a.file, a.phases, a.model))
    studying = verbs.add_parser("study")
    studying.add_argument("file", type=Path)
    studying.set_defaults(run=lambda a: study(a.file))
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
