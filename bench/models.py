"""The models of the benchmark by name: architectures with random weights from a fixed seed, and trained ones.

Every model is made in eval mode and float32, with inputs of fixed size.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from bench import language, others, trained, vision

os.environ.setdefault("HF_HUB_OFFLINE", "1")
_CACHED = 128  # rows of keys and values before a decoding step


@dataclass(frozen=True)
class Case:
    """A module and the inputs that it is timed on. dtype: what it is to be computed in, whatever it is made of; int8:
    what each system's own tool quantises of it."""

    name: str
    module: nn.Module
    args: tuple[Tensor, ...]
    dtype: torch.dtype = torch.float32

    @property
    def int8(self) -> bool:
        return self.dtype is torch.int8

    @property
    def module_dtype(self) -> str:
        """That of its parameters in floating point, "float32" if it has none."""
        dtypes = (p.dtype for p in self.module.parameters() if p.is_floating_point())
        return str(next(dtypes, torch.float32)).removeprefix("torch.")

    @property
    def has_attention(self) -> bool:
        """Whether a module of it is called attention."""
        return any("attention" in type(m).__name__.lower() for m in self.module.modules())

    def cast(self) -> Case:
        """The same with parameters, buffers and inputs of the dtype; the module is changed in place. One of int8 stays
        as it is."""
        if self.int8:
            return self
        args = (a.to(self.dtype) if a.is_floating_point() else a for a in self.args)
        return replace(self, module=self.module.to(self.dtype), args=tuple(args))


class DLRM(nn.Module):
    """Recommendation (Naumov et al. 2019): dense (B, 13), indices (B, 26) int64 -> probability (B, 1)."""

    def __init__(self, tables: int = 26, rows: int = 100_000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = perceptron(13, 512, 256, width, last=nn.ReLU())
        n = tables + 1
        self.top = perceptron(width + n * (n - 1) // 2, 512, 256, 1, last=nn.Sigmoid())
        i, j = torch.tril_indices(n, n, -1)
        self.register_buffer("pairs", i * n + j)

    def forward(self, dense: Tensor, indices: Tensor) -> Tensor:
        x = self.bottom(dense)
        rows = torch.stack([x, *(table(indices[:, k]) for k, table in enumerate(self.tables))], 1)
        products = torch.bmm(rows, rows.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([x, products.index_select(1, self.pairs)], 1))


class LayerNormGelu(nn.Module):
    """(N, 1024) -> (N, 1024)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(1024)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(self.norm(x))


def perceptron(*widths: int, last: nn.Module | None = None) -> nn.Sequential:
    """Linear layers with ReLU between them, and `last` behind the last."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *([] if last is None else [last]))


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def integers(below: int, *shape: int) -> Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(2))


def text(length: int) -> tuple[Tensor, ...]:
    return integers(30522, 1, length), torch.ones(1, length, dtype=torch.int64)


def step(vocabulary: int, layers: int, heads: int) -> tuple[Tensor, ...]:
    cache = normal(layers, 1, heads, _CACHED, 64)
    return integers(vocabulary, 1, 1), torch.tensor([[_CACHED]]), cache, cache.flip(3).contiguous()


Builder = Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]
ARCHITECTURES: Mapping[str, Builder] = {
    "resnet50": lambda: (vision.ResNet50(), (normal(1, 3, 224, 224),)),
    "mobilenet_v2": lambda: (vision.MobileNetV2(), (normal(1, 3, 224, 224),)),
    "convnext_tiny": lambda: (language.convnext_tiny(), (normal(1, 3, 224, 224),)),
    "vit_b16": lambda: (language.vit_b16(), (normal(1, 3, 224, 224),)),
    "unet": lambda: (vision.UNet(), (normal(1, 4, 64, 64), torch.tensor([500.0]))),
    "bert_base_s128": lambda: (language.bert_base(), text(128)),
    "minilm_s128": lambda: (language.minilm(), text(128)),
    "minilm_s16": lambda: (language.minilm(), text(16)),
    "gpt2_prefill": lambda: (language.Prefill(language.gpt2()), (integers(50257, 1, 128),)),
    "gpt2_decode": lambda: (language.Decode(language.gpt2(), 12), step(50257, 12, 12)),
    "llama_prefill": lambda: (language.Prefill(language.llama()), (integers(32000, 1, 128),)),
    "llama_decode": lambda: (language.Decode(language.llama(), 8), step(32000, 8, 4)),
    "whisper_encoder": lambda: (language.whisper_tiny_encoder(), (normal(1, 80, 3000),)),
    "dlrm_b128": lambda: (DLRM(), (normal(128, 13), integers(100_000, 128, 26))),
    "mlp_b1": lambda: (perceptron(784, 512, 512, 10), (normal(1, 784),)),
    "mlp_b64": lambda: (perceptron(784, 512, 512, 10), (normal(64, 784),)),
    "layernorm_gelu": lambda: (LayerNormGelu(), (normal(4096, 1024),)),
    "gemm_1024": lambda: (nn.Linear(1024, 1024), (normal(1024, 1024),)),
    "gemm_128x3072x768": lambda: (nn.Linear(768, 3072), (normal(128, 768),)),
    "softmax": lambda: (nn.Softmax(-1), (normal(4096, 1024),)),
}


def names() -> tuple[str, ...]:
    """The benchmark's own models, the trained ones first."""
    return (*trained.NAMES, *ARCHITECTURES)


def int8_names() -> tuple[str, ...]:
    """Those of both sets that are timed in int8: convolutions, vision transformers, encoders, perceptrons."""
    return (
        "efficientnet_lite0", "resnet50", "mobilenet_v2", "vit_b16", "bert_base_s128", "minilm_s128", "mlp_b64",
        "resnet_48_192px_b3", "regnet_176px_b3", "mobilenetv3_208px", "vit_320_208px_b3", "encoder_320_s77",
        "bert_576_s77_b5",
    )  # fmt: skip


def other_names() -> tuple[str, ...]:
    """The models that no heuristic was made on."""
    return tuple(others.MODELS)


def build(name: str, dtype: torch.dtype = torch.float32) -> Case:
    """The model called `name`, of either set, the same in every process, to be computed in `dtype`.

    Raises KeyError for an unknown name.
    """
    torch.manual_seed(0)
    if name in trained.NAMES:
        module, args = trained.build(name)
    elif name in others.MODELS:
        module, args = others.build(name)
    else:
        module, args = ARCHITECTURES[name]()
    return Case(name, module.eval().requires_grad_(False), args, dtype)
