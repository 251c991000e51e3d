"""Small modules whose fusion is written down: in golden texts and as decisions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from hardtack.codegen.backends.cpp.backend import CppBackend
from hardtack.codegen.pipeline import CompiledEntry, compile_entry
from hardtack.export import to_graphs


class Softmax(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 0.5).softmax(-1)


class Feedforward(nn.Module):
    """Layer norm, linear, GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(48), nn.Linear(48, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(self.norm(x)))


class ResidualBlock(nn.Module):
    """relu(batch norm(convolution) + input), twice, so that the first result stays channels-last."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.Conv2d(32, 32, 1, bias=False)
        self.norm = nn.BatchNorm2d(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.a(x)) + x)
        return F.relu(self.b(y) + y).mean((2, 3))


def compiled(module: nn.Module, *args: torch.Tensor, dynamic: object = None) -> CompiledEntry:
    """Compiled, not built."""
    torch.manual_seed(0)
    return compile_entry(to_graphs(module.eval(), args, {}, dynamic, False).entries["forward"].graph, {}, CppBackend())


def golden_cases() -> dict[str, CompiledEntry]:
    torch.manual_seed(0)
    return {
        "softmax": compiled(Softmax(), torch.randn(40, 33)),
        "feedforward": compiled(Feedforward(), torch.randn(2, 10, 48)),
        "residual_block": compiled(ResidualBlock(), torch.randn(2, 32, 9, 9)),
    }
