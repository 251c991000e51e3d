"""Which products stay f32 in models of transformers and timm: routers, positions and coordinates, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hardtack.codegen.ir.graph_ops import is_view
from tests.export.checks import Called, eager, entry, ours
from tests.export.narrowing import narrow
from tests.models.small_transformers import SIZES, VOCABULARY, Picked
from tests.models.stubs import imported_timm

transformers = pytest.importorskip("transformers")

"""What timm imports and does not use here; PIL, too."""
Made = tuple[nn.Module, tuple[torch.Tensor, ...]]
GATES = ("inner.model.layers.0.mlp.gate", "inner.model.layers.1.mlp.gate")
FEW, DECIDES = "fewer than 8 terms", "its order or whole part decides what is read"


def _text(kind: str, output: str = "last_hidden_state", **more: Any) -> Made:
    """A model of tokens by the name of its class; what it needs beside the usual sizes."""
    t = transformers
    config = getattr(t, f"{kind.removesuffix('ForCausalLM').removesuffix('Model').removesuffix('Encoder')}Config")
    given = {**({} if "d_model" in more else SIZES), **more}
    names = {"use_cache": False} if output == "logits" else {}
    model = getattr(t, kind)(config(vocab_size=VOCABULARY, **given))
    return Picked(model, ("input_ids",), output, **names).eval(), (torch.randint(1, VOCABULARY - 1, (2, 8)),)


def _decoder(kind: str, **more: Any) -> Made:
    return _text(f"{kind}ForCausalLM", "logits", **more)


def _dinov3() -> Made:
    t = transformers
    inner = t.DINOv3ViTModel(t.DINOv3ViTConfig(image_size=32, patch_size=8, **SIZES))
    return Picked(inner, ("pixel_values",), "last_hidden_state").eval(), (torch.randn(2, 3, 32, 32),)


def _sam_prompts() -> Made:
    """Points as sums over two coordinates, which become angles."""
    t = transformers
    sizes = {"hidden_size": 32, "image_size": 64, "patch_size": 8}
    decoder = {"hidden_size": 32, "mlp_dim": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = {**sizes, "num_hidden_layers": 1, "num_attention_heads": 2, "output_channels": 32, "num_pos_feats": 16}
    config = t.SamConfig(
        vision_config={**vision, "window_size": 2, "global_attn_indexes": [0], "mlp_dim": 64},
        prompt_encoder_config={**sizes, "image_embedding_size": 8},
        mask_decoder_config={**decoder, "iou_head_hidden_dim": 32},
    )
    encoder = t.SamModel(config).eval().prompt_encoder
    points = (torch.rand(1, 1, 2, 2) * 64, torch.ones(1, 1, 2, dtype=torch.int64))
    return Called(lambda p, labels: encoder(p, labels, None, None)[0]).eval(), points


def _timm(name: str, size: int = 64, **more: Any) -> Made:
    return imported_timm().create_model(name, pretrained=False, **more).eval(), (torch.randn(1, 3, size, size),)


def _codebook() -> Made:
    t = transformers
    size = {"hidden_size": 16, "codebook_size": 32, "codebook_dim": 16}
    quantizer = t.EncodecModel(t.EncodecConfig(num_filters=8, upsampling_ratios=[4, 2], **size)).quantizer
    inner = quantizer.layers[0].codebook
    with torch.no_grad():
        inner.embed.normal_()
    return Called(lambda x: inner.decode(inner.quantize(x))).eval(), (torch.randn(5, 16),)


MODELS: dict[str, tuple[Callable[[], Made], int, dict[str, str]]] = {
    "mixtral": (
        lambda: _decoder("Mixtral", num_local_experts=4, num_key_value_heads=2),
        15,
        dict.fromkeys(GATES, DECIDES),
    ),
    "qwen3": (lambda: _decoder("Qwen3", num_key_value_heads=2, head_dim=16), 17, {}),
    "gpt_neox": (lambda: _decoder("GPTNeoX"), 11, {}),
    "gemma2": (lambda: _decoder("Gemma2", num_key_value_heads=2, head_dim=16), 19, {}),
    "mamba": (
        lambda: _decoder("Mamba", state_size=8, hidden_size=64, num_hidden_layers=2, d_model=None),
        23,
        {f"inner.backbone.layers.{k}.mixer": FEW for k in (0, 1)},
    ),
    "t5": (lambda: _text("T5EncoderModel", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4), 14, {}),
    "deberta": (
        lambda: _text("DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8),
        20,
        {},
    ),
    "dinov3": (_dinov3, 15, {}),
    "sam_prompts": (_sam_prompts, 0, {"": FEW}),
    "codebook": (_codebook, 0, {"": DECIDES}),
    "resnet18": (lambda: _timm("resnet18"), 21, {}),
    "mobilenetv3": (lambda: _timm("mobilenetv3_small_050"), 54, {}),
    "eva": (lambda: _timm("eva02_tiny_patch14_224", 28, img_size=28), 61, {}),
}
"""The model, how many of its products take 16 bits, and the modules of the others with the reason."""


LARGE = ("mobilenetv3", "eva")
"""Of which nothing is kept, as of the two models before them; they take the longest."""
RARE = pytest.mark.sweep(only=True)


@pytest.mark.parametrize("name", [pytest.param(n, marks=RARE) if n in LARGE else n for n in MODELS])
def test_what_stays_f32(name: str) -> None:
    make, count, kept = MODELS[name]
    torch.manual_seed(0)
    module, args = make()
    made, report = narrow(module, args)
    assert {k.module: k.reason for k in report.kept} == kept
    assert report.num_narrowed == count
    graph = entry(made).graph
    halves = {op.kind for op in graph.ops if not is_view(op) and any(graph.types[o].dtype.is_half for o in op.outputs)}
    assert halves <= {"cast"}
    want = eager(module, args)
    for g, w in zip(ours(made, args), want, strict=True):
        assert float((g - w).norm() / w.norm()) < 2e-2
