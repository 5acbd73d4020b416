"""Our figures beside those of two public clients, from the same server, in one run.

Each client lives in an environment of its own, made by hand; one that is missing is skipped:

    python3 -m venv peers/aiperf && peers/aiperf/bin/pip install aiperf==0.13.0
    python3 -m venv peers/guidellm && peers/guidellm/bin/pip install guidellm==0.8.1
    python benchmarks/bench_clients.py --aiperf peers/aiperf/bin/aiperf \\
        --guidellm peers/guidellm/bin/guidellm

The server is that of tests/decode_server (llama.cpp, one thread), alone on the last core; all
clients run on the first. They get the same prompts, lengths and numbers of streams. Each run of a
peer lies between two of ours, whose mean it is compared with, by the peer's own definitions; the
median of all rounds is printed (bar: within 3 %). `server` is the same ratio after each has been
divided by what the server counted during that very run, so that its own changes of pace fall out.
Ours are compared with the server's counters too (bar: 1 %).
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpudoctor.bench.ask import bodies
from gpudoctor.bench.beside import open_beside
from gpudoctor.bench.figures import counted, tpot
from gpudoctor.formats.prometheus import totals
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.bench import Request, Serving
from tests.decode_rig import running_decode_server

LAYERS, TOKENS = "48", 256
STREAMS = (1, 4)
FORCED = {"ignore_eos": True, "cache_prompt": False, "temperature": 0}
# What is compared: seconds a token without and with the first, and tokens a second of all.
DECODE, WITH_FIRST, RATE = "ms/token after the first", "ms/token with the first", "tok/s"
Figures = Mapping[str, float]


@dataclass(frozen=True)
class Task:
    """What each client is asked for, and a folder for its files."""

    url: str
    streams: int
    prompts: Sequence[str]
    folder: Path


@dataclass(frozen=True)
class Seen:
    """One run: its figures, and the server's own milliseconds a token meanwhile, for each."""

    figures: Figures
    server: Figures


# --- ours -----------------------------------------------------------------------------------------


def ours(task: Task) -> list[Request]:
    """Run our client and return its requests. Raises SystemExit for one that failed."""
    return asyncio.run(_ours(task))


async def _ours(task: Task) -> list[Request]:
    serving = Serving("llama.cpp", task.url, "tiny")
    sent = bodies(serving, len(task.prompts), TOKENS, 1)
    for body, prompt in zip(sent, task.prompts, strict=True):
        body["prompt"] = prompt
    async with open_beside(LiveTarget(LocalTransport()), serving) as beside:
        requests, _ = await beside.job(sent, task.streams)
    if failed := [r.failure for r in requests if r.failure or counted(r) != TOKENS]:
        raise SystemExit(f"a request of ours failed: {failed[0]}")
    return list(requests)


def by_definitions(requests: Sequence[Request]) -> Figures:
    """Return our requests' figures as the peers define them."""
    seconds = max(r.last for r in requests) - min(r.began for r in requests)
    return {
        DECODE: 1e3 * fmean(tpot(r) or 0.0 for r in requests),
        WITH_FIRST: 1e3 * fmean((r.last - r.began) / counted(r) for r in requests),
        RATE: sum(map(counted, requests)) / seconds,
    }


# --- peers ----------------------------------------------------------------------------------------


def aiperf(program: str, task: Task) -> Figures:
    """Run aiperf and read its export."""
    lines = [json.dumps({"text": prompt}) + "\n" for prompt in task.prompts]
    prompts = task.folder / "aiperf.jsonl"
    prompts.write_text("".join(lines))
    extra = {**FORCED, "max_tokens": TOKENS}
    _run(
        [program, "profile", "--model", "tiny", "--url", task.url, "--streaming"],
        ["--endpoint-type", "completions", "--tokenizer", str(tokenizer(task.folder))],
        ["--use-server-token-count", "--input-file", str(prompts), "--ui", "none"],
        ["--custom-dataset-type", "single_turn", "--concurrency", str(task.streams)],
        ["--request-count", str(len(task.prompts)), "--extra-inputs", json.dumps(extra)],
        ["--output-artifact-dir", str(task.folder / "aiperf")],
    )
    found = json.loads((task.folder / "aiperf/profile_export_aiperf.json").read_text())
    _whole(found["request_count"]["avg"], found["output_sequence_length"]["avg"], task)
    return {
        DECODE: found["inter_token_latency"]["avg"],
        RATE: found["output_token_throughput"]["avg"],
    }


