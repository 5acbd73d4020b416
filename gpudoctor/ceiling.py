"""The roofline of one stream, and what is reachable: bytes a token over memory bandwidth.

Reading its active weights and the cache is the least that a token takes; no operation counts, since
at one stream decoding is bound by memory alone. What cannot be counted is unknown, with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpudoctor.ceiling_launch import Launch, cache_bytes, launch_of
from gpudoctor.formats.engines import Engine
from gpudoctor.formats.launch_flags import parse_flags
from gpudoctor.formats.model_config import Config, Part, Shape, Uncounted, shape_of
from gpudoctor.formats.model_quant import PLAIN_BYTES, Storage, online, storage_of
from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.formats.serving import Server
from gpudoctor.model import Reason, Unknown
from gpudoctor.model.ceiling import Ceiling
from gpudoctor.tables.collectives import all_reduce, efficiency, fixed_seconds
from gpudoctor.tables.gpus import bandwidth, spec_of
from gpudoctor.tables.software import DecodeReference
from gpudoctor.text import one_line

DEFAULT_CONTEXT = 128
_ENGINES = frozenset({Engine.SGLANG, Engine.VLLM})


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU's memory: peak bandwidth in GB/s, how it was had, and whether it has NVLink."""

    name: str
    bandwidth: float
    said: str
    nvlink: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """What one token reads: bytes by (part, number format), the cache's, and what is read again.

    `copies` are bytes that tensor parallelism does not divide, read by each further GPU.
    """

    weights: dict[tuple[Part, str], float]
    cache: float
    copies: float

    @property
    def once(self) -> float:
        """Return all bytes, each counted once."""
        return sum(self.weights.values()) + self.cache


def roofline_rate(bytes_per_token: float, gigabytes: float) -> float:
    """Return tokens a second that bandwidth (GB/s, of all GPUs) alone allows."""
    return gigabytes * 1e9 / bytes_per_token


def reachable_rate(
    bytes_per_gpu: float, gigabytes: float, share: float, messages: float, fixed: float
) -> float:
    """Return tokens a second of one GPU's bytes at its GB/s, with seconds of messages and more."""
    return 1 / (bytes_per_gpu / (gigabytes * 1e9 * share) + messages + fixed)


def card_of(gpu: Gpu) -> Card | Unknown:
    """Return a GPU's memory: by its own highest memory clock, else by the data sheet."""
    if isinstance(gpu.name, Unknown):
        return gpu.name
    spec = spec_of(gpu.name)
    if spec is None:
        name = one_line(gpu.label, 60)
        return Unknown(Reason.NOT_PRESENT, f"{name} is not in the table of GPUs")
    if gpu.mig.current == "Enabled":
        return Unknown(Reason.NOT_PRESENT, "the bandwidth of a MIG instance is not modelled")
    clock = gpu.max_clocks.memory
    if spec.clock and not isinstance(clock, Unknown) and 0.5 < clock / spec.clock < 1.5:
        return Card(spec.name, bandwidth(spec.bus, clock), f"{clock:.0f} MHz", spec.nvlink > 0)
    return Card(spec.name, float(spec.bandwidth), "data sheet", spec.nvlink > 0)


def ceiling_of_server(
    server: Server,
    config: Config | Unknown,
    gpus: Sequence[Gpu] | Unknown,
    beside: Config | None = None,
    context: int = DEFAULT_CONTEXT,
    known: DecodeReference | None = None,
) -> Ceiling:
    """Return the bounds of a server; what is unknown of it is the answer.

    `config` is its model's config.json; the rest is as for `ceiling`.
    """
    if server.engine not in _ENGINES:
        return _unknown(Unknown(Reason.NOT_PRESENT, f"how {server.engine} divides is not modelled"))
    for fact in (config, gpus):
        if isinstance(fact, Unknown):
            return _unknown(fact)
    assert not isinstance(config, Unknown) and not isinstance(gpus, Unknown)
    cards = [card_of(gpu) for gpu in gpus]
    if missing := next((card for card in cards if isinstance(card, Unknown)), None):
        return _unknown(missing)
    whole = [card for card in cards if isinstance(card, Card)]
    try:
        launch = launch_of(parse_flags(server.arguments))
    except Uncounted as why:
        return _unknown(Unknown(Reason.NOT_PRESENT, str(why)))
    return ceiling(config, whole, launch, beside, context, known=known)


def ceiling(
    config: Config,
    cards: Sequence[Card],
    launch: Launch | None = None,
    beside: Config | None = None,
    context: int = DEFAULT_CONTEXT,
    all_reduce_us: float | None = None,
    known: DecodeReference | None = None,
) -> Ceiling:
    """Return the bounds of one stream with `context` tokens in the cache.

    `beside` is the checkpoint's hf_quant_config.json, `all_reduce_us` a measured latency of small
    all-reduces in microseconds, `known` what others measured.
    """
    launch = launch or Launch()
    shape = shape_of(config)
    if isinstance(shape, Unknown):
        return _unknown(shape)
    try:
        read = reads(shape, _storage(config, beside, launch), launch, context)
        used = _used(cards, launch.ranks)
    except Uncounted as why:
        return _unknown(Unknown(Reason.NOT_PRESENT, str(why)))
    total = used.bandwidth * launch.ranks
    reachable, latencies = _reachable(shape, read, used, launch.ranks, all_reduce_us)
    return Ceiling(
        roofline_rate(read.once, total),
        reachable,
        read.once,
        total,
        (*_assumed(shape, read, context), _of_cards(used, launch.ranks), *_known(known)),
        (*latencies, *_others(known)),
    )


