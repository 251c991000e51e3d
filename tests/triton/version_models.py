"""Small functions that together make every kind of kernel and of kernel argument, and what exports them."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import hardtack
from hardtack.codegen.machine.data import gpu_of

HALF = torch.bfloat16


class Function(nn.Module):
    """A module of one function, with a weight of the given shape."""

    def __init__(self, name: str, *shape: int, dtype: torch.dtype = HALF) -> None:
        super().__init__()
        self.name = name
        self.weight = nn.Parameter(torch.randn(*shape, dtype=dtype)) if shape else None

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = getattr(self, self.name)(*args)
        return found

    def pointwise(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x) * 2 + 1

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1)

    def total(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()

    def product(self, x: torch.Tensor) -> torch.Tensor:
        assert self.weight is not None
        return F.gelu(F.linear(x, self.weight))

    def normed(self, x: torch.Tensor) -> torch.Tensor:
        assert self.weight is not None
        return F.linear(F.rms_norm(x, x.shape[-1:]), self.weight)

    def centred(self, x: torch.Tensor) -> torch.Tensor:
        assert self.weight is not None
        return F.linear(F.layer_norm(x, x.shape[-1:]), self.weight)

    def siblings(self, x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.exp() + 1, y.softmax(-1), y[i] * 2

    def conv(self, x: torch.Tensor) -> torch.Tensor:
        assert self.weight is not None
        return F.relu(F.conv2d(x, self.weight, padding=1))

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def pick(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i] * 2


class Codes(nn.Module):
    """A linear layer of int4, with a scale for each 128 of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Buffer(torch.randint(-8, 8, (64, 512), dtype=torch.int8))
        self.scales = nn.Parameter(torch.rand(64, 4).to(HALF), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.codes.to(HALF) * self.scales.repeat_interleave(128, 1))


def _ones(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype)


_HEADS = (2, 8, 256, 64)
ENTRIES = {
    "pointwise": (lambda: Function("pointwise"), (_ones(64, 100),)),
    "rows": (lambda: Function("rows"), (_ones(50, 300),)),
    "split": (lambda: Function("total"), (_ones(1 << 20, dtype=torch.float32),)),
    "tile": (lambda: Function("product", 200, 136), (_ones(100, 136),)),
    "stream": (lambda: Function("product", 3072, 768), (_ones(6304, 768),)),
    "vector": (lambda: Function("product", 1024, 1024), (_ones(1, 1024),)),
    "held_row": (lambda: Function("normed", 1024, 1500), (_ones(1, 1500),)),
    "walked_row": (
        lambda: Function("centred", 1024, 1500, dtype=torch.float32),
        (_ones(1, 1500, dtype=torch.float32),),
    ),
    "siblings": (lambda: Function("siblings"), (_ones(3000), _ones(10, 2000), torch.tensor([0, 3]))),
    "attention": (lambda: Function("attention"), (_ones(*_HEADS), _ones(*_HEADS), _ones(*_HEADS))),
    "conv": (lambda: Function("conv", 64, 64, 3, 3), (_ones(2, 64, 28, 28),)),
    "fragments": (Codes, (_ones(5, 512),)),
    "gather": (lambda: Function("pick"), (_ones(10, 16), torch.tensor([0, 3]))),
}
"""Name -> (module, inputs)."""


def export(path: Path, architecture: str) -> None:
    """All as one bundle."""
    torch.manual_seed(0)
    modules = {name: make().eval() for name, (make, _) in ENTRIES.items()}
    inputs = {name: args for name, (_, args) in ENTRIES.items()}
    hardtack.export(modules, inputs, path=path, targets=[gpu_of(architecture).target])
