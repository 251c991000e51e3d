"""Models of transformers, one of each class, in small sizes: the batch varies, and the length where there is one.

Experts are multiplied as one batch: the loop over them that transformers has by default is a custom op when captured.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from tests.coverage.cases import Case, Made
from tests.coverage.small_configs import small_config, words

Changes = Mapping[str, Any]
_NONE: Changes = {}
_LATENT: Changes = {"num_key_value_heads": 4}  # of latent attention each head has its own keys
_STAGES: Changes = {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1]}
_WINDOWS: Changes = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "patch_size": 4}
_PYRAMID: Changes = {**_STAGES, "num_attention_heads": [1, 2, 2, 2], "image_size": 64}

DECODERS: dict[str, Changes] = {
    **dict.fromkeys(
        words(
            "apertus arcee bart biogpt bitnet bloom codegen cohere cohere2 ctrl diffllama doge dots1 ernie4_5 "
            "ernie4_5_moe exaone4 falcon falcon_mamba gemma gemma2 gemma3_text gemma3n_text glm glm4 gpt2 gpt_bigcode "
            "gpt_neo gpt_neox gpt_oss gptj granite granitemoe granitemoehybrid helium hunyuan_v1_dense lfm2 llama "
            "llama4_text mamba mistral mixtral modernbert-decoder mpt nanochat nemotron olmo olmo2 olmo3 olmoe "
            "openai-gpt opt persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next recurrent_gemma "
            "rwkv seed_oss smollm3 stablelm starcoder2 xglm jetmoe bamba"
        ),
        _NONE,
    ),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "minicpm3"), _LATENT),
}
"""Type -> what its configuration has beside the small sizes. Their logits, of ids (batch, length)."""

ENCODERS: dict[str, Changes] = {
    **dict.fromkeys(
        words(
            "albert bert convbert deberta deberta-v2 distilbert electra ernie esm fnet ibert megatron-bert mobilebert "
            "modernbert mpnet nomic_bert nystromformer rembert roberta roformer splinter squeezebert xlm-roberta"
        ),
        _NONE,
    ),
}
"""Their last hidden state, of ids (batch, length)."""

PAIRS = ("m2m_100", "mt5", "pegasus", "t5", "umt5")
"""An encoder and a decoder: the last hidden state of ids (batch, length) for ids (batch, 5)."""

PICTURES: dict[str, Changes] = {
    **dict.fromkeys(("beit", "clip_vision_model", "data2vec-vision", "deit", "dinov2", "dinov2_with_registers"), _NONE),
    **dict.fromkeys(("dinov3_vit", "dpt", "ijepa", "mobilenet_v1", "mobilenet_v2", "sam_vision_model"), _NONE),
    **dict.fromkeys(("siglip_vision_model", "vit", "vit_msn", "vitdet", "yolos"), _NONE),
    "mobilevit": {"image_size": 64},
    "bit": {"embedding_size": 16, "hidden_sizes": [32] * 4, "depths": [1] * 4, "num_groups": 8},
    "convnext": {**_STAGES, "image_size": 64},
    "convnextv2": {**_STAGES, "image_size": 64},
    "dinov3_convnext": _STAGES,
    "donut-swin": _WINDOWS,
    "focalnet": {
        "embed_dim": 16,
        "hidden_sizes": [16, 32],
        "depths": [1, 1],
        "focal_levels": [2, 2],
        "focal_windows": [3, 3],
    },
    "glpn": _PYRAMID,
    "mobilevitv2": {"image_size": 64, "patch_size": 2, "width_multiplier": 0.5},
    "poolformer": _STAGES,
    "pvt": {**_PYRAMID, "patch_sizes": [4, 2, 2, 2]},
    "pvt_v2": _PYRAMID,
    "regnet": {**_STAGES, "embedding_size": 16, "groups_width": 8},
    "resnet": {**_STAGES, "embedding_size": 16},
    "segformer": _PYRAMID,
    "swiftformer": {"embed_dims": [16, 32, 32, 64], "depths": [1, 1, 1, 1], "image_size": 64},
    "swin": _WINDOWS,
    "swinv2": _WINDOWS,
}
"""Their last hidden state, of pictures (batch, 3, size, size); size: image_size, 32 without."""

VOICES = ("data2vec-audio", "hubert", "sew", "unispeech", "wav2vec2", "wav2vec2-conformer", "wavlm")
"""Their last hidden state, of samples (batch, 4000)."""

_DIM = Dim.DYNAMIC


class Field(nn.Module):
    """One field of what a model gives; the inputs by position."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], field: str, **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.field, self.fixed = model, names, field, fixed

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        given = dict(zip(self.names, (x, y), strict=False))
        found: Tensor = getattr(self.model(**given, **self.fixed), self.field)
        return found


