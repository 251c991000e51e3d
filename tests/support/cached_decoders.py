"""Decoders with caches of keys and values in buffers, and what they compute when these are stored as codes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Stored = Callable[[torch.Tensor], torch.Tensor]
CODES = {"int8": (torch.int8, 127.0), "fp8": (torch.float8_e4m3fn, 448.0)}
"""Options.cache -> the dtype of codes, and the one that the largest element of a row becomes."""


def quantised(x: torch.Tensor, word: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of rows along the last dimension, and their scales."""
    dtype, largest = CODES[word]
    scale = x.float().abs().amax(-1, keepdim=True) / largest
    wide = x.float() / torch.where(scale == 0, torch.ones_like(scale), scale)
    return (wide.round() if dtype is torch.int8 else wide).clamp(-largest, largest).to(dtype), scale


def stored_as(word: str) -> Stored:
    """What is read of what is written to a cache that is stored so."""

    def stored(x: torch.Tensor) -> torch.Tensor:
        codes, scale = quantised(x, word)
        return (codes.float() * scale).to(x.dtype)

    return stored


def as_given(x: torch.Tensor) -> torch.Tensor:
    """What a cache reads as that keeps its type."""
    return x


class Decoder(nn.Module):
    """Attention over what was given so far: q [B, T, H, D], k and v [B, T, G, D] at positions pos [T]. stored: what is
    written of k and v."""

    def __init__(self, dtype: torch.dtype = torch.float32, heads: int = 2, width: int = 16, length: int = 24) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, heads, length, width, dtype=dtype))
        self.register_buffer("values", torch.zeros(1, heads, length, width, dtype=dtype))
        self.stored: Stored = as_given

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        k, v = self.stored(k), self.stored(v)
        self.keys.index_copy_(2, pos, k.transpose(1, 2))
        self.values.index_copy_(2, pos, v.transpose(1, 2))
        return attended(q, self.keys, self.values, pos)


def attended(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
    """[B, T, H, D]: each query of positions pos sees the keys up to its own."""
    seen = torch.arange(keys.shape[2])[None, :] <= pos[:, None]
    y = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, attn_mask=seen, enable_gqa=True)
    return y.transpose(1, 2)


class Stacked(nn.Module):
    """Layers whose caches are one buffer [layers, 2, B, S, G, D], written by slices and by indices."""

    def __init__(self, dtype: torch.dtype = torch.float32, layers: int = 3, width: int = 16, length: int = 24) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(layers, 2, 1, length, 2, width, dtype=dtype))
        self.layers = layers
        self.stored: Stored = as_given

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        for i in range(self.layers):
            self.cache[i, 0].index_copy_(1, pos, self.stored(k))
            self.cache[i, 1, :, pos] = self.stored(v)
            keys, values = (x.transpose(1, 2) for x in self.cache[i])
            q = q + attended(q, keys, values, pos)
            k = k / 2
        return q


class WrittenOut(nn.Module):
    """Products and a softmax in the place of attention, whose probabilities are an output; keys are kept transposed by
    what reads them."""

    def __init__(self, dtype: torch.dtype = torch.float32, width: int = 16, length: int = 24) -> None:
        super().__init__()
        self.register_buffer("keys", torch.ones(1, length, 2, width, dtype=dtype))
        self.register_buffer("values", torch.ones(1, length, 2, width, dtype=dtype))
        self.stored: Stored = as_given

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, pos: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.keys[:, pos] = self.stored(k)
        self.values[:, pos] = self.stored(v)
        q = q.unflatten(2, (2, -1)).mean(3)
        p = torch.einsum("bthd,bshd->bhts", q, self.keys).softmax(-1)
        return torch.einsum("bhts,bshd->bthd", p, self.values), p


def step(t: int, at: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """q of 4 heads, k and v of 2, of 16 numbers, for t tokens from position `at` on."""
    g = torch.Generator().manual_seed(seed + at)
    q, k, v = (torch.randn(1, t, h, 16, generator=g).to(dtype) for h in (4, 2, 2))
    return q, k * 3, v, torch.arange(at, at + t)
