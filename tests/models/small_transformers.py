"""Transformers of every common kind with tiny seeded weights (package transformers)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import Dim

from tests.models.zoo_types import Loader, Tensors, ZooModel

ANY = Dim.DYNAMIC
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
VOCABULARY = 101
CACHE_LENGTH = 32


class Picked(nn.Module):
    """A transformers model with named tensor inputs and one field of its output."""

    def __init__(self, inner: nn.Module, names: tuple[str, ...], output: str, **fixed: Any) -> None:
        super().__init__()
        self.inner, self.names, self.output, self.fixed = inner, names, output, fixed

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        given = dict(zip(self.names, (x, y), strict=False))
        found: torch.Tensor = getattr(self.inner(**given, **self.fixed), self.output)
        return found


def _ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(1, VOCABULARY - 1, (batch, length))


def _encoder(name: str, inner: nn.Module) -> ZooModel:
    """ids and mask, batch and length dynamic."""

    def inputs(batch: int, length: int) -> Tensors:
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[-1, length // 2 + 1 :] = 0
        return _ids(batch, length), mask

    module = Picked(inner, ("input_ids", "attention_mask"), "last_hidden_state").eval()
    others = (inputs(1, 1), inputs(1, 7), inputs(3, 12))
    return ZooModel(name, module, inputs(2, 8), (({0: ANY, 1: ANY},) * 2,), others)


def _decoder(name: str, inner: nn.Module) -> ZooModel:
    """ids to logits without a cache, batch and length dynamic."""
    module = Picked(inner, ("input_ids",), "logits", use_cache=False).eval()
    dynamic = (({0: ANY, 1: ANY}, None),)
    return ZooModel(name, module, (_ids(2, 8),), (dynamic[0][:1],), ((_ids(1, 1),), (_ids(3, 5),)))


def _vision(name: str, inner: nn.Module, size: int) -> ZooModel:
    """Pictures, batch dynamic."""
    module = Picked(inner, ("pixel_values",), "last_hidden_state").eval()
    pictures = [torch.randn(b, 3, size, size) for b in (2, 1, 3)]
    return ZooModel(name, module, (pictures[0],), (({0: ANY},),), ((pictures[1],), (pictures[2],)))


def bert() -> ZooModel:
    import transformers as t

    config = t.BertConfig(vocab_size=VOCABULARY, max_position_embeddings=64, **SIZES)
    return _encoder("bert", t.BertModel(config))


def gpt2() -> ZooModel:
    import transformers as t

    return _decoder("gpt2", t.GPT2LMHeadModel(_gpt2_config(t)))


def _gpt2_config(t: Any) -> Any:
    return t.GPT2Config(
        n_embd=64, n_layer=2, n_head=4, vocab_size=VOCABULARY, n_positions=64, bos_token_id=0, eos_token_id=0
    )


def llama() -> ZooModel:
    import transformers as t

    return _decoder("llama", t.LlamaForCausalLM(_llama_config(t)))


def _llama_config(t: Any) -> Any:
    return t.LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=2, max_position_embeddings=64, **SIZES)


def _static_cache(name: str, inner: Any) -> ZooModel:
    """A decoder with a static cache in buffers: inputs ids [1, T] and positions [T]; serves prefill and decode."""
    from transformers import GenerationConfig
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    inner = inner.eval()
    inner.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        use_cache=True,
        cache_implementation="static",
        max_length=CACHE_LENGTH,
        cache_config={"batch_size": 1, "max_cache_len": CACHE_LENGTH},
    )
    module = CachedDecoder(TorchExportableModuleWithStaticCache(inner, 1, CACHE_LENGTH))
    length = Dim("length", max=CACHE_LENGTH)
    args = (_ids(1, 4), torch.arange(4))
    others = ((_ids(1, 1), torch.tensor([4])),)
    return ZooModel(name, module.eval(), args, (({1: length}, {0: length}),), others, strict=True)


class CachedDecoder(nn.Module):
    """Explicit positional inputs for the exportable decoder of transformers."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: torch.Tensor, cache_position: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(input_ids=input_ids, cache_position=cache_position)
        return found


def gpt2_static_cache(dtype: torch.dtype = torch.float32) -> ZooModel:
    import transformers as t

    return _static_cache("gpt2_static_cache", t.GPT2LMHeadModel(_gpt2_config(t)).to(dtype))


def llama_static_cache(dtype: torch.dtype = torch.float32) -> ZooModel:
    import transformers as t

    return _static_cache("llama_static_cache", t.LlamaForCausalLM(_llama_config(t)).to(dtype))


def vit() -> ZooModel:
    import transformers as t

    return _vision("vit", t.ViTModel(t.ViTConfig(image_size=32, patch_size=8, **SIZES), add_pooling_layer=False), 32)


def convnext() -> ZooModel:
    import transformers as t

    config = t.ConvNextConfig(hidden_sizes=[16, 32], depths=[1, 2], num_stages=2)
    return _vision("convnext", t.ConvNextModel(config), 32)


def whisper_encoder() -> ZooModel:
    import transformers as t
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = t.WhisperConfig(
        d_model=64,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=128,
        num_mel_bins=20,
        max_source_positions=50,
        vocab_size=VOCABULARY,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    module = Picked(WhisperEncoder(config), ("input_features",), "last_hidden_state").eval()
    sounds = [torch.randn(b, 20, 100) for b in (2, 1)]
    return ZooModel("whisper_encoder", module, (sounds[0],), (({0: ANY},),), ((sounds[1],),))


LOADERS: dict[str, Loader] = {
    f.__name__: f for f in (bert, gpt2, llama, gpt2_static_cache, llama_static_cache, vit, convnext, whisper_encoder)
}
