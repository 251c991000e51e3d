"""Configurations of transformers' models in sizes that export in seconds."""

from __future__ import annotations

import inspect
from typing import Any

_SMALL: dict[str, Any] = {
    # what most models call their sizes
    "vocab_size": 101, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 128, "head_dim": 16, "max_position_embeddings": 128, "embedding_size": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    # GPT-2's, T5's, BART's and DistilBERT's words
    "n_positions": 128, "n_ctx": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_inner": 128, "rotary_dim": 8,
    "d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 128, "d_kv": 16, "ffn_dim": 128, "word_embed_proj_dim": 64,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4,
    "attention_types": [[["global", "local"], 1]],
    # experts
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "n_routed_experts": 4, "shared_expert_intermediate_size": 32, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
    # latent attention, linear attention and state spaces
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "state_size": 16, "expand": 2, "lru_width": 64,
    "attention_hidden_size": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 101,
    "num_kv_shared_layers": 0,
    # pictures
    "image_size": 32, "patch_size": 8, "num_channels": 3,
}  # fmt: skip


def small_config(kind: str, **changes: Any) -> Any:
    """The configuration of a model type, such as "llama": those of _SMALL that it has, then the changes."""
    import transformers as t

    of_kind = type(t.AutoConfig.for_model(kind))
    fields = set[str]()
    for c in of_kind.__mro__:
        fields |= {*getattr(c, "__annotations__", {}), *inspect.signature(c.__init__).parameters}
    return of_kind(**{**{k: v for k, v in _SMALL.items() if k in fields}, **changes})


def words(text: str) -> list[str]:
    """Names in a row."""
    return text.split()
