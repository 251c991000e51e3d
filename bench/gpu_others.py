"""Models of transformers and timm whose shapes no tuning table knows: random weights from a fixed seed, eval mode,
inputs of fixed size.

Their sizes are those of nobody: widths such as 320, 448, 640 and 896, lengths such as 77 and 384, batches of 3 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench import gpu_models
from bench.makers import VOCABULARY, Made, causal, encoder, image, settled, sizes_of, timm_model, token_ids
from bench.models import Case
from tests.models.small_transformers import Picked


@dataclass(frozen=True)
class Other:
    """make: the model with about this depth, and its inputs. images: channels-last, as the peers like them best."""

    dtype: torch.dtype
    depth: int
    make: Callable[[int], Made]
    images: bool = False


class Step(nn.Module):
    """A decoder's step with a static cache in buffers: ids (B, 1), position (1,) int64 -> logits (B, 1, vocabulary)."""

    def __init__(self, inner: Any, batch: int, cached: int) -> None:
        super().__init__()
        self.inner, self.cached, config = inner, cached, inner.config
        heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        for layer in range(config.num_hidden_layers):
            for kind in ("keys", "values"):
                self.register_buffer(f"{kind}_{layer}", torch.randn(batch, heads, cached, head))

    def forward(self, ids: Tensor, position: Tensor) -> Tensor:
        mask = (torch.arange(self.cached, device=ids.device) <= position)[None, None, None, :]
        found: Tensor = self.inner(
            input_ids=ids,
            attention_mask=mask.expand(ids.shape[0], 1, 1, self.cached),
            position_ids=position[None, :].expand(ids.shape[0], 1),
            past_key_values=_Buffers(self, position),
            use_cache=True,
        ).logits
        return found


class _Buffers:
    """What a decoder of transformers asks of a cache, over the buffers of a Step."""

    is_compileable = True

    def __init__(self, step: Step, position: Tensor) -> None:
        self.step, self.position = step, position

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        kept = getattr(self.step, f"keys_{layer}"), getattr(self.step, f"values_{layer}")
        kept[0].index_copy_(2, self.position, keys)
        kept[1].index_copy_(2, self.position, values)
        return kept

    def get_seq_length(self, layer: int = 0) -> int:
        return self.step.cached - 1


def _roberta(layers: int) -> Made:
    sizes = sizes_of(448, layers, 1792, max_position_embeddings=80)
    return encoder("RobertaModel", "RobertaConfig", sizes, 5, 77, add_pooling_layer=False)


def _modernbert(layers: int) -> Made:
    sizes = sizes_of(640, layers, 960, max_position_embeddings=512, local_attention=128, cls_token_id=1, sep_token_id=2)
    return encoder("ModernBertModel", "ModernBertConfig", sizes, 3, 384)


def _deberta(layers: int) -> Made:
    more = {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 64,
        "share_att_key": True,
    }
    sizes = sizes_of(320, layers, 1280, max_position_embeddings=256, norm_rel_ebd="layer_norm", **more)
    return encoder("DebertaV2Model", "DebertaV2Config", sizes, 3, 154)


def _t5(layers: int) -> Made:
    sizes = {
        "d_model": 448,
        "d_kv": 56,
        "num_heads": 8,
        "d_ff": 1152,
        "num_layers": layers,
        "pad_token_id": 0,
    }
    sizes |= {"vocab_size": VOCABULARY, "feed_forward_proj": "gated-gelu", "eos_token_id": 1}
    return encoder("T5EncoderModel", "T5Config", sizes, 5, 96)


def _prefill(inner: nn.Module, batch: int, length: int) -> Made:
    """Logits of the last token."""
    return Picked(inner, ("input_ids",), "logits", use_cache=False, logits_to_keep=1), (token_ids(batch, length),)


