"""Models in which both halves of a product's columns meet: gates, and what they open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.code_layer import Layer


class Gate(nn.Module):
    """x [.., K] -> what `mixed` makes of the first n of 2 n columns of a product and of the others."""

    def __init__(self, layer: nn.Module, mixed: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.mixed = layer, mixed

    def forward(self, x: torch.Tensor) -> Any:
        return self.mixed(*self.layer(x).chunk(2, -1))


class Apart(nn.Module):
    """Of two weights, which the product has joined."""

    def __init__(self, k: int, n: int, bias: bool) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(k, n, bias), nn.Linear(k, n, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.gate(x)) * self.up(x)


class Codes(Layer):
    """A layer of codes that is its product alone, or with a scale of columns behind it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight(x.dtype)) * self.bias.to(x.dtype)


GATES: dict[str, Callable[[], nn.Module]] = {
    "swiglu": lambda: Gate(nn.Linear(96, 1080, bias=False), lambda a, b: F.silu(a) * b),
    "geglu": lambda: Gate(nn.Linear(64, 1056), lambda a, b: b * F.gelu(a, approximate="tanh")),
    "glu": lambda: Gate(nn.Linear(40, 1200), lambda a, b: a * torch.sigmoid(b)),
    "a bias and a sum": lambda: Gate(nn.Linear(256, 1024), lambda a, b: (a + 2 * b) * a.exp()),
    "both halves twice": lambda: Gate(nn.Linear(32, 2056), lambda a, b: (a.relu() * b - a + b).sigmoid()),
    "two weights": lambda: Apart(96, 560, False),
    "two weights and biases": lambda: Apart(128, 520, True),
    "an odd half": lambda: Gate(nn.Linear(48, 1366), lambda a, b: F.silu(a) * b),
    "int8": lambda: Gate(Layer(512, 1090), lambda a, b: F.silu(a) * b),
    "int8, a scale behind": lambda: Gate(Codes(512, 1056), lambda a, b: a.tanh() * b),
    "int4": lambda: Gate(Codes(2048, 72, 4, 128), lambda a, b: F.silu(a) * b),
    "int4, shifts": lambda: Gate(Codes(256, 36, 4, 32, "sub mul", signed=False), lambda a, b: F.silu(a) * b),
    "float8": lambda: Gate(Codes(512, 40, float8=torch.float8_e4m3fn), lambda a, b: F.silu(a) * b),
}


def width_of(module: nn.Module) -> int:
    """K of the product."""
    layer = next(m for m in module.modules() if isinstance(m, (nn.Linear, Layer)))
    return layer.in_features if isinstance(layer, nn.Linear) else layer.codes.shape[1]
