"""A serving engine's own metrics: one GET of /metrics on the side where it listens."""

import re
from dataclasses import dataclass

from gpudoctor.formats.engines import Engine
from gpudoctor.formats.launch_flags import parse_flags
from gpudoctor.formats.prometheus import totals
from gpudoctor.formats.serving import Server
from gpudoctor.model import Evidence, Later, Reader, Reason, Side, Tool, Unknown
from gpudoctor.probes.serving import SERVERS

_PORTS = {Engine.SGLANG: 30000, Engine.VLLM: 8000}
_REFUSED = 114
_MEANINGS = (
    (
        _REFUSED,
        Unknown(Reason.NEEDS_APP_METRICS, "the engine did not answer at /metrics on its own port"),
    ),
)
_LOOPBACK = re.compile(r"0\.0\.0\.0|127\.0\.0\.1|localhost|::")
# -q: no .curlrc, which may name a file to write; -B: no __pycache__; -I: no code of the user's.
_GET = (
    "if command -v curl >/dev/null;then curl -q -fsS --noproxy '*' -m 3 {url};else python3 -IBc "
    "'import urllib.request as u;"
    'print(u.build_opener(u.ProxyHandler({{}})).open("{url}",timeout=3).read(1<<20).decode())\';fi'
    f"||exit {_REFUSED}"
)


def _outside(servers: tuple[Server, ...]) -> Tool | Unknown:
    """Ask an engine that serves on the host itself."""
    if servers[0].containers:
        return Unknown(Reason.NOT_PRESENT, "the engine listens inside its container")
    return _probe("server-metrics", servers, Side.HOST)


def _inside(servers: tuple[Server, ...]) -> Tool | Unknown:
    """Ask an engine from inside the container that it serves in."""
    if not servers[0].containers:
        return Unknown(Reason.NOT_PRESENT, "the engine serves on the host itself")
    return _probe("server-metrics-inside", servers, Side.CONTAINER)


def _probe(key: str, servers: tuple[Server, ...], side: Side) -> Tool | Unknown:
    """Return one GET on loopback, where an engine that has metrics is known to listen."""
    server = servers[0]
    flags = parse_flags(server.arguments)
    if len(servers) > 1:
        return Unknown(Reason.NEEDS_APP_METRICS, "several engines run: none is asked")
    if server.engine not in _PORTS:
        what = f"{server.engine} publishes no decode speed"
        return Unknown(Reason.NEEDS_APP_METRICS, what)
    if server.engine is Engine.SGLANG and not flags.on("enable-metrics"):
        why = "start SGLang with --enable-metrics for its decode speed"
        return Unknown(Reason.NEEDS_APP_METRICS, why)
    if not _LOOPBACK.fullmatch(flags.get("host") or "127.0.0.1"):
        return Unknown(Reason.NEEDS_APP_METRICS, "the engine does not listen on loopback")
    port = flags.number("port") or _PORTS[server.engine]
    script = _GET.format(url=f"http://127.0.0.1:{int(port)}/metrics")
    return Tool(key, "sh", script, limit=5.0, side=side, meanings=_MEANINGS)


# Two, since a probe of the container's side can be asked only once that side is joined.
SERVER_METRICS = Later("server-metrics", (SERVERS,), _outside)
SERVER_METRICS_INSIDE = Later("server-metrics-inside", (SERVERS,), _inside, side=Side.CONTAINER)


@dataclass(frozen=True, slots=True)
class DecodeSpeed:
    """What the engine says of itself: tokens a second now, requests running, mean TPOT in ms.

    `tpot` is the mean over all requests since the engine started; None where it has none.
    """

    rate: float
    running: int
    tpot: float | None


def _speed(outside: Evidence, inside: Evidence) -> DecodeSpeed | Unknown:
    """Take the answer of the side that was asked, else the reason that says most."""
    evidence = next((e for e in (outside, inside) if e.problem is None), None)
    if evidence is None:
        problems = [e.problem for e in (outside, inside) if e.problem is not None]
        told = (p for p in problems if p.reason is not Reason.NOT_PRESENT)
        return next(told, problems[-1])
    found = totals(evidence.text)
    for names in (_SGLANG, _VLLM):
        rate, running = found.get(names[0]), found.get(names[1])
        if rate is not None and running is not None:
            total, count = found.get(f"{names[2]}_sum", 0.0), found.get(f"{names[2]}_count", 0.0)
            return DecodeSpeed(rate, int(running), 1000 * total / count if count else None)
    return Unknown(
        Reason.NEEDS_APP_METRICS,
        "the engine's metrics hold no momentary decode speed; `gpudoctor bench` measures it",
    )


_SGLANG = (
    "sglang:gen_throughput",
    "sglang:num_running_reqs",
    "sglang:time_per_output_token_seconds",
)
_VLLM = (
    "vllm:avg_generation_throughput_toks_per_s",
    "vllm:num_requests_running",
    "vllm:time_per_output_token_seconds",
)

DECODE_SPEED: Reader[DecodeSpeed] = Reader(
    "decode-speed", (SERVER_METRICS, SERVER_METRICS_INSIDE), _speed, tolerant=True
)
