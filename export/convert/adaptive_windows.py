"""The windows of adaptive pooling, whose sizes differ by one element or two."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hardtack.codegen.ir.expr import Expr, int_value, product
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Value


def adaptive_windows(b: Builder, x: Value, out: Sequence[Expr]) -> Value:
    """x [..., *image], both sizes numbers -> [..., *out, elements of a window], in the image's order; shorter windows
    end with their last elements again."""
    n, counts = len(out), []
    lead = x.shape[: x.rank - n]
    for d, size in enumerate(out):
        dim = x.rank - n + d
        elements, windows = int_value(x.shape[dim]) or 0, int_value(size) or 0
        table = _table(elements, windows)
        counts.append(table.shape[1])
        places = b.constant(f"windows_{windows}_of_{elements}", table.reshape(-1))
        x = b.op("take", x, places, dims=(dim,), at=dim)
    pairs = [s for size, count in zip(out, counts, strict=True) for s in (size, count)]
    apart = b.reshape(x, (*lead, *pairs))
    order = [*range(len(lead)), *(len(lead) + 2 * d for d in range(n)), *(len(lead) + 2 * d + 1 for d in range(n))]
    return b.reshape(b.permute(apart, order), (*lead, *out, product(counts)))


def _table(size: int, windows: int) -> torch.Tensor:
    """The elements of each window [windows, most elements]: from floor(i size / windows) to
    ceil((i + 1) size / windows), as torch.nn.AdaptiveMaxPool2d has it."""
    first = [i * size // windows for i in range(windows)]
    end = [-(-(i + 1) * size // windows) for i in range(windows)]
    most = max((e - f for f, e in zip(first, end, strict=True)), default=0)
    return torch.tensor([[min(f + k, e - 1) for k in range(most)] for f, e in zip(first, end, strict=True)])
