"""What an engine's flags say about how it reads weights: ranks, number formats, guesses ahead."""

from dataclasses import dataclass

from gpudoctor.formats.launch_flags import Flags
from gpudoctor.formats.model_config import Uncounted
from gpudoctor.text import one_line

_TENSOR = ("tensor-parallel-size", "tp-size", "tp", "num-shard")
_PIPELINE = ("pipeline-parallel-size", "pp-size", "pp")
_EXPERT = ("expert-parallel-size", "ep-size", "ep")
_DATA = ("data-parallel-size", "dp-size", "dp")
_SPECULATIVE = ("speculative-algorithm", "speculative-algo", "speculative-config")
_SWITCHES = {
    "enable-expert-parallel": "expert parallelism is not modelled",
    "enable-ep-moe": "expert parallelism is not modelled",
    "enable-deepep-moe": "expert parallelism is not modelled",
    "enable-dp-attention": "data-parallel attention is not modelled",
}
_VALUES = {
    "cpu-offload-gb": "weights that are kept in host memory are not modelled",
    "hf-overrides": "the flags change the model's own configuration",
    "json-model-override-args": "the flags change the model's own configuration",
    "moe-a2a-backend": "expert parallelism is not modelled",
    "config": "the engine's --config file was not read",
}
_PLAIN = {"auto", "half", "float16", "fp16", "bfloat16", "bf16"}
_CACHE = {"fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "nvfp4": 0.5625, "fp4_e2m1": 0.53125}


@dataclass(frozen=True, slots=True)
class Launch:
    """`ranks` GPUs hold one replica; bytes of a weight that is not quantised, and of a cached one.

    `online` is a quantisation that the engine does itself; `cache` empty where none was asked for.
    """

    ranks: int = 1
    plain: float = 2.0
    cache: str = ""
    online: str = ""


def launch_of(flags: Flags) -> Launch:
    """Return what flags of SGLang or vLLM say. Raises Uncounted for what is not modelled."""
    for name, why in _SWITCHES.items():
        if flags.on(name):
            raise Uncounted(why)
    for name, why in _VALUES.items():
        if flags.get(name) not in (None, "", "0", "{}", "none"):
            raise Uncounted(why)
    for names, what in ((_PIPELINE, "pipeline"), (_EXPERT, "expert"), (_DATA, "data")):
        if _number(flags, names) != 1:
            raise Uncounted(f"{what} parallelism is not modelled")
    if flags.get(*_SPECULATIVE) is not None:
        raise Uncounted("speculative decoding makes several tokens of one read of the weights")
    dtype = (flags.get("dtype") or "auto").lower()
    if dtype not in _PLAIN | {"float", "float32"}:
        raise Uncounted(f"--dtype {one_line(dtype, 20)} is not one that is counted")
    return Launch(
        _number(flags, _TENSOR),
        2.0 if dtype in _PLAIN else 4.0,
        (flags.get("kv-cache-dtype") or "auto").lower(),
        flags.get("quantization", "q") or "",
    )


def cache_bytes(named: str, checkpoint: str, plain: float) -> float:
    """Return bytes of one cached number; what the checkpoint asks for holds for `auto`."""
    word = checkpoint if named in ("", "auto") and checkpoint else named
    if word in _PLAIN or word in ("", "none"):
        return plain
    if word not in _CACHE:
        raise Uncounted(f"a key-value cache of {one_line(word, 20)} is not one that is counted")
    return _CACHE[word]


def _number(flags: Flags, names: tuple[str, ...]) -> int:
    """Return a size, 1 where it was not given. Raises Uncounted for one that is no number."""
    if flags.get(*names) is None:
        return 1
    value = flags.number(*names)
    if value is None or not 1 <= value <= 1024:
        raise Uncounted(f"--{names[0]} {one_line(flags.get(*names) or '', 20)} is no size")
    return value
