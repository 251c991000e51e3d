"""A linear layer of codes, as GPUs and CPUs read them: of few bits, with scales, zero points and shifts."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    """A linear layer of codes: (codes - zeros) * scales + shifts, what there is of them, of groups along K.

    group: 0 for all of K. spread: whether each column has numbers of its own, or each block of `columns`. float8: the
    codes' type.
    """

    def __init__(
        self,
        k: int,
        n: int,
        bits: int = 8,
        group: int = 0,
        steps: str = "mul",
        signed: bool = True,
        spread: bool = True,
        float8: torch.dtype | None = None,
        columns: int = 1,
    ) -> None:
        super().__init__()
        least = -(1 << (bits - 1)) if signed else 0
        codes = torch.randint(least, least + (1 << bits), (n, k))
        codes = codes.to(torch.int8 if signed else torch.uint8) if float8 is None else (codes / 8).to(float8)
        self.codes, self.bits = nn.Buffer(codes), bits
        self.group, self.steps, self.columns = group or k, steps.split(), columns
        shape = (n // columns if spread else 1, k // self.group)
        self.sub = nn.Buffer(torch.randint(0, 8, shape).float())
        self.mul = nn.Parameter(torch.rand(shape) * 0.02, requires_grad=False)
        self.add = nn.Parameter(torch.randn(shape) * 0.02, requires_grad=False)
        self.bias = nn.Parameter(torch.randn(n), requires_grad=False)

    def _apply(self, *args: Any, **kwargs: Any) -> Layer:
        """Conversions leave the codes alone, which may be of a float type."""
        codes = self.codes
        super()._apply(*args, **kwargs)
        self.codes = codes.to(self.mul.device)
        return self

    def weight(self, dtype: torch.dtype) -> torch.Tensor:
        made = self.codes.to(dtype)
        for kind in self.steps:
            table = getattr(self, kind).repeat_interleave(self.group, 1).repeat_interleave(self.columns, 0)
            made = made - table if kind == "sub" else made * table if kind == "mul" else made + table
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(F.linear(x, self.weight(x.dtype), self.bias))
