"""How often the verdict is right: series of a real server recorded, then compared with itself.

Record (minutes; the server is tests/decode_server's, smollm2 on one thread, PID from its READY
line), then study as often as wanted:

    python benchmarks/verdict_study.py record http://127.0.0.1:18080 PID series.jsonl --phases 21
    python benchmarks/verdict_study.py study series.jsonl

`record` runs full phases of eight blocks one after another (A, the real A/A runs), and between them
blocks while the server is really slowed down by 5 % and 10 % (it is stopped for a share of every
40 ms). `study` draws 1,000 pairs of windows of eight neighbouring blocks from them.
"""

import argparse
import asyncio
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
from gpudoctor.bench.verdict import FULL_BLOCKS, compare, floor_of
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.bench import BenchRun, Block, Judgement, Level, Request, Serving

SLOW = Path(__file__).parents[1] / "tests" / "decode_server" / "slow.py"
PAIRS = 1000
TOKENS = 128
Series = dict[str, list[list[list[float]]]]


async def _nobody() -> str:
    return ""


async def phase(url: str, model: str) -> list[list[float]]:
    """Return the times per token of one full phase, block by block."""
    serving = Serving("llama.cpp", url, model)
    target = LiveTarget(LocalTransport())
    async with open_beside(target, serving) as beside:
        run = Run(beside, serving, FULL, _nobody, lambda progress: None, TOKENS)
        measured = await run.measure((1,))
    return [tpots(block) for block in measured.levels[0].blocks]


def record(url: str, pid: int, path: Path, phases: int, model: str) -> None:
    """Append each phase to the file as it ends: A always, after every third a slowed one."""
    for number in range(phases):
        keep(path, "A", asyncio.run(phase(url, model)))
        if number % 3 == 2:
            percent = 5 if number % 2 else 10
            slow = subprocess.Popen([sys.executable, SLOW, str(pid), str(percent), "600"])
            try:
                keep(path, f"+{percent}", asyncio.run(phase(url, model)))
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
    """Print how often each judgement comes of windows of the recorded series."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    series: Series = {}
    for row in rows:
        series.setdefault(row["what"], []).append(row["blocks"])
    real = [
        compare([as_run(one)], as_run(other)).judgement
        for one, other in zip(series["A"], series["A"][1:], strict=False)
    ]
    told("A/A, phase after phase, run for real", real)
    chance = random.Random(1)
    flat = [block for blocks in series["A"] for block in blocks]
    drawn = [_windows(chance, flat) for _ in range(PAIRS)]
    told("A/A, resampled", [compare([as_run(a)], as_run(b)).judgement for a, b in drawn])
    for what in sorted(series.keys() - {"A"}):
        slow = [block for blocks in series[what] for block in blocks]
        pairs = [(_window(chance, flat), _window(chance, slow)) for _ in range(PAIRS // 2)]
        for quiet in (False, True):
            some = [p for p in pairs if not quiet or max(map(_spread, p)) <= 0.02]
            name = f"{what} %" + (", windows with a spread of at most 2 %" if quiet else "")
            told(name, [compare([as_run(a)], as_run(b)).judgement for a, b in some])


def _spread(blocks: Sequence[Sequence[float]]) -> float:
    return variation([floor_of(block) for block in blocks]) or 0.0


def _window(chance: random.Random, blocks: list[list[float]]) -> list[list[float]]:
    at = chance.randrange(len(blocks) - FULL_BLOCKS + 1)
    return blocks[at : at + FULL_BLOCKS]


def _windows(
    chance: random.Random, blocks: list[list[float]]
) -> tuple[list[list[float]], list[list[float]]]:
    """Return two windows that share no block."""
    while True:
        first, second = (chance.randrange(len(blocks) - FULL_BLOCKS + 1) for _ in range(2))
        if abs(first - second) >= FULL_BLOCKS:
            return (
                blocks[first : first + FULL_BLOCKS],
                blocks[second : second + FULL_BLOCKS],
            )


def told(name: str, judgements: Sequence[Judgement]) -> None:
    """Print one row of the table."""
    count = Counter(judgements)
    shares = ", ".join(f"{j} {n / len(judgements):.1%}" for j, n in count.most_common())
    print(f"{name} ({len(judgements)}): {shares}")


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
