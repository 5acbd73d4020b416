"""Model types whose weights gpudoctor can count: which keys of config.json say what.

Each has gated MLPs (three matrices) and grouped-query or latent attention in every layer; facts
from the models' own code in Hugging Face transformers and their published configurations.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """How one model type is built.

    `latent` is multi-head latent attention. `width` is the key of an expert's width, empty where
    there are no experts; `shared` the key of the shared experts, a count or a width. `window`:
    what `sliding_window` means without `layer_types` (`none`, `all` layers, `switch`: if
    `use_sliding_window`, `types`: not told). `block` names the module of the experts, `router` the
    one that chooses among them. `heads_default`: without the key, key-value heads are the heads.
    """

    latent: bool = False
    width: str = ""
    shared: str = ""
    window: str = "none"
    block: str = "mlp"
    router: str = "gate"
    heads_default: bool = False


_DENSE = Family()
_DEEPSEEK = Family(latent=True, width="moe_intermediate_size", shared="n_shared_experts")
_QWEN_MOE = Family(width="moe_intermediate_size")

FAMILIES = {
    "llama": Family(heads_default=True),
    "mistral": Family(window="all"),
    "ministral": Family(window="types"),
    "qwen2": Family(window="switch"),
    "qwen3": Family(window="switch"),
    "qwen3_vl_text": _DENSE,
    "seed_oss": _DENSE,
    "smollm3": _DENSE,
    "granite": _DENSE,
    "olmo2": _DENSE,
    "glm4": _DENSE,
    "gemma3_text": Family(window="types"),
    "mixtral": Family(width="intermediate_size", window="all", block="block_sparse_moe"),
    "qwen2_moe": Family(
        width="moe_intermediate_size", shared="shared_expert_intermediate_size", window="switch"
    ),
    "qwen3_moe": _QWEN_MOE,
    "qwen3_vl_moe_text": _QWEN_MOE,
    "minimax_m2": Family(width="intermediate_size", block="block_sparse_moe"),
    "glm4_moe": Family(width="moe_intermediate_size", shared="n_shared_experts"),
    "gpt_oss": Family(width="intermediate_size", window="types", router="router"),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK,
}