def guidellm(program: str, task: Task) -> Figures:
    """Run guidellm and read its export."""
    lines = [json.dumps({"prompt": p, "output_tokens_count": TOKENS}) + "\n" for p in task.prompts]
    prompts, report = task.folder / "guidellm.jsonl", task.folder / "guidellm.json"
    prompts.write_text("".join(lines))
    backend = {
        "kind": "openai_http",
        "target": task.url,
        "model": "tiny",
        "request_format": "/v1/completions",
        "extras": {"body": {**FORCED, "max_tokens": TOKENS}},
    }
    _run(
        [program, "run", "--backend", json.dumps(backend), "--disable-console"],
        ["--data", f"kind=json_file,path={prompts}"],
        ["--tokenizer", f"kind=huggingface_auto,model={tokenizer(task.folder)}"],
        ["--profile", f"kind=concurrent,streams={task.streams}"],
        ["--constraint", f"kind=max_requests,count={len(task.prompts)}"],
        ["--output", f"kind=json,path={report}"],
    )
    metrics = json.loads(report.read_text())["benchmarks"][0]["metrics"]

    def mean(name: str) -> float:
        return float(metrics[name]["successful"]["mean"])

    _whole(metrics["request_totals"]["successful"], mean("output_token_count"), task)
    return {
        DECODE: mean("inter_token_latency_ms"),
        WITH_FIRST: mean("time_per_output_token_ms"),
        RATE: mean("output_tokens_per_second"),
    }


PEERS: dict[str, Callable[[str, Task], Figures]] = {"aiperf": aiperf, "guidellm": guidellm}


def _whole(requests: float, tokens: float, task: Task) -> None:
    """Make sure that a peer did what was asked. Raises SystemExit."""
    if (requests, tokens) != (len(task.prompts), TOKENS):
        raise SystemExit(f"a peer made {requests:g} requests of {tokens:g} tokens")


def _run(*words: list[str]) -> None:
    """Run a peer. Raises SystemExit with the end of what it said."""
    ended = subprocess.run(sum(words, []), capture_output=True, text=True, timeout=300)
    if ended.returncode:
        raise SystemExit(f"{words[0][0]}: {(ended.stdout + ended.stderr)[-2000:]}")


def tokenizer(folder: Path) -> Path:
    """Write a tokenizer of printable ASCII, which peers want though they count by usage."""
    made = folder / "tokenizer"
    made.mkdir(exist_ok=True)
    letters = ["<unk>", "<s>", "</s>", *map(chr, range(33, 127)), "\u0120", "\u010a"]
    model = {
        "type": "BPE",
        "vocab": {letter: at for at, letter in enumerate(letters)},
        "merges": [],
        "unk_token": "<unk>",
    }
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    whole: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "model": model,
    }
    whole |= {"pre_tokenizer": bytewise, "decoder": bytewise, "post_processor": None}
    (made / "tokenizer.json").write_text(json.dumps(whole))
    says = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "<unk>"}
    (made / "tokenizer_config.json").write_text(json.dumps(says))
    return made


# --- the run --------------------------------------------------------------------------------------


@contextmanager
def server(core: int, free: set[int]) -> Iterator[str]:
    """Run the server alone on one core, and ourselves and what we start on the others."""
    os.sched_setaffinity(0, {core})
    with running_decode_server("--layers", LAYERS) as running:
        os.sched_setaffinity(0, free)
        yield running.url


