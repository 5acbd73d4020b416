"""A model's config.json (Hugging Face): which matrices one token reads, and what it caches."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpudoctor.formats.model_families import FAMILIES, Family
from gpudoctor.model import Reason, Unknown
from gpudoctor.text import one_line

Config = Mapping[str, object]
_MOST_LAYERS, _MOST = 512, 1 << 24
# What redaction leaves of a value that was no text, behind a name such as `pad_token`.
_MASKED = re.compile(r":\s*<masked>")
_ANY = 1 << 30


class Part(StrEnum):
    """What a matrix is part of."""

    ATTENTION = "attention"
    INDEXER = "attention's indexer"
    DENSE = "dense layers"
    EXPERTS = "routed experts"
    SHARED = "shared experts"
    ROUTER = "router"
    HEAD = "LM head"


@dataclass(frozen=True, slots=True)
class Matrix:
    """Weights of one module, as many `parameters` as one token reads of the `stored` ones.

    `ways`: into how many parts tensor parallelism can divide it; beyond, each GPU has a copy.
    """

    name: str
    part: Part
    parameters: int
    ways: int = _ANY
    stored: int = 0


@dataclass(frozen=True, slots=True)
class Cache:
    """What a layer keeps of each token: `values` numbers, divided at most into `ways` parts.

    `windows` holds for each layer how many of the last tokens it reads, 0 for all.
    """

    values: int
    ways: int
    windows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """A model as decoding reads it; `narrowest` is the smallest width that is split over GPUs."""

    kind: str
    layers: int
    matrices: tuple[Matrix, ...]
    cache: Cache
    narrowest: int
    embedding: int
    speculates: bool = False

    def active(self, part: Part) -> int:
        """Return the parameters of one part that a token reads."""
        return sum(m.parameters for m in self.matrices if m.part is part)

    @property
    def stored(self) -> int:
        """Return all parameters, the embedding's too."""
        return self.embedding + sum(m.stored or m.parameters for m in self.matrices)


class Uncounted(Exception):
    """A shape that cannot be counted; the message says why."""


def parse_config(text: str) -> dict[str, object] | Unknown:
    """Return a JSON file's table, or why it is none."""
    try:
        found = json.loads(_MASKED.sub(": null", text))
    except (ValueError, RecursionError) as error:
        return Unknown(Reason.PARSE_FAILED, f"not JSON: {one_line(str(error), 80)}")
    return found if isinstance(found, dict) else Unknown(Reason.PARSE_FAILED, "not a JSON object")


def text_config(config: Config) -> Config:
    """Return the language model's own table, where a model for several media nests it."""
    nested = config.get("text_config")
    if not isinstance(nested, dict):
        return config
    return {"model_type": config.get("model_type")} | nested


def shape_of(config: Config) -> Shape | Unknown:
    """Count a model's weights; Unknown for a type or keys that cannot be counted."""
    try:
        return _shape(text_config(config))
    except Uncounted as why:
        return Unknown(Reason.NOT_PRESENT, str(why))


def _shape(config: Config) -> Shape:
    kind = config.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise Uncounted(f"the model type {one_line(str(kind), 40)!r} is not one that is counted")
    layers = whole(config, "num_hidden_layers", most=_MOST_LAYERS)
    size = whole(config, "hidden_size") * whole(config, "vocab_size")
    windows = _windows(config, family, layers)
    attention = _latent if family.latent else _grouped
    cache, ways = _cache(config, family, windows)
    matrices = [Matrix("lm_head", Part.HEAD, size)]
    sparse = _sparse(config, layers) if family.width else [False] * layers
    for layer, experts in enumerate(sparse):
        home = f"model.layers.{layer}"
        matrices += attention(config, family, f"{home}.self_attn", ways)
        matrices += _moe(config, family, home) if experts else _dense(config, f"{home}.mlp")
    return Shape(
        str(kind),
        layers,
        tuple(matrices),
        cache,
        min(_narrow(config, family, all(sparse))),
        size,
        bool(config.get("num_nextn_predict_layers")),
    )


def whole(config: Config, *names: str, least: int = 1, most: int = _MOST) -> int:
    """Return the first of these keys that is set, a whole number. Raises Uncounted."""
    value = next((config[n] for n in names if config.get(n) is not None), None)
    if value is None:
        raise Uncounted(f"config.json has no {names[0]}")
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Uncounted(f"config.json: {names[0]} is {one_line(repr(value), 40)}")
    return value


def _latent(config: Config, family: Family, home: str, ways: int) -> Iterator[Matrix]:
    """Yield multi-head latent attention; what leads into the latent space is not divided."""
    hidden, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    rank, rope = whole(config, "kv_lora_rank"), whole(config, "qk_rope_head_dim")
    nope, value = whole(config, "qk_nope_head_dim"), whole(config, "v_head_dim")
    query = heads * (nope + rope)
    low = whole(config, "q_lora_rank") if config.get("q_lora_rank") is not None else 0
    if low:
        yield Matrix(f"{home}.q_a_proj", Part.ATTENTION, hidden * low, 1)
        yield Matrix(f"{home}.q_b_proj", Part.ATTENTION, low * query)
    else:
        yield Matrix(f"{home}.q_proj", Part.ATTENTION, hidden * query)
    yield Matrix(f"{home}.kv_a_proj_with_mqa", Part.ATTENTION, hidden * (rank + rope), 1)
    yield Matrix(f"{home}.kv_b_proj", Part.ATTENTION, rank * heads * (nope + value))
    yield Matrix(f"{home}.o_proj", Part.ATTENTION, heads * value * hidden)
    if low and config.get("index_n_heads") is not None:
        count, size = whole(config, "index_n_heads"), whole(config, "index_head_dim")
        weights = low * count * size + hidden * size + hidden * count
        yield Matrix(f"{home}.indexer", Part.INDEXER, weights, 1)


