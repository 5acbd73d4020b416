"""What is asked of an engine: prompts that no cache knows, a forced length, no chance in it."""

import random
from collections.abc import Mapping

from gpudoctor.formats.engines import Engine
from gpudoctor.model.bench import Serving

# A prompt is the nonce and one of these: about 64 tokens.
_SUBJECTS = (
    "rivers and how they shape the land",
    "the making of bread",
    "sailing ships and their crews",
    "the history of clocks",
    "how bridges are built",
    "growing vegetables through the year",
    "the work of a lighthouse keeper",
    "old maps and those who drew them",
    "the life of bees",
    "railways and their stations",
    "how glass is made",
    "the moon and the tides",
    "mountain weather",
    "the printing of books",
    "wool, cloth and weaving",
    "the parts of a violin",
    "winter in the far north",
    "markets in small towns",
    "how a dam works",
    "the training of horses",
    "lakes and their fish",
    "the building of a stone house",
    "deserts and their plants",
    "the care of an orchard",
    "letters and the post",
    "how coal is mined",
    "the keeping of cattle",
    "stars and navigation",
    "the art of the kitchen",
    "forests and their paths",
    "the making of cheese",
    "harbours and cranes",
)
_WORDS = tuple(
    "amber basin cedar delta ember fable grove haven inlet jolly kneel lemon maple noble ocean"
    " pearl quiet river stone table umber valley willow yonder zephyr arrow birch candle dusk eagle"
    " fern garnet hollow ivory jasper kettle lantern meadow nectar olive pepper quartz rowan silver"
    " timber upland velvet walnut yarrow zinc anchor beacon copper dragon elbow falcon ginger"
    " hammer island jungle kernel ladder marble".split()
)
_NONCE = 8
_LONG = (
    "Write a very long and thorough text about {}. Begin at once, go through everything step by"
    " step, give many examples, and do not stop or sum up before the text fills a whole book."
)
# An engine whose length cannot be forced goes on for long only where the task has no end.
_COUNTING = (
    "Count upwards in English words, one number on each line, from one to ten thousand, for a tale"
    " about {}. Leave no number out, add nothing else, and do not stop before ten thousand."
)
# Engines whose interface cannot force an output length.
_FREE = frozenset({Engine.TGI, Engine.OLLAMA})
IGNORE_EOS, STREAM_OPTIONS = "ignore_eos", "stream_options"


def forced(serving: Serving) -> bool:
    """Return whether the engine can be made to give an exact length."""
    return serving.kind not in _FREE and IGNORE_EOS not in serving.refused


def bodies(serving: Serving, count: int, tokens: int, seed: int) -> list[dict[str, object]]:
    """Return the bodies of `count` requests for `tokens` output tokens each.

    The same seed gives the same prompts, but for a nonce of words at their very start.
    """
    order = list(_SUBJECTS)
    random.Random(seed).shuffle(order)
    chance = random.SystemRandom()
    found = []
    for number in range(count):
        nonce = " ".join(chance.choices(_WORDS, k=_NONCE))
        text = (_COUNTING if serving.kind in _FREE else _LONG).format(order[number % len(order)])
        found.append(_body(serving, f"{nonce}. {text}", tokens))
    return found


def _body(serving: Serving, prompt: str, tokens: int) -> dict[str, object]:
    said: Mapping[str, object] = {"prompt": prompt}
    if serving.path.endswith("/chat/completions"):
        said = {"messages": [{"role": "user", "content": prompt}]}
    body = {
        "model": serving.model,
        **said,
        "max_tokens": tokens,
        "temperature": 0,
        "top_p": 1,
        "stream": True,
        STREAM_OPTIONS: {"include_usage": True},
        **_forced(serving.kind, tokens),
    }
    return {name: value for name, value in body.items() if name not in serving.refused}


def _forced(kind: str, tokens: int) -> dict[str, object]:
    """Return what forces the length and keeps caches out, in the engine's own parameters."""
    if kind in _FREE:
        return {}
    if kind == Engine.VLLM:
        options = {"include_usage": True, "continuous_usage_stats": True}
        return {IGNORE_EOS: True, "min_tokens": tokens, STREAM_OPTIONS: options}
    if kind in {Engine.SGLANG, Engine.TENSORRT}:
        return {IGNORE_EOS: True, "min_tokens": tokens}
    if kind == Engine.LLAMA:
        return {IGNORE_EOS: True, "cache_prompt": False}
    return {IGNORE_EOS: True}