def counters(url: str) -> tuple[float, float, float]:
    """Return what the server has counted: seconds of prompts, seconds and tokens of decode."""
    with urlopen(f"{url}/metrics", timeout=10) as answer:
        found = totals(answer.read().decode())
    names = ("prompt_seconds_total", "tokens_predicted_seconds_total", "tokens_predicted_total")
    prompt, decode, tokens = (found[f"llamacpp:{name}"] for name in names)
    return prompt, decode, tokens


def watched(task: Task, run: Callable[[], Figures]) -> Seen:
    """Run a client, and tell what the server counted meanwhile. Raises SystemExit."""
    before = counters(task.url)
    figures = run()
    prompt, decode, tokens = (b - a for a, b in zip(before, counters(task.url), strict=True))
    if tokens != len(task.prompts) * TOKENS:
        raise SystemExit(f"the server counted {tokens:g} tokens: somebody else uses it")
    whole = 1e3 * (prompt + decode) / tokens
    return Seen(figures, {DECODE: 1e3 * decode / tokens, WITH_FIRST: whole, RATE: 1 / whole})


def compare(task: Task, peers: Mapping[str, str], rounds: int) -> None:
    """Print one number of streams: ours and each peer in turn, so many rounds."""
    told: list[Request] = []

    def us() -> Figures:
        requests = ours(task)
        told.extend(requests)
        return by_definitions(requests)

    before = watched(task, us)
    seen: dict[str, list[tuple[Seen, Seen, Seen]]] = {name: [] for name in peers}
    for _ in range(rounds):
        for name, program in peers.items():
            peer = watched(task, partial(PEERS[name], program, task))
            after = watched(task, us)
            seen[name].append((before, peer, after))
            before = after
    print(f"\n{task.streams} at a time, {len(task.prompts)} requests of {TOKENS} tokens a run")
    _against_server(told)
    for name, rows in seen.items():
        for what in rows[0][1].figures:
            _row(name, what, rows)


def _against_server(requests: Sequence[Request]) -> None:
    """Print ours beside what the server says in each response."""
    ratios = [1e3 * (tpot(r) or 0.0) / r.server_ms for r in requests if r.server_ms]
    print(f"  ours / the server's own time of {len(ratios)} responses: median {median(ratios):.4f}")


def _row(name: str, what: str, rows: Sequence[tuple[Seen, Seen, Seen]]) -> None:
    """Print ours, theirs, and the ratio, plain and by the server's pace of each run."""
    mine = [fmean((a.figures[what], b.figures[what])) for a, _, b in rows]
    theirs = [peer.figures[what] for _, peer, _ in rows]
    plain = [one / other for one, other in zip(mine, theirs, strict=True)]
    pace = [peer.server[what] / fmean((a.server[what], b.server[what])) for a, peer, b in rows]
    steady = [p * q for p, q in zip(plain, pace, strict=True)]
    print(
        f"  {name:<9} {what:<26} ours {median(mine):8.3f}  theirs {median(theirs):8.3f}"
        f"  ratio {median(plain):.4f}  by the server's pace {median(steady):.4f}"
        f"  ({min(steady):.4f} to {max(steady):.4f})"
    )


def main() -> None:
    """Compare at each number of streams."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in PEERS:
        parser.add_argument(f"--{name}", metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=12, help="of each stream, each run")
    args = parser.parse_args()
    given: dict[str, Any] = {name: getattr(args, name) for name in PEERS}
    peers = {name: path for name, path in given.items() if path and Path(path).exists()}
    for name in PEERS.keys() - peers.keys():
        print(f"{name} is missing, and skipped")
    cores = sorted(os.sched_getaffinity(0))
    first, last = cores[0], cores[-1]
    print(f"server on core {last}, clients on core {first}")
    with tempfile.TemporaryDirectory() as folder, server(last, {first}) as url:
        for streams in STREAMS:
            serving = Serving("llama.cpp", url, "tiny")
            asked = bodies(serving, args.requests * min(streams, 2), TOKENS, streams)
            prompts = [str(body["prompt"]) for body in asked]
            compare(Task(url, streams, prompts, Path(folder)), peers, args.rounds)


if __name__ == "__main__":
    main()