def _step(inner: nn.Module, batch: int, cached: int) -> Made:
    return Step(inner, batch, cached), (token_ids(batch, 1), torch.tensor([cached * 2 // 3]))


def _qwen3(layers: int) -> Any:
    sizes = sizes_of(896, layers, 2432, num_key_value_heads=2, head_dim=64, max_position_embeddings=1024)
    return causal("Qwen3ForCausalLM", "Qwen3Config", sizes)


def _llama(layers: int) -> Any:
    sizes = sizes_of(960, layers, 2560, num_key_value_heads=5, max_position_embeddings=1024)
    return causal("LlamaForCausalLM", "LlamaConfig", sizes)


def _gemma3(layers: int) -> Any:
    sizes = sizes_of(640, layers, 2048, num_key_value_heads=1, max_position_embeddings=1024, sliding_window=96)
    sizes |= {"num_attention_heads": 4, "head_dim": 256, "query_pre_attn_scalar": 256}
    return causal("Gemma3ForCausalLM", "Gemma3TextConfig", sizes)


def _experts(layers: int) -> Any:
    sizes = sizes_of(704, layers, 1408, num_key_value_heads=11, head_dim=64, max_position_embeddings=512)
    sizes |= {"num_experts": 24, "num_experts_per_tok": 3, "moe_intermediate_size": 352, "norm_topk_prob": True}
    model = causal("Qwen3MoeForCausalLM", "Qwen3MoeConfig", sizes)
    model.set_experts_implementation("grouped_mm")
    for layer in model.model.layers:
        layer.mlp.gate.weight.data *= 20  # far from a tie: another rounding must not choose other experts
    return model


def _mamba(layers: int) -> Made:
    import transformers as t

    sizes = {
        "hidden_size": 320,
        "num_heads": 10,
        "head_dim": 64,
        "state_size": 48,
        "n_groups": 1,
        "chunk_size": 64,
    }
    config = t.Mamba2Config(**sizes, num_hidden_layers=layers, vocab_size=VOCABULARY, expand=2)
    return Picked(t.Mamba2Model(config), ("input_ids",), "last_hidden_state", use_cache=False), (token_ids(3, 192),)


def _wav2vec(layers: int) -> Made:
    import transformers as t

    sizes = {
        "hidden_size": 448,
        "num_attention_heads": 7,
        "intermediate_size": 1792,
        "num_hidden_layers": layers,
    }
    config = t.Wav2Vec2Config(
        **sizes, conv_dim=(320,) * 7, num_conv_pos_embeddings=64, num_conv_pos_embedding_groups=14,
        do_stable_layer_norm=True, feat_extract_norm="layer",
    )  # fmt: skip
    return Picked(t.Wav2Vec2Model(config), ("input_values",), "last_hidden_state"), (torch.randn(3, 20000),)


def _spectrogram(layers: int) -> Made:
    import transformers as t

    sizes = sizes_of(320, layers, 1280, num_mel_bins=112, max_length=400, hidden_act="gelu")
    model = t.ASTModel(t.ASTConfig(**{k: v for k, v in sizes.items() if k != "vocab_size"}))
    return Picked(model, ("input_values",), "last_hidden_state"), (torch.randn(5, 400, 112),)


def _dino(layers: int) -> Made:
    import transformers as t

    config = t.Dinov2Config(
        hidden_size=448, num_hidden_layers=layers, num_attention_heads=7, mlp_ratio=4, image_size=210, patch_size=14
    )
    return Picked(t.Dinov2Model(config), ("pixel_values",), "last_hidden_state"), (torch.randn(5, 3, 210, 210),)


def _segformer(depth: int) -> Made:
    import transformers as t

    config = t.SegformerConfig(
        depths=[depth] * 4, hidden_sizes=[40, 80, 200, 320], decoder_hidden_size=160, num_labels=19,
        num_attention_heads=[1, 2, 5, 8],
    )  # fmt: skip
    return Picked(t.SegformerForSemanticSegmentation(config), ("pixel_values",), "logits"), (image(3, 256),)


def _timm(name: str, batch: int, size: int, depth: int, **more: Any) -> Made:
    """A model of timm; `more` may hold functions of the depth."""
    return timm_model(name, batch, size, **{k: v(depth) if callable(v) else v for k, v in more.items()})


BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
MODELS: Mapping[str, Other] = {
    "roberta_448_s77_b5": Other(BF16, 6, _roberta),
    "modernbert_640_s384_b3": Other(BF16, 6, _modernbert),
    "deberta_v2_320_s154_b3": Other(F16, 4, _deberta),
    "t5_encoder_448_s96_b5_f32": Other(F32, 6, _t5),
    "qwen3_896_prefill_s384": Other(BF16, 6, lambda n: _prefill(_qwen3(n), 1, 384)),
    "qwen3_896_decode": Other(BF16, 6, lambda n: _step(_qwen3(n), 1, 640)),
    "llama_960_decode_b3": Other(F16, 6, lambda n: _step(_llama(n), 3, 448)),
    "gemma3_640_prefill_s197_b2": Other(BF16, 6, lambda n: _prefill(_gemma3(n), 2, 197)),
    "qwen3_moe_704_prefill_s320": Other(BF16, 4, lambda n: _prefill(_experts(n), 1, 320)),
    "mamba2_320_s192_b3": Other(BF16, 4, _mamba),
    "wav2vec2_448_b3": Other(BF16, 6, _wav2vec),
    "spectrogram_320_b5": Other(F16, 6, _spectrogram),
    "dinov2_448_210px_b5": Other(BF16, 6, _dino),
    "segformer_320_256px_b3": Other(F16, 2, _segformer, images=True),
    "swin_80_256px_b3": Other(
        BF16, 2, partial(_timm, "swin_tiny_patch4_window7_224", 3, 256, img_size=256, window_size=8, embed_dim=80,
        num_heads=(2, 5, 10, 20), depths=lambda n: (n, n, 2 * n, n)), images=True
    ),
    "convnextv2_320_160px_b5": Other(
        BF16, 2, partial(_timm, "convnextv2_atto", 5, 160, depths=lambda n: (n, n, 3 * n, n)), images=True
    ),
    "efficientnet_288px_b3": Other(F16, 1, partial(_timm, "efficientnet_b0", 3, 288), images=True),
    "mobilevitv2_256px_b3": Other(F16, 1, partial(_timm, "mobilevitv2_100", 3, 256), images=True),
    "resnext26_160px_b5_f32": Other(F32, 1, partial(_timm, "resnext26ts", 5, 160), images=True),
}  # fmt: skip


def names() -> tuple[str, ...]:
    """Every model."""
    return tuple(MODELS)


def build(name: str, device: str = "cuda", dtype: torch.dtype | None = None, depth: int | None = None) -> Case:
    """The model called `name` on `device`, the same in every process. dtype, depth: instead of the model's own.

    Raises KeyError for a name that is not in names(), ModuleNotFoundError where transformers or timm is missing.
    """
    found = MODELS[name]
    wanted = dtype or found.dtype
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float32 if found.images else wanted)  # others keep some buffers in float32
        module, args = found.make(depth or found.depth)
    finally:
        torch.set_default_dtype(before)
    if found.images:
        module = settled(module, args).to(wanted, memory_format=torch.channels_last)
        args = tuple(a.to(wanted, memory_format=torch.channels_last) for a in args)
    return Case(name, module.eval().requires_grad_(False).to(device), tuple(a.to(device) for a in args))


def build_any(name: str) -> Case:
    """A model of this set or of bench.gpu_models, on the GPU."""
    return build(name) if name in MODELS else gpu_models.build(name)
