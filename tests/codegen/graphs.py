"""Small modules whose fusion is written down: in golden texts and as decisions."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from hardtack.codegen.backend import Backend
from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.machine.data import H200
from hardtack.codegen.pipeline import CompiledEntry, compile_entry
from hardtack.exporter import to_graphs


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


class LinearGelu(nn.Module):
    """A product with an epilogue."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.linear = nn.Linear(rows, columns).bfloat16()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(x))


class Attention(nn.Module):
    """Written out, with a mask."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (q @ k.mT * 0.125 + mask).softmax(-1) @ v


class ConvRelu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(32, 64, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.conv(x))


def compiled(
    module: nn.Module, *args: torch.Tensor, dynamic: object = None, backend: Backend | None = None
) -> CompiledEntry:
    """Compiled, not built."""
    torch.manual_seed(0)
    graph = to_graphs(module.eval(), args, {}, dynamic, False).entries["forward"].graph
    return compile_entry(graph, {}, backend or CppBackend())


def _on_gpu(module: nn.Module, *args: torch.Tensor) -> CompiledEntry:
    return compiled(module, *args, backend=TritonBackend(H200))


def _half(*shape: int) -> torch.Tensor:
    return torch.randn(shape).bfloat16()


GOLDEN: dict[str, Callable[[], CompiledEntry]] = {
    "softmax": lambda: compiled(Softmax(), torch.randn(40, 33)),
    "feedforward": lambda: compiled(Feedforward(), torch.randn(2, 10, 48)),
    "residual_block": lambda: compiled(ResidualBlock(), torch.randn(2, 32, 9, 9)),
    "gpu_gemm_epilogue": lambda: _on_gpu(LinearGelu(512, 1024), _half(256, 512)),
    "gpu_attention": lambda: _on_gpu(Attention(), *(_half(2, 8, 200, 64) for _ in range(3)), _half(200, 200)),
    "gpu_one_row": lambda: _on_gpu(LinearGelu(512, 1024), _half(1, 512)),
    "gpu_convolution": lambda: _on_gpu(ConvRelu(), torch.randn(2, 32, 14, 14)),
    "gpu_reduction": lambda: _on_gpu(Softmax(), torch.randn(40, 3000)),
}
"""What is compiled, by the name of the file with its stages' texts."""


def golden_texts(name: str) -> dict[str, str]:
    """By stage."""
    torch.manual_seed(0)
    return GOLDEN[name]().texts
