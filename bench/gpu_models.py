"""The models of the GPU benchmark by name: weights from a fixed seed, eval mode, inputs of fixed size. bfloat16, and
float32 where the name ends with _f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import language, vision
from bench.models import Case, perceptron

ROWS, COLUMNS = 16384, 8192
"""The matrix of the memory-bound rows: 256 MiB in bfloat16, more than any cache holds."""
CACHED = 1024
"""Rows of the decoders' static caches."""


class ResidualNormGelu(nn.Module):
    """x, residual (N, D) -> gelu(layer_norm(x + residual)), x + residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        return F.gelu(self.norm(total)), total


class RMSNormSwiGLU(nn.Module):
    """x, gate, residual (N, D) -> rms_norm(x + residual) * silu(gate), x + residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, gate: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        return rms_norm(total, self.weight, 1e-6) * F.silu(gate), total


class ScaledSoftmax(nn.Module):
    """(N, D) -> (N, D), computed in float32."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x.float() * 0.125, -1).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) in float32, rounded, times weight."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary position embedding (Su et al. 2021) of x (B, heads, T, D); cosine and sine (T, D / 2)."""
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1).to(x.dtype)


class DecoderLayer(nn.Module):
    """A layer of Llama 3 with joined projections; its keys and values are buffers that a run updates."""

    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int, cached: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        self.norm_attention, self.norm_hidden = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.qkv = nn.Linear(width, width + 2 * kv_heads * self.head, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, kv_heads, cached, self.head))
        self.register_buffer("values", torch.zeros(1, kv_heads, cached, self.head))

    def forward(self, x: Tensor, position: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        batch, steps, _ = x.shape
        widths = [self.heads * self.head, self.kv_heads * self.head, self.kv_heads * self.head]
        parts = self.qkv(rms_norm(x, self.norm_attention, 1e-5)).split(widths, -1)
        q, k, v = (p.view(batch, steps, -1, self.head).transpose(1, 2) for p in parts)
        self.keys.index_copy_(2, position, rotated(k, cosine, sine))
        self.values.index_copy_(2, position, v)
        mixed = F.scaled_dot_product_attention(
            rotated(q, cosine, sine), self.keys, self.values, attn_mask=mask, enable_gqa=True
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, steps, -1))
        gate, up = self.gate_up(rms_norm(x, self.norm_hidden, 1e-5)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    """tokens (1, T), position (T,) int64 -> logits of the last token (1, 1, vocabulary)."""

    def __init__(
        self, width: int = 2048, layers: int = 16, heads: int = 32, kv_heads: int = 8, hidden: int = 8192,
        vocabulary: int = 128256, cached: int = CACHED,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, kv_heads, hidden, cached) for _ in range(layers))
        self.norm = nn.Parameter(torch.ones(width))
        self.head = nn.Linear(width, vocabulary, bias=False)
        half = width // heads // 2
        steps = torch.arange(half, dtype=torch.float32) / half
        angles = torch.outer(torch.arange(cached, dtype=torch.float32), torch.exp(steps * -math.log(500000.0)))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())
        self.register_buffer("places", torch.arange(cached))

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        x = self.embedding(tokens)
        cosine, sine = self.cosine[position], self.sine[position]
        mask = self.places[None, :] <= position[:, None]
        for layer in self.layers:
            x = layer(x, position, cosine, sine, mask)
        return self.head(rms_norm(x[:, -1:], self.norm, 1e-5))


Made = tuple[nn.Module, tuple[Tensor, ...]]


def _matrix() -> Tensor:
    return torch.randn(ROWS, COLUMNS)


def _image(batch: int) -> tuple[Tensor]:
    return (torch.randn(batch, 3, 224, 224),)


def _tokens(batch: int, steps: int) -> Tensor:
    return torch.randint(0, 30000, (batch, steps))


def _mlp(batch: int) -> Made:
    return perceptron(784, 512, 512, 10), (torch.randn(batch, 784),)


def _bert(batch: int) -> Made:
    return language.bert_base(), (_tokens(batch, 128), torch.ones(batch, 128, dtype=torch.int64))


def _decode(**sizes: int) -> Made:
    return Decoder(**sizes), (_tokens(1, 1), torch.tensor([CACHED // 2]))


def _prefill() -> Made:
    return Decoder(), (_tokens(1, 512), torch.arange(512))


_8B = {"width": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "hidden": 14336}
MODELS: Mapping[str, Callable[[], Made]] = {
    "mlp_b1": partial(_mlp, 1),
    "mlp_b64": partial(_mlp, 64),
    "ln_gelu": lambda: (ResidualNormGelu(COLUMNS), (_matrix(), _matrix())),
    "rms_swiglu": lambda: (RMSNormSwiGLU(COLUMNS), (_matrix(), _matrix(), _matrix())),
    "softmax": lambda: (ScaledSoftmax(), (_matrix(),)),
    "llama1b_decode": _decode,
    "llama8b_decode": partial(_decode, **_8B),
    "llama1b_prefill512": _prefill,
    "bert_base_s128_b1": partial(_bert, 1),
    "bert_base_s128_b32": partial(_bert, 32),
    "vit_b16_b1": lambda: (language.vit_b16(), _image(1)),
    "vit_b16_b32": lambda: (language.vit_b16(), _image(32)),
    "resnet50_b1": lambda: (vision.ResNet50(), _image(1)),
    "resnet50_b32": lambda: (vision.ResNet50(), _image(32)),
    "convnext_tiny_b1": lambda: (language.convnext_tiny(), _image(1)),
    "unet_b2": lambda: (vision.UNet(128), (torch.randn(2, 4, 64, 64), torch.tensor([500.0, 20.0]))),
    "whisper_tiny_encoder": lambda: (language.whisper_tiny_encoder(), (torch.randn(1, 80, 3000),)),
    "bert_base_s128_b1_f32": partial(_bert, 1),
    "bert_base_s128_b32_f32": partial(_bert, 32),
    "vit_b16_b32_f32": lambda: (language.vit_b16(), _image(32)),
    "resnet50_b32_f32": lambda: (vision.ResNet50(), _image(32)),
}
_CHANNELS_LAST = frozenset({"resnet50_b1", "resnet50_b32", "convnext_tiny_b1", "unet_b2", "resnet50_b32_f32"})


def names() -> tuple[str, ...]:
    """Every model."""
    return tuple(MODELS)


def build(name: str, device: str = "cuda", dtype: torch.dtype | None = None) -> Case:
    """The model called `name` on `device`, the same in every process. dtype: instead of the one that the name says.

    Images are channels-last, as the peers like them best. Raises KeyError for a name that is not in names().
    """
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    named = torch.float32 if name.endswith("_f32") else torch.bfloat16
    try:
        torch.set_default_dtype(dtype or named)  # made where they are used: 8 billion weights are slow to draw on a CPU
        with torch.device(device):
            module, args = MODELS[name]()
    finally:
        torch.set_default_dtype(before)
    module = module.eval().requires_grad_(False)
    if name in _CHANNELS_LAST:
        module = module.to(memory_format=torch.channels_last)
        args = tuple(a.contiguous(memory_format=torch.channels_last) if a.dim() == 4 else a for a in args)
    return Case(name, module, args)
