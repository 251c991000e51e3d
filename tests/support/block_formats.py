"""Layers whose weights are MXFP4, MXFP8 or NVFP4, written with torch's own ops."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

FLOAT4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
"""The numbers of float4_e2m1 that have no sign, by code."""
FORMATS = ("mxfp4", "mxfp8", "nvfp4")


class Blocks(nn.Module):
    """A linear layer (K, N) in blocks along K. Codes of 4 bits lie two in a byte, an even one in the low half; MX has
    scales of float8_e8m0fnu for 32, NVFP4 of float8_e4m3fn for 16, and one number for all. bits: floats of 4 bits are
    made of their bits, else picked from a table."""

    def __init__(self, k: int, n: int, kind: str, dtype: torch.dtype = torch.float32, bits: bool = False) -> None:
        super().__init__()
        self.kind, self.dtype, self.bits = kind, dtype, bits
        self.group = 16 if kind == "nvfp4" else 32
        draw = torch.Generator().manual_seed(k + n)
        codes = torch.randint(0, 256, (n, k if kind == "mxfp8" else k // 2), generator=draw).to(torch.uint8)
        if kind == "mxfp8":
            codes = torch.where(codes & 0x7F == 0x7F, 8, codes).view(torch.float8_e4m3fn)
        self.codes = nn.Buffer(codes)
        if kind == "nvfp4":
            scales = (torch.rand(n, k // 16, generator=draw) * 3 + 0.01).to(torch.float8_e4m3fn)
        else:
            scales = torch.randint(110, 140, (n, k // 32), generator=draw).to(torch.uint8).view(torch.float8_e8m0fnu)
        self.scales = nn.Buffer(scales)
        self.factor = nn.Buffer(torch.tensor(0.0137))
        self.table = nn.Buffer(torch.tensor([*FLOAT4, *(-x for x in FLOAT4)]))

    def _apply(self, *args: Any, **kwargs: Any) -> Blocks:
        """Conversions of the module leave codes and scales alone."""
        return self

    def numbers(self) -> torch.Tensor:
        """What codes stand for, in f32."""
        if self.kind == "mxfp8":
            return self.codes.float()
        halves = torch.stack([self.codes & 15, self.codes >> 4], -1).flatten(1)
        if not self.bits:
            return self.table[halves.long()]
        wide = halves.int()
        exponent, fraction = (wide >> 1) & 3, wide & 1
        size = torch.where(exponent == 0, fraction * 0.5, (1 + fraction * 0.5) * torch.exp2(exponent.float() - 1))
        return torch.where(wide >= 8, -size, size)

    def weight(self) -> torch.Tensor:
        """[N, K], rounded to the layer's type at the end."""
        scales = self.scales.float()
        if self.kind == "nvfp4":
            scales = self.factor * scales
        numbers = self.numbers()
        made = numbers.view(len(numbers), -1, self.group) * scales[..., None]
        return made.view(numbers.shape).to(self.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight())
