"""Roofline and reachable speed: worked examples as data, the audit's own numbers, bad input."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.ceiling import (
    Card,
    ceiling,
    reachable_rate,
    reads,
    roofline_rate,
)
from gpudoctor.ceiling_launch import Launch, launch_of
from gpudoctor.formats.launch_flags import parse_flags
from gpudoctor.formats.model_config import Part, Shape, Uncounted, parse_config, shape_of
from gpudoctor.formats.model_quant import Group, Storage, storage_of
from gpudoctor.formats.module_patterns import parse_patterns
from gpudoctor.model import Unknown
from gpudoctor.model.ceiling import Ceiling
from gpudoctor.redact import redact
from gpudoctor.tables.gpus import bandwidth, spec_of

CASES = sorted((Path(__file__).parent / "ceilings").glob("*.toml"))


def card(case: dict[str, Any]) -> Card:
    spec = spec_of(case["gpu"])
    assert spec is not None
    speed = bandwidth(spec.bus, case.get("clock", spec.clock))
    return Card(spec.name, speed, "MHz", spec.nvlink > 0)


def bounds(case: dict[str, Any]) -> Ceiling | str:
    try:
        launch = launch_of(parse_flags(case["flags"]))
    except Uncounted as why:
        return str(why)
    cards = [card(case)] * case["gpus"]
    return ceiling(case["config"], cards, launch, case.get("beside"), case.get("context", 128))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_cases(path: Path) -> None:
    case = tomllib.loads(path.read_text())
    expect, found = case["expect"], bounds(case)
    if "unknown" in expect:
        said = found if isinstance(found, str) else str(found.roofline)
        assert expect["unknown"] in said
        assert isinstance(found, str) or isinstance(found.reachable, Unknown)
        return
    assert isinstance(found, Ceiling), found
    shape = shape_of(case["config"])
    assert isinstance(shape, Shape)
    if "billions" in expect:
        active = sum(m.parameters for m in shape.matrices if m.part is not Part.INDEXER)
        assert active / 1e9 == pytest.approx(expect["billions"], rel=1e-3)
    if "stored" in expect:
        assert shape.stored / 1e9 == pytest.approx(expect["stored"], rel=1e-3)
    for key, value in (("gigabytes", found.bytes_per_token), ("roofline", found.roofline)):
        if key in expect:
            assert not isinstance(value, Unknown)
            scale = 1e9 if key == "gigabytes" else 1
            assert value / scale == pytest.approx(expect[key], rel=1e-3)
    if "reachable" in expect:
        assert found.reachable == pytest.approx(expect["reachable"], rel=1e-3)
    if "no_reachable" in expect:
        assert expect["no_reachable"] in str(found.reachable)
    if "cache_gigabytes" in expect:
        launch = launch_of(parse_flags(case["flags"]))
        storage = storage_of(case["config"], case.get("beside"))
        read = reads(shape, storage, launch, case["context"])
        assert read.cache / 1e9 == pytest.approx(expect["cache_gigabytes"], rel=1e-3)
    for words, told in (("says", found.assumptions), ("latencies", found.latencies)):
        for said in expect.get(words, ()):
            assert said in " | ".join(told)


# The worked example of GLM-5: every intermediate number, as published.


def glm5() -> tuple[dict[str, Any], Shape]:
    case = tomllib.loads((Path(__file__).parent / "ceilings/glm5-nvfp4.toml").read_text())
    shape = shape_of(case["config"])
    assert isinstance(shape, Shape)
    return case, shape


def test_parameters_of_glm5() -> None:
    _, shape = glm5()
    billions = {part: round(shape.active(part) / 1e9, 2) for part in Part}
    assert billions == {
        Part.ATTENTION: 12.87,
        Part.EXPERTS: 22.65,
        Part.SHARED: 2.83,
        Part.DENSE: 0.68,
        Part.ROUTER: 0.12,
        Part.HEAD: 0.95,
        Part.INDEXER: 0.73,
    }
    assert round(shape.stored / 1e9, 1) == 743.9
    assert round(sum(m.parameters for m in shape.matrices) / 1e9, 1) == 40.8


FP4 = Group("NVFP4", 0.5625)


@pytest.mark.parametrize(
    ("kept", "groups", "indexer", "gigabytes", "at_1792", "at_1597"),
    [
        ([], (FP4,), True, 22.97, 624, 556),
        (["self_attn", "lm_head"], (FP4,), False, 42.4, 338, 301),
        (["self_attn", "lm_head", "mlp.gate"], (FP4,), False, 42.6, 337, 300),
        (["self_attn", "lm_head", "mlp.gate", "shared_experts"], (FP4,), False, 46.7, 307, 274),
        ([], (), True, 81.7, 176, 157),
    ],
)
def test_assumptions_of_glm5(
    kept: list[str],
    groups: tuple[Group, ...],
    indexer: bool,
    gigabytes: float,
    at_1792: int,
    at_1597: int,
) -> None:
    _, shape = glm5()
    storage = Storage(groups, (parse_patterns(kept),))
    once = reads(shape, storage, Launch(8), 0, indexer).once
    assert once / 1e9 == pytest.approx(gigabytes, abs=0.06)
    assert round(roofline_rate(once, 8 * 1792)) == at_1792
    assert abs(roofline_rate(once, 8 * 1597) - at_1597) < 1


def test_the_audits_309_is_this_roofline_without_the_router() -> None:
    case, shape = glm5()
    read = reads(shape, storage_of(case["config"]), Launch(8), 0)
    without = read.once - read.weights[Part.ROUTER, "16-bit"]
    assert without / 1e9 == pytest.approx(46.4, abs=0.05)
    assert round(roofline_rate(without, 8 * 1792)) == 309
    assert round(roofline_rate(without, 8 * 1597)) == 275
    assert round(100 * 10.34 / roofline_rate(without, 8 * 1792), 1) == 3.3


@pytest.mark.parametrize(
    ("microseconds", "share", "fixed", "rate"),
    [(6, 1, 0, 239), (13, 1, 0, 190), (25, 1, 0, 140), (48, 1, 0, 93), (25, 0.6, 1e-3, 97)],
)
def test_reachable_of_glm5(microseconds: float, share: float, fixed: float, rate: int) -> None:
    found = reachable_rate(46.4e9 / 8, 1792, share, 157 * microseconds / 1e6, fixed)
    assert abs(found - rate) < 1


def test_the_cache_of_latent_attention_is_read_by_every_rank() -> None:
    case, shape = glm5()
    one, eight = (reads(shape, storage_of(case["config"]), Launch(n), 32768) for n in (1, 8))
    assert shape.layers * shape.cache.values * 2 == 89856
    assert one.cache == eight.cache == 89856 * 32768
    empty = reads(shape, storage_of(case["config"]), Launch(8), 0)
    assert eight.copies - empty.copies == pytest.approx(7 * one.cache)


def test_key_value_heads_are_copied_beyond_their_number() -> None:
    case = tomllib.loads((Path(__file__).parent / "ceilings/llama-8b.toml").read_text())
    shape = shape_of(case["config"])
    assert isinstance(shape, Shape)
    eight, sixteen = (reads(shape, Storage(), Launch(n), 1000) for n in (8, 16))
    assert eight.copies == 0
    assert sixteen.copies == pytest.approx(sixteen.cache + 32 * 2 * 2 * 4096 * 1024)


def test_a_measured_latency_takes_the_place_of_the_assumed_one() -> None:
    case, _ = glm5()
    known = ceiling(case["config"], [card(case)] * 8, Launch(8), context=0, all_reduce_us=48)
    assumed = ceiling(case["config"], [card(case)] * 8, Launch(8), context=0)
    assert not isinstance(known.reachable, Unknown) and not isinstance(assumed.reachable, Unknown)
    assert 1 / known.reachable - 1 / assumed.reachable == pytest.approx(157 * 23e-6)
    assert "48 µs (measured here)" in " ".join(known.latencies)


def test_several_models_of_gpus() -> None:
    case, _ = glm5()
    slow, fast = Card("A", 1000.0, ""), Card("B", 2000.0, "")
    two = ceiling(case["config"], [fast, slow], Launch(2))
    assert two.bandwidth == 2000.0
    three = ceiling(case["config"], [fast, slow, slow], Launch(2))
    assert "which of several GPU models serve" in str(three.roofline)


# Lists of modules.


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("lm_head", "lm_head", True),
        ("model.layers.0.self_attn", "model.layers.0.self_attn.q_proj", True),
        ("model.layers.0.self_attn", "model.layers.10.self_attn.q_proj", False),
        ("mlp.gate", "model.layers.3.mlp.gate", True),
        ("mlp.gate", "model.layers.3.mlp.gate_proj", False),
        ("model.layers.1*", "model.layers.12.mlp.gate", True),
        ("*self_attn*", "model.layers.1.self_attn.o_proj", True),
        ("*.mlp.gate", "model.layers.1.mlp.gate_proj", False),
        ("model.language_model.layers.1.mlp", "model.layers.1.mlp.up_proj", True),
        (r"re:.*self_attn.*", "model.layers.1.self_attn.o_proj", True),
        (r"re:.*mlp\.gate$", "model.layers.1.mlp.gate", True),
        (r"re:.*mlp\.gate$", "model.layers.1.mlp.gate_proj", False),
        (r"re:model\.layers\.\d+\.mlp\.(gate|up)_proj", "model.layers.1.mlp.up_proj", True),
        (r"re:model\.layers\.\d+\.mlp\.(gate|up)_proj", "model.layers.1.mlp.down_proj", False),
    ],
)
def test_patterns(pattern: str, name: str, matches: bool) -> None:
    assert parse_patterns([pattern]).match(name) is matches


@pytest.mark.parametrize("word", ["re:(a+)+$", "re:a{3}", "re:[ab]", 7, "x" * 1000])
def test_patterns_that_are_not_understood(word: object) -> None:
    with pytest.raises(ValueError):
        parse_patterns([word])


def test_a_config_is_read_as_redaction_left_it() -> None:
    text = b'{"pad_token": 7, "bos_token_id": 1, "hidden_size": 64, "eos_token": "x"}'
    assert parse_config(redact(text).decode()) == {
        "pad_token": None,
        "bos_token_id": 1,
        "hidden_size": 64,
        "eos_token": "<masked>",
    }


def test_a_hostile_list_comes_to_an_end() -> None:
    config = {
        "model_type": "qwen3_moe",
        **dict.fromkeys(("hidden_size", "intermediate_size", "vocab_size"), 64),
        **dict.fromkeys(("moe_intermediate_size", "num_attention_heads"), 64),
        **dict.fromkeys(("num_key_value_heads", "num_experts", "num_experts_per_tok"), 4),
        "num_hidden_layers": 512,
    }
    words = [f"*{'a*' * 100}{n}" for n in range(200)] + [
        f"model.layers.7.x{n}" for n in range(9999)
    ]
    quantised = {"quant_method": "fp8", "modules_to_not_convert": words}
    found = ceiling(config | {"quantization_config": quantised}, [Card("A", 1000.0, "")])
    assert not isinstance(found.roofline, Unknown)
    quantised["modules_to_not_convert"] = [f"*a{n}" for n in range(500)]
    found = ceiling(config | {"quantization_config": quantised}, [Card("A", 1000.0, "")])
    assert "more than" in str(found.roofline)


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100000, "null"])
def test_a_config_that_is_none(text: str) -> None:
    assert isinstance(parse_config(text), Unknown)
