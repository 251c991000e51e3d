"""A module with a product of each kind, and what eager gives for it on operands of 16 bits."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from tests.export.narrowing import rounded


class Products(nn.Module):
    """A product of each kind. narrow: what becomes of the operands; by itself nothing, of 16 bits their rounding."""

    def __init__(self, narrow: Callable[[torch.Tensor], torch.Tensor] = lambda x: x) -> None:
        super().__init__()
        # Grouped products of float32, which torch has none of. It imports Triton, which not every process may.
        import transformers.integrations.moe  # noqa: F401

        random = torch.Generator().manual_seed(1)
        self.narrow = narrow
        for name, shape in SHAPES.items():
            self.register_buffer(name, torch.randn(shape, generator=random))

    def forward(
        self, x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor, ends: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        r, own = self.narrow, self.get_buffer
        x, q, k = r(x), r(q), r(k)
        return (
            F.conv2d(x, r(own("filters")), own("bias"), padding=1),
            F.conv2d(x, r(own("depthwise")), stride=2, groups=16),
            F.conv2d(x, r(own("pointwise"))),
            F.conv_transpose2d(x, r(own("spread")), own("bias"), stride=2),
            F.linear(q, r(own("matrix")), own("bias")),
            q @ k.repeat_interleave(2, 1).mT,
            F.scaled_dot_product_attention(q, k, k, enable_gqa=True, is_causal=True),
            F.scaled_dot_product_attention(q, k, k, mask, enable_gqa=True),
            F.scaled_dot_product_attention(q, k, k, mask > 0, enable_gqa=True),
            torch.ops.transformers.grouped_mm_fallback(q[0, 0], r(own("stacked")), ends),
        )


SHAPES = {
    "filters": (24, 16, 3, 3),
    "depthwise": (16, 1, 3, 3),
    "pointwise": (24, 16, 1, 1),
    "spread": (16, 24, 3, 3),
    "matrix": (24, 16),
    "bias": (24,),
    "stacked": (3, 16, 24),
}
ENDS = torch.tensor([5, 5, 18], dtype=torch.int32)
"""The second group has no row, and none has the last two."""


def product_inputs() -> tuple[torch.Tensor, ...]:
    """Inputs of Products: twice as many heads of queries as of keys."""
    random = torch.Generator().manual_seed(2)
    shapes = (2, 16, 9, 9), (1, 4, 20, 16), (1, 2, 20, 16), (20, 20)
    return (*(torch.randn(shape, generator=random) for shape in shapes), ENDS)


def product_results(dtype: torch.dtype) -> list[torch.Tensor]:
    """What eager gives for operands that are rounded to a dtype, added up in float32."""
    return list(Products(lambda x: rounded(x, dtype))(*product_inputs()))
