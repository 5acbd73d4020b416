"""How a checkpoint stores its weights: `quantization_config`, or hf_quant_config.json."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpudoctor.formats.model_config import Config, Uncounted, text_config, whole
from gpudoctor.formats.module_patterns import Patterns, parse_patterns
from gpudoctor.text import one_line

PLAIN_BYTES = 2.0
# What no method quantises unless its own lists say so.
_KEPT = parse_patterns(["lm_head", "mlp.gate", "mlp.router", "block_sparse_moe.gate"])
_EXPERTS = parse_patterns(["experts"])


@dataclass(frozen=True, slots=True)
class Group:
    """One way of storing weights: its name, and bytes a weight with its scales.

    `targets` are the modules stored so; None for all that are not kept plain.
    """

    name: str
    bytes: float
    targets: Patterns | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """How each module is stored: the first group that names it, 16 bits where none does."""

    groups: tuple[Group, ...] = ()
    kept: tuple[Patterns, ...] = ()
    cache: str = ""

    def of(self, module: str) -> tuple[str, float]:
        """Return the name of a module's number format, and its bytes a weight."""
        if not any(patterns.match(module) for patterns in self.kept):
            for group in self.groups:
                if group.targets is None or group.targets.match(module):
                    return group.name, group.bytes
        return "16-bit", PLAIN_BYTES


def storage_of(config: Config, beside: Config | None = None) -> Storage:
    """Return how a model's weights are stored; `beside` is hf_quant_config.json. Raises Uncounted.

    A method, format or list that is not known raises: which weights are small changes a bound
    twofold.
    """
    told = config.get("quantization_config") or text_config(config).get("quantization_config")
    nested = beside.get("quantization") if beside else None
    if isinstance(nested, dict):
        told = {"quant_method": "modelopt"} | (told if isinstance(told, dict) else {}) | nested
    if told is None:
        return Storage()
    if not isinstance(told, dict):
        raise Uncounted("config.json: quantization_config cannot be read")
    method = told.get("quant_method")
    read = _METHODS.get(method) if isinstance(method, str) else None
    if read is None:
        raise Uncounted(
            f"the quantisation {one_line(str(method), 40)!r} is not one that is counted"
        )
    return read(told)


def online(method: str) -> Storage:
    """Return how an engine stores what it quantises itself while loading. Raises Uncounted."""
    if method != "fp8":
        raise Uncounted(f"how --quantization {one_line(method, 40)} stores weights is not known")
    return Storage((Group("FP8", 1.0),), (_KEPT,))


def _fp8(told: Config) -> Storage:
    return Storage((Group("FP8", 1.0),), (_KEPT, _names(told, "modules_to_not_convert")))


def _mxfp4(told: Config) -> Storage:
    group = Group("MXFP4", 0.5 + 1 / 32, _EXPERTS)
    return Storage((group,), (_names(told, "modules_to_not_convert"),))


def _grouped(told: Config) -> Storage:
    """AWQ and GPTQ: whole numbers, a 16-bit scale a group, and often a zero point."""
    if told.get("dynamic"):
        raise Uncounted("GPTQ's `dynamic` exceptions are not counted")
    bits = whole(told, "bits", "w_bit", most=8)
    size = told.get("group_size", told.get("q_group_size"))
    scale = 0.0
    if size != -1:
        scale = (2 + bits / 8) / whole({"group_size": size}, "group_size")
    kept = (_KEPT, _names(told, "modules_to_not_convert"))
    return Storage((Group(f"INT{bits}", bits / 8 + scale),), kept)


_ALGORITHMS = {
    "NVFP4": ("NVFP4", 0.5, 1),
    "FP8": ("FP8", 1.0, 0),
    "W4A16_AWQ": ("INT4", 0.5, 2),
    "W4A8_AWQ": ("INT4", 0.5, 2),
}


def _modelopt(told: Config) -> Storage:
    name = told.get("quant_algo")
    known = _ALGORITHMS.get(name) if isinstance(name, str) else None
    if known is None:
        raise Uncounted(f"ModelOpt's format {one_line(str(name), 40)!r} is not one that is counted")
    word, plain, scale = known
    size = told.get("group_size", 16 if word == "NVFP4" else None)
    each = scale / whole({"group_size": size}, "group_size") if scale else 0.0
    kept = _told(told, "exclude_modules", "ignore")
    return Storage((Group(word, plain + each),), (kept,), _cache(told))


def _compressed(told: Config) -> Storage:
    groups = told.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise Uncounted("config.json: compressed-tensors without config_groups")
    found = tuple(_compressed_group(one) for one in groups.values())
    return Storage(found, (_told(told, "ignore"),), _cache(told))


def _compressed_group(group: object) -> Group:
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(group, dict) or not isinstance(weights, dict):
        raise Uncounted("config.json: a group of compressed-tensors cannot be read")
    bits, kind = whole(weights, "num_bits", most=16), weights.get("type")
    if bits not in (4, 8) or kind not in ("int", "float"):
        raise Uncounted(f"weights of {bits} bits, {one_line(str(kind), 20)}, are not counted")
    size = weights.get("group_size")
    scale = 0.0
    if size is not None and size != -1:
        scale = (1 if (bits, kind) == (4, "float") else 2) / whole(weights, "group_size")
    name = f"{'FP' if kind == 'float' else 'INT'}{bits}"
    named = {("FP4", 16): "NVFP4", ("FP4", 32): "MXFP4"}
    targets = group.get("targets")
    every = targets in (None, ["Linear"])
    patterns = None if every else _names(group, "targets")
    return Group(
        named.get((name, size), name) if isinstance(size, int) else name, bits / 8 + scale, patterns
    )


def _cache(told: Config) -> str:
    """Return the key-value cache's format that the checkpoint asks for, or an empty string."""
    scheme = told.get("kv_cache_scheme")
    if isinstance(scheme, dict):
        return "fp8" if (scheme.get("num_bits"), scheme.get("type")) == (8, "float") else "other"
    return one_line(str(told.get("kv_cache_quant_algo") or ""), 20).lower()


def _told(told: Config, *keys: str) -> Patterns:
    """Return the list of modules kept plain, which must be there. Raises Uncounted."""
    key = next((k for k in keys if told.get(k) is not None), None)
    if key is None:
        raise Uncounted("which weights are kept in 16 bits is not told (no list of exceptions)")
    return _names(told, key)


def _names(told: Config, key: str) -> Patterns:
    value = told.get(key)
    if value is None:
        return Patterns()
    if not isinstance(value, list):
        raise Uncounted(f"config.json: {key} is no list")
    try:
        return parse_patterns(value)
    except ValueError as error:
        raise Uncounted(f"config.json: {key}: {one_line(str(error), 100)}") from error


_METHODS: Mapping[str, Callable[[Config], Storage]] = {
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "awq": _grouped,
    "gptq": _grouped,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "compressed-tensors": _compressed,
}