def _storage(config: Config, beside: Config | None, launch: Launch) -> Storage:
    storage = storage_of(config, beside)
    return online(launch.online) if launch.online and not storage.groups else storage


def reads(
    shape: Shape, storage: Storage, launch: Launch, context: int, indexer: bool = False
) -> Read:
    """Return what one token reads on `launch.ranks` GPUs. Raises Uncounted."""
    weights: dict[tuple[Part, str], float] = {}
    copies = 0.0
    for matrix in shape.matrices:
        if matrix.part is Part.INDEXER and not indexer:
            continue
        name, each = storage.of(matrix.name)
        each = launch.plain if each == PLAIN_BYTES else each
        size = matrix.parameters * each
        weights[matrix.part, name] = weights.get((matrix.part, name), 0.0) + size
        copies += size * (_copies(launch.ranks, matrix.ways) - 1)
    cached = cache_bytes(launch.cache, storage.cache, launch.plain)
    tokens = sum(min(context, window) if window else context for window in shape.cache.windows)
    cache = tokens * shape.cache.values * cached
    return Read(weights, cache, copies + cache * (_copies(launch.ranks, shape.cache.ways) - 1))


def _copies(ranks: int, ways: int) -> float:
    """Return how often all GPUs together read what is divided into so many parts at most."""
    return max(1.0, ranks / ways)


def _used(cards: Sequence[Card], ranks: int) -> Card:
    """Return the slowest of the GPUs that serve. Raises Uncounted where that is not certain."""
    if len(cards) < ranks:
        raise Uncounted(f"the model is divided over {ranks} GPUs, and this host shows {len(cards)}")
    if len({card.bandwidth for card in cards}) > 1 and len(cards) != ranks:
        raise Uncounted("which of several GPU models serve is not known")
    return min(cards, key=lambda card: card.bandwidth)


def _reachable(
    shape: Shape, read: Read, card: Card, ranks: int, measured: float | None
) -> tuple[float | Unknown, tuple[str, ...]]:
    """Return the reachable rate and what it adds to the roofline's assumptions."""
    count = 2 * shape.layers + 1 if ranks > 1 else 0
    latency = (measured, "measured here") if measured is not None else all_reduce(ranks)
    if card.nvlink and measured is None:
        latency = None
    if count and latency is None:
        link = "NVLink" if card.nvlink else "PCIe"
        why = f"what an all-reduce of {ranks} GPUs over {link} takes is not known: measure it"
        return Unknown(Reason.NOT_MEASURED, why), ()
    messages = count * latency[0] / 1e6 if count and latency else 0.0
    share, fixed = efficiency(shape.narrowest / ranks), fixed_seconds()
    each = (read.once + read.copies) / ranks
    rate = reachable_rate(each, card.bandwidth, share, messages, fixed)
    said = [f"{100 * share:.0f} % of peak bandwidth, for slices {shape.narrowest // ranks} wide"]
    if read.copies:
        said.append(f"{_gb(each)} a GPU, with what is not divided and read by every one")
    if count and latency:
        said.append(f"{count} messages between GPUs of {latency[0]:.0f} µs ({latency[1]})")
    said.append(f"{1000 * fixed:.0f} ms a token for launches, with CUDA graphs")
    return rate, tuple(said)


def _assumed(shape: Shape, read: Read, context: int) -> tuple[str, ...]:
    formats: dict[str, list[tuple[float, Part]]] = {}
    for (part, name), size in read.weights.items():
        formats.setdefault(name, []).append((size, part))
    parts = [
        f"{_gb(sum(size for size, _ in rows))} {name} ({_named(rows)})"
        for name, rows in sorted(formats.items(), key=lambda item: -sum(s for s, _ in item[1]))
    ]
    parts += [f"{_gb(read.cache)} cache of {context} tokens"] if context else []
    said = [f"{_gb(read.once)} a token: {', '.join(parts)}"]
    if any(matrix.part is Part.INDEXER for matrix in shape.matrices):
        said.append("all of the cache is read, and the indexer of sparse attention is not run")
    if shape.speculates:
        said.append("no guessing ahead")
    return tuple(said)


def _named(rows: Sequence[tuple[float, Part]]) -> str:
    return ", ".join(part for _, part in sorted(rows, reverse=True))


def _of_cards(card: Card, ranks: int) -> str:
    each = f"{card.bandwidth:.0f} GB/s ({card.name}, {card.said})"
    if ranks == 1:
        return f"one GPU of {each}, nothing read twice, nothing waited for"
    return f"{ranks} GPUs of {each}, evenly divided, nothing read twice, nothing waited for"


def _known(known: DecodeReference | None) -> tuple[str, ...]:
    """Return the roofline that somebody else computed for the same model and GPUs."""
    if known is None:
        return ()
    return (f"published: {known.roofline}, and {known.alternative} {known.alternative_assumes}",)


def _others(known: DecodeReference | None) -> tuple[str, ...]:
    """Return what others measured with the same model and GPUs."""
    if known is None:
        return ()
    low, high = known.peers
    return (f"others measured {low}-{high} on the same GPUs, without guessing ahead",)


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 5e7 else f"{size / 1e6:.1f} MB"


def _unknown(why: Unknown) -> Ceiling:
    return Ceiling(why, why, why, why)
