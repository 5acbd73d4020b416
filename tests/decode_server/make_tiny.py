"""A model of random weights; its vocabulary is printable ASCII: one token a character, or `th`."""

import importlib
from typing import Any

gguf: Any = importlib.import_module("gguf")
np: Any = importlib.import_module("numpy")

WIDTH, INNER, HEADS, CONTEXT = 128, 256, 4, 8192
# GPT-2's byte symbols: U+0120 is the space, U+010A the line feed.
TOKENS = ["<unk>", "<s>", "</s>", *map(chr, range(33, 127)), "\u0120", "\u010a", "th"]
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def write(path: str, layers: int) -> None:
    """Write the model as GGUF; the same bytes each time."""
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer, layers)
    rng = np.random.default_rng(0)

    def rand(name: str, *shape: int, scale: float | None = None) -> None:
        values = rng.standard_normal(shape) * (scale or shape[-1] ** -0.5)
        writer.add_tensor(name, values.astype(np.float32))

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(WIDTH, np.float32))

    rand("token_embd.weight", len(TOKENS), WIDTH, scale=1.0)
    for layer in range(layers):
        ones(f"blk.{layer}.attn_norm.weight")
        ones(f"blk.{layer}.ffn_norm.weight")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            rand(f"blk.{layer}.{name}.weight", WIDTH, WIDTH)
        rand(f"blk.{layer}.ffn_gate.weight", INNER, WIDTH)
        rand(f"blk.{layer}.ffn_up.weight", INNER, WIDTH)
        rand(f"blk.{layer}.ffn_down.weight", WIDTH, INNER)
    ones("output_norm.weight")
    rand("output.weight", len(TOKENS), WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: Any, layers: int) -> None:
    writer.add_name("tiny-random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(TOKENS)
    kinds = gguf.TokenType
    writer.add_token_types([kinds.CONTROL] * 3 + [kinds.NORMAL] * (len(TOKENS) - 3))
    writer.add_token_merges(["t h"])  # llama.cpp wants at least one
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