def _grouped(config: Config, family: Family, home: str, ways: int) -> Iterator[Matrix]:
    """Yield grouped-query attention; keys and values are divided into their heads at most."""
    hidden, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    size = _head(config)
    yield Matrix(f"{home}.q_proj", Part.ATTENTION, hidden * heads * size)
    for name in ("k_proj", "v_proj"):
        yield Matrix(f"{home}.{name}", Part.ATTENTION, hidden * ways * size, ways)
    yield Matrix(f"{home}.o_proj", Part.ATTENTION, heads * size * hidden)


def _head(config: Config) -> int:
    if config.get("head_dim") is not None:
        return whole(config, "head_dim")
    hidden, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    if hidden % heads:
        raise Uncounted(f"config.json has no head_dim, and {heads} heads do not divide {hidden}")
    return hidden // heads


def _cache(config: Config, family: Family, windows: tuple[int, ...]) -> tuple[Cache, int]:
    """Return what a layer caches, and into how many parts keys and values are divided."""
    if family.latent:
        values = whole(config, "kv_lora_rank") + whole(config, "qk_rope_head_dim")
        return Cache(values, 1, windows), 1
    names = ["num_key_value_heads"] + ["num_attention_heads"] * family.heads_default
    heads = whole(config, *names)
    return Cache(2 * heads * _head(config), heads, windows), heads


def _dense(config: Config, home: str) -> Iterator[Matrix]:
    weights = whole(config, "hidden_size") * whole(config, "intermediate_size")
    for name in ("gate_proj", "up_proj", "down_proj"):
        yield Matrix(f"{home}.{name}", Part.DENSE, weights)


def _moe(config: Config, family: Family, layer: str) -> Iterator[Matrix]:
    """Yield the router, the experts chosen for one token, and those that every token takes."""
    home = f"{layer}.{family.block}"
    hidden, width = whole(config, "hidden_size"), whole(config, family.width)
    count = whole(config, "n_routed_experts", "num_experts", "num_local_experts")
    chosen = whole(config, "num_experts_per_tok", "experts_per_token", "moe_topk", "top_k")
    if chosen > count:
        raise Uncounted(f"config.json: {chosen} of {count} experts a token")
    one = 3 * hidden * width
    yield Matrix(f"{home}.{family.router}", Part.ROUTER, hidden * count, 1)
    yield Matrix(f"{home}.experts.0", Part.EXPERTS, chosen * one, stored=count * one)
    if family.shared and config.get(family.shared) is not None:
        given = whole(config, family.shared, least=0)
        counted = family.shared == "n_shared_experts"
        weights = given * one if counted else 3 * hidden * given
        name = "shared_experts" if counted else "shared_expert"
        if weights:
            yield Matrix(f"{home}.{name}", Part.SHARED, weights)


def _sparse(config: Config, layers: int) -> list[bool]:
    """Return for each layer whether it has experts."""
    kinds = config.get("mlp_layer_types")
    if isinstance(kinds, list):
        if len(kinds) != layers or not all(kind in ("dense", "sparse") for kind in kinds):
            raise Uncounted("config.json: mlp_layer_types cannot be read")
        return [kind == "sparse" for kind in kinds]
    frequency = config.get("moe_layer_freq")
    if isinstance(frequency, list):
        if len(frequency) != layers or not all(one in (0, 1) for one in frequency):
            raise Uncounted("config.json: moe_layer_freq cannot be read")
        return [bool(one) for one in frequency]
    only = config.get("mlp_only_layers") or []
    if not isinstance(only, list):
        raise Uncounted("config.json: mlp_only_layers cannot be read")
    first = whole({"n": 0} | dict(config), "first_k_dense_replace", "n", least=0)
    every = whole({"n": 1} | dict(config), "moe_layer_freq", "n")
    step = whole({"n": 1} | dict(config), "decoder_sparse_step", "n")
    return [
        n >= first and n % every == 0 and (n + 1) % step == 0 and n not in only
        for n in range(layers)
    ]


def _windows(config: Config, family: Family, layers: int) -> tuple[int, ...]:
    """Return for each layer how many of the last tokens it reads, 0 for all."""
    kinds, size = config.get("layer_types"), config.get("sliding_window")
    if kinds is not None:
        known = ("full_attention", "sliding_attention")
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise Uncounted("config.json: layer_types cannot be read")
        if others := [one_line(str(kind), 40) for kind in kinds if kind not in known]:
            raise Uncounted(f"layers of the type {others[0]!r} are not counted")
        if "sliding_attention" not in kinds:
            return (0,) * layers
        window = whole(config, "sliding_window")
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    if not size or family.window == "none":
        return (0,) * layers
    if family.window == "all":
        return (whole(config, "sliding_window"),) * layers
    if family.window == "switch" and not config.get("use_sliding_window"):
        return (0,) * layers
    raise Uncounted("config.json does not say which layers have a sliding window")


def _narrow(config: Config, family: Family, all_sparse: bool) -> Iterator[int]:
    if family.width:
        yield whole(config, family.width)
    if not all_sparse:
        yield whole(config, "intermediate_size")
