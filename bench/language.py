"""Transformers of the benchmark: the library's classes from their configurations, with random weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Encoder(nn.Module):
    """ids, mask (B, T) int64 -> last hidden state (B, T, H), or with `pool` the normalised mean (B, H)."""

    def __init__(self, model: nn.Module, pool: bool) -> None:
        super().__init__()
        self.model, self.pool = model, pool

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        if not self.pool:
            return hidden
        weight = mask[:, :, None].to(hidden.dtype)
        return F.normalize((hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9), dim=-1)


class Logits(nn.Module):
    """pixels (B, 3, H, W) -> logits (B, classes)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model(pixels).logits


class Hidden(nn.Module):
    """features -> last hidden state."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor) -> Tensor:
        return self.model(features).last_hidden_state


class Prefill(nn.Module):
    """ids (B, T) -> logits (B, T, vocabulary)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(input_ids=ids, use_cache=False).logits


class Decode(nn.Module):
    """One decoding step with the cache as an input.

    ids (1, 1), position (1, 1), keys and values (L, 1, heads, T, D) -> logits (1, 1, vocabulary) and the new rows of
    keys and values, (L, 2, 1, heads, 1, D), which the caller writes into its cache.
    """

    def __init__(self, model: nn.Module, num_layers: int) -> None:
        super().__init__()
        self.model, self.num_layers = model, num_layers

    def forward(self, ids: Tensor, position: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache()
        for layer in range(self.num_layers):
            cache.update(keys[layer], values[layer], layer)
        out = self.model(input_ids=ids, position_ids=position, past_key_values=cache, use_cache=True)
        rows = [torch.stack([layer.keys[:, :, -1:], layer.values[:, :, -1:]]) for layer in out.past_key_values.layers]
        return out.logits, torch.stack(rows)


def bert_base() -> nn.Module:
    import transformers as tr

    return Encoder(tr.BertModel(tr.BertConfig(), add_pooling_layer=False), pool=False)


def minilm() -> nn.Module:
    """The shape of all-MiniLM-L6-v2."""
    import transformers as tr

    config = tr.BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    return Encoder(tr.BertModel(config, add_pooling_layer=False), pool=True)


def gpt2() -> Any:
    import transformers as tr

    return tr.GPT2LMHeadModel(tr.GPT2Config())


def llama(layers: int = 8, hidden: int = 1024, inner: int = 2816, heads: int = 16, key_heads: int = 4) -> Any:
    """8 layers of 1024: 16 heads, 4 of keys and values, feed-forward 2816, vocabulary 32000; 157 million weights. Or as
    many, and as large, as the arguments say."""
    import transformers as tr

    config = tr.LlamaConfig(
        vocab_size=32000, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=key_heads, max_position_embeddings=2048,
    )  # fmt: skip
    return tr.LlamaForCausalLM(config)


def vit_b16() -> nn.Module:
    import transformers as tr

    return Logits(tr.ViTForImageClassification(tr.ViTConfig(num_labels=1000)))


def convnext_tiny() -> nn.Module:
    import transformers as tr

    return Logits(tr.ConvNextForImageClassification(tr.ConvNextConfig(num_labels=1000)))


def whisper_tiny_encoder() -> nn.Module:
    import transformers as tr
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = tr.WhisperConfig(
        d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, decoder_layers=4,
        decoder_attention_heads=6, decoder_ffn_dim=1536,
    )  # fmt: skip
    return Hidden(WhisperEncoder(config))
