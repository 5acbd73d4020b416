"""llama.cpp's server on this machine's CPU; prints `READY <url> pid=<pid>` once it answers."""

import argparse
import importlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any


def options() -> argparse.Namespace:
    """Return the command line's options; port 0 is any free port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=4, help="requests decoded together")
    parser.add_argument("--ctx", type=int, default=1024, help="tokens for each of them")
    parser.add_argument("--layers", type=int, default=2, help="0.05 ms a token each, or more")
    parser.add_argument("--api-key")
    parser.add_argument("--title", help="the process's title, to be found by")
    return parser.parse_args()


def model(layers: int) -> str:
    """Return the model's path; it is written on first use."""
    path = Path(os.environ["DECODE_SERVER_HOME"]) / f"tiny-{layers}.gguf"
    if not path.exists():
        sys.path.insert(0, str(Path(__file__).parent))
        mine = path.with_suffix(f".{os.getpid()}")
        importlib.import_module("make_tiny").write(str(mine), layers)
        mine.rename(path)
    return str(path)


def parameters(chosen: argparse.Namespace, xllamacpp: Any) -> Any:
    """Return the server's parameters, as llama-server's own options set them."""
    found = xllamacpp.CommonParams()
    found.model.path = model(chosen.layers)
    found.n_parallel, found.n_ctx = chosen.parallel, chosen.ctx * chosen.parallel
    found.cpuparams.n_threads = found.cpuparams_batch.n_threads = chosen.threads
    found.hostnames, found.port = ["127.0.0.1"], chosen.port
    found.model_alias = {"tiny"}
    found.endpoint_metrics = True
    found.ui, found.verbosity, found.fit_params = False, 1, False
    if chosen.api_key:
        found.api_keys = [chosen.api_key]
    return found


def main() -> None:
    """Serve until a signal ends it."""
    chosen = options()
    xllamacpp: Any = importlib.import_module("xllamacpp")
    given = parameters(chosen, xllamacpp)
    if chosen.title:
        importlib.import_module("setproctitle").setproctitle(chosen.title)
    server = xllamacpp.Server(given)
    print("READY", server.listening_address, f"pid={os.getpid()}", flush=True)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    os._exit(0)


if __name__ == "__main__":
    main()
