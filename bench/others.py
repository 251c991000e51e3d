"""Models of the CPU benchmark that no heuristic was made on: the families of bench.models in sizes of nobody.

Widths such as 320, 448 and 896, lengths such as 77 and 384, batches of 3 and 5; random weights from a fixed seed.
No product and no convolution has the sizes of one in bench.models, which a test proves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench import language, vision
from bench.makers import VOCABULARY, Made, causal, encoder, image, settled, sizes_of, timm_model, token_ids
from tests.models.small_transformers import Picked

_PAST = 200  # rows of keys and values before a decoding step


class CrossNetwork(nn.Module):
    """Recommendation by crosses of features (Wang et al. 2020): dense (B, 11), indices (B, 18) int64 -> (B, 1)."""

    def __init__(self, tables: int = 18, rows: int = 30_000, width: int = 24, crosses: int = 3) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        features = 11 + tables * width
        self.crosses = nn.ModuleList(nn.Linear(features, features) for _ in range(crosses))
        self.deep = perceptron(features, 576, 288)
        self.last = nn.Linear(features + 288, 1)

    def forward(self, dense: Tensor, indices: Tensor) -> Tensor:
        first = torch.cat([dense, *(table(indices[:, k]) for k, table in enumerate(self.tables))], 1)
        x = first
        for cross in self.crosses:
            x = first * cross(x) + x
        return torch.sigmoid(self.last(torch.cat([x, torch.relu(self.deep(first))], 1)))


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers with GELU between them."""
    layers: list[nn.Module] = []
    for k, inputs in enumerate(widths[:-1]):
        layers += [nn.Linear(inputs, widths[k + 1]), nn.GELU()]
    return nn.Sequential(*layers[:-1])


def _classifier(model: str, config: str, batch: int, size: int, **sizes: Any) -> Made:
    """A classifier of images from transformers."""
    return language.Logits(causal(model, config, {**sizes, "num_labels": 600})), (image(batch, size),)


def _decode(inner: Any, past: int) -> Made:
    """A step of one row with the cache as an input, as language.Decode has it."""
    config = inner.config
    layers = config.num_hidden_layers
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    keys, values = (torch.randn(layers, 1, heads, past, head) for _ in range(2))
    return language.Decode(inner, layers), (token_ids(1, 1), torch.tensor([[past]]), keys, values)


def _prefill(inner: nn.Module, length: int) -> Made:
    """Logits of the last token."""
    return Picked(inner, ("input_ids",), "logits", use_cache=False, logits_to_keep=1), (token_ids(1, length),)


def _qwen3() -> Any:
    sizes = sizes_of(896, 6, 2432, num_key_value_heads=2, head_dim=64, max_position_embeddings=1024)
    return causal("Qwen3ForCausalLM", "Qwen3Config", sizes)


def _neox() -> Any:
    sizes = sizes_of(640, 6, 2560, max_position_embeddings=512)
    return causal("GPTNeoXForCausalLM", "GPTNeoXConfig", sizes)


def _t5() -> Made:
    sizes = {"d_model": 448, "d_kv": 56, "num_heads": 8, "d_ff": 1152, "num_layers": 5, "vocab_size": VOCABULARY}
    return encoder("T5EncoderModel", "T5Config", sizes | {"feed_forward_proj": "gated-gelu"}, 5, 77)


def _whisper() -> Made:
    import transformers as t
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = t.WhisperConfig(
        d_model=320, encoder_layers=5, encoder_attention_heads=5, encoder_ffn_dim=1280, num_mel_bins=112,
        max_source_positions=700, vocab_size=VOCABULARY,
    )  # fmt: skip
    return language.Hidden(WhisperEncoder(config)), (torch.randn(1, 112, 1400),)


def _wav2vec() -> Made:
    sizes = {"hidden_size": 320, "num_attention_heads": 5, "intermediate_size": 1280, "num_hidden_layers": 4}
    sizes |= {"conv_dim": (224,) * 7, "num_conv_pos_embeddings": 48, "num_conv_pos_embedding_groups": 10}
    model = causal("Wav2Vec2Model", "Wav2Vec2Config", sizes | {"vocab_size": 40, "feat_extract_norm": "layer"})
    return language.Hidden(model), (torch.randn(1, 20000),)