def cases() -> Iterator[Case]:
    import transformers.modeling_utils  # noqa: F401  # here, and not in each of the processes that begin as this one

    for kinds, make in (
        (DECODERS, _decoder),
        (ENCODERS, _encoder),
        (dict.fromkeys(PAIRS, _NONE), _pair),
        (PICTURES, _pictures),
        (dict.fromkeys(VOICES, _NONE), _voice),
    ):
        for kind, changes in kinds.items():
            yield Case("transformers", kind, functools.partial(make, kind, changes), whole=True)


def _decoder(kind: str, changes: Changes) -> Made:
    import transformers as t

    module = Field(_model(t.AutoModelForCausalLM, kind, changes), ("input_ids",), "logits", use_cache=False)
    return _of_ids(module)


def _encoder(kind: str, changes: Changes) -> Made:
    import transformers as t

    return _of_ids(Field(_model(t.AutoModel, kind, changes), ("input_ids",), "last_hidden_state"))


def _of_ids(module: nn.Module) -> Made:
    calls = [(_ids(*shape),) for shape in ((1, 1), (3, 13))]
    return Made(module.eval(), (_ids(2, 8),), {}, ({0: _DIM, 1: _DIM},), calls)


def _pair(kind: str, changes: Changes) -> Made:
    import transformers as t

    names = ("input_ids", "decoder_input_ids")
    module = Field(_model(t.AutoModel, kind, changes), names, "last_hidden_state", use_cache=False)
    calls = [(_ids(n, length), _ids(n, 5)) for n, length in ((1, 2), (3, 13))]
    return Made(module.eval(), (_ids(2, 8), _ids(2, 5)), {}, ({0: _DIM, 1: _DIM}, {0: _DIM}), calls)


def _pictures(kind: str, changes: Changes) -> Made:
    import transformers as t

    size = changes.get("image_size", 32)
    module = Field(_model(t.AutoModel, kind, changes), ("pixel_values",), "last_hidden_state")
    return _of_batches(module, 3, size, size)


def _voice(kind: str, changes: Changes) -> Made:
    import transformers as t

    return _of_batches(Field(_model(t.AutoModel, kind, changes), ("input_values",), "last_hidden_state"), 4000)


def _of_batches(module: nn.Module, *shape: int) -> Made:
    drawn = torch.Generator().manual_seed(1)
    first, *others = ((torch.randn(n, *shape, generator=drawn),) for n in (2, 1, 3))
    return Made(module.eval(), first, {}, ({0: _DIM},), others)


def _model(auto: Any, kind: str, changes: Changes) -> nn.Module:
    """With weights that are drawn, those of one dimension, too, which transformers fills with zeros and ones."""
    torch.manual_seed(0)
    model: nn.Module = auto.from_config(small_config(kind, **changes)).eval()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("batched_mm")
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p += 0.1 * torch.randn_like(p)
    return model


def _ids(batch: int, length: int) -> Tensor:
    return torch.randint(3, 100, (batch, length), generator=torch.Generator().manual_seed(batch * length))
