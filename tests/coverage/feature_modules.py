"""Modules and functions that the features need more than a line for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

from tests.coverage.cases import Made


class Function(nn.Module):
    """A function as a module in evaluation mode."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def doubled_until_large(x: Tensor) -> Any:
    from torch._higher_order_ops.while_loop import while_loop

    return while_loop(lambda y: y.sum() < 100, lambda y: (y * 2,), (x,))


def running_product(x: Tensor) -> Any:
    from torch._higher_order_ops.scan import scan

    return scan(lambda carry, row: (carry * row + 1, carry.sum()), torch.ones(x.shape[1]), x)


def associative_sum(x: Tensor) -> Any:
    from torch._higher_order_ops.associative_scan import associative_scan

    return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")


def each_row_scaled(x: Tensor, scale: Tensor) -> Tensor:
    from torch._higher_order_ops.map import map as over_rows

    found: Tensor = over_rows(lambda row, s: row * s + row.sum(), x, scale)
    return found


def gradient_of_a_norm(x: Tensor) -> Any:
    return torch.func.grad(lambda y: (y.tanh() ** 2).sum())(x)


def jacobian_of_a_softmax(x: Tensor) -> Any:
    return torch.func.jacrev(lambda y: y.softmax(0))(x)


def recomputed(x: Tensor) -> Any:
    return checkpoint(lambda y: y.sin().cos(), x, use_reentrant=False)


class Doubled(torch.autograd.Function):
    """A function with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


def causal_flex(q: Tensor) -> Any:
    def earlier(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.where(i >= j, score + 0.1 * (i - j), -float("inf"))

    return flex_attention(q, q, q, score_mod=earlier)


def windowed_flex(q: Tensor) -> Any:
    def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i >= j) & (i - j < 64)

    mask = create_block_mask(near, None, None, q.shape[2], q.shape[2], device="cpu")
    return flex_attention(q, q, q, block_mask=mask)


def in_bfloat16(x: Tensor, w: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ w


def sparse_product(x: Tensor) -> Any:
    at = torch.tensor([[0, 1, 2], [1, 3, 0]])
    return torch.sparse.mm(torch.sparse_coo_tensor(at, torch.tensor([1.0, 2.0, 3.0]), (3, 4)), x)


class Counter(nn.Module):
    """A buffer that counts runs, and one that keeps the last input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x: Tensor) -> Any:
        self.count += 1
        before = self.last.clone()
        self.last.copy_(x)
        return before + self.count


class WritesInput(nn.Module):
    """Adds to its input, where it lies."""

    def forward(self, x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2


class Weighted(nn.Module):
    """A module that is called with keywords, some of them left out."""

    def forward(self, x: Tensor, *, scale: Tensor | None = None, power: int = 2) -> Tensor:
        return x**power if scale is None else x**power * scale


def _packed(x: Tensor) -> Any:
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]), batch_first=True)
    return nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[0]


def _made(module: nn.Module, *args: Any, train: bool = False, **kwargs: Any) -> Made:
    torch.manual_seed(0)
    return Made(module.train(train), args, kwargs)


def _x(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


MODULES: dict[str, Callable[[], Made]] = {
    "buffers_that_change": lambda: _made(Counter(), _x(3)),
    "input_written_in_place": lambda: _made(WritesInput(), _x(3)),
    "batch_norm_in_training": lambda: _made(nn.BatchNorm2d(3), _x(2, 3, 4, 4), train=True),
    "keywords": lambda: _made(Weighted(), _x(3), scale=_x(3)),
    "keywords_left_out": lambda: _made(Weighted(), _x(3)),
    "lstm": lambda: _made(nn.LSTM(4, 6, num_layers=2, bidirectional=True), _x(5, 2, 4)),
    "lstm_with_projections": lambda: _made(nn.LSTM(4, 6, proj_size=3), _x(5, 2, 4)),
    "lstm_of_float64": lambda: _made(nn.LSTM(4, 6).double(), _x(5, 2, 4).double()),
    "gru": lambda: _made(nn.GRU(4, 6, batch_first=True), _x(2, 5, 4)),
    "packed_sequence": lambda: _made(Function(_packed), _x(2, 5, 4)),
    "transformer_encoder": lambda: _made(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), _x(2, 5, 8)
    ),
    "multi_head_attention": lambda: _made(nn.MultiheadAttention(8, 2, batch_first=True), *(_x(2, 5, 8),) * 3),
    "embedding_bag": lambda: _made(
        nn.EmbeddingBag(10, 4, mode="max"), torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 2])
    ),
    "embedding_bag_of_sums": lambda: _made(
        nn.EmbeddingBag(10, 4, mode="sum"), torch.tensor([1, 2, 4, 5]), torch.tensor([0, 2]), torch.rand(4)
    ),
    "weight_norm": lambda: _made(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), _x(2, 4)),
    "spectral_norm": lambda: _made(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), _x(2, 4)),
    "conv_transpose": lambda: _made(nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), _x(1, 3, 5, 6)),
    "conv_circular": lambda: _made(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), _x(1, 3, 5, 6)),
    "conv_3d": lambda: _made(nn.Conv3d(2, 3, 3, padding=1, groups=1), _x(1, 2, 4, 5, 6)),
    "group_norm": lambda: _made(nn.GroupNorm(2, 6), _x(2, 6, 3)),
    "module_of_a_partial": lambda: _made(Function(functools.partial(torch.softmax, dim=-1)), _x(2, 4)),
}