def _bert(width: int, layers: int, batch: int, length: int) -> Made:
    sizes = sizes_of(width, layers, 4 * width, max_position_embeddings=512)
    return encoder("BertModel", "BertConfig", sizes, batch, length, add_pooling_layer=False)


def _modernbert() -> Made:
    sizes = sizes_of(576, 4, 896, max_position_embeddings=512, local_attention=128, cls_token_id=1, sep_token_id=2)
    module, (ids, mask) = encoder("ModernBertModel", "ModernBertConfig", sizes, 1, 384)
    return module, (ids, torch.ones_like(mask))  # a window of masked keys only has no answer to compare


def _recsys() -> Made:
    return CrossNetwork(), (torch.randn(77, 11), torch.randint(0, 30_000, (77, 18)))


Builder = Callable[[], Made]
MODELS: Mapping[str, Builder] = {
    "mlp_900_b5": lambda: (perceptron(700, 900, 350, 17), (torch.randn(5, 700),)),
    "mlp_900_b77": lambda: (perceptron(700, 900, 350, 17), (torch.randn(77, 700),)),
    "resnet_48_192px_b3": partial(
        _classifier, "ResNetForImageClassification", "ResNetConfig", 3, 192, embedding_size=48,
        hidden_sizes=[176, 336, 656, 1328], depths=[2, 2, 3, 2],
    ),
    "regnet_176px_b3": partial(timm_model, "regnetx_004", 3, 176, num_classes=600),
    "mobilenetv3_208px": partial(timm_model, "mobilenetv3_large_075", 1, 208, num_classes=600),
    "efficientnetv2_192px_b3": partial(timm_model, "tf_efficientnetv2_b0", 3, 192, num_classes=600),
    "mobilevitv2_192px": partial(timm_model, "mobilevitv2_075", 1, 192, num_classes=600),
    "convnext_80_208px": partial(
        _classifier, "ConvNextForImageClassification", "ConvNextConfig", 1, 208, hidden_sizes=[80, 160, 320, 640],
        depths=[2, 2, 6, 2],
    ),
    "vit_320_208px_b3": partial(
        _classifier, "ViTForImageClassification", "ViTConfig", 3, 208, hidden_size=320, num_hidden_layers=8,
        num_attention_heads=5, intermediate_size=1280, image_size=208,
    ),
    "swin_80_256px": partial(
        timm_model, "swin_tiny_patch4_window7_224", 1, 256, img_size=256, window_size=8, embed_dim=80,
        num_heads=(2, 5, 10, 20), depths=(2, 2, 4, 2), num_classes=600,
    ),
    "unet_160_48px": lambda: (vision.UNet(160, (1, 2), 1), (torch.randn(1, 4, 48, 40), torch.tensor([77.0]))),
    "bert_576_s77_b5": lambda: _bert(576, 8, 5, 77),
    "encoder_320_s77": lambda: _bert(320, 6, 1, 77),
    "encoder_320_s384": lambda: _bert(320, 6, 1, 384),
    "modernbert_576_s384": _modernbert,
    "t5_encoder_448_s77_b5": _t5,
    "qwen3_896_prefill_s77": lambda: _prefill(_qwen3(), 77),
    "qwen3_896_decode": lambda: _decode(_qwen3(), _PAST),
    "neox_640_prefill_s384": lambda: _prefill(_neox(), 384),
    "neox_640_decode": lambda: _decode(_neox(), _PAST),
    "whisper_320": _whisper,
    "wav2vec2_320": _wav2vec,
    "cross_network_b77": _recsys,
}  # fmt: skip


def build(name: str) -> Made:
    """The model called `name` and its inputs; KeyError for a name that is not in MODELS.

    Raises ModuleNotFoundError where transformers or timm is missing.
    """
    module, args = MODELS[name]()
    normed = any(isinstance(m, nn.BatchNorm2d) for m in module.modules())
    return settled(module, args) if normed else module, args
