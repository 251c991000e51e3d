"""torch's linear_cross_entropy in chunks of the batch (2.13), which are custom ops: the product and the loss of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hardtack.exporter.errors import CaptureError


def _loss(
    x: Tensor, linear_weight: Tensor, target: Tensor, bias: Tensor | None, weight: Tensor | None, reduction: str,
    ignore_index: int, label_smoothing: float, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """x (N, K) times linear_weight (C, K) transposed and its cross entropy, computed in `dtype`, given in x's."""
    wide = torch.promote_types(x.dtype, dtype)
    logits = x.to(wide) @ linear_weight.to(wide).t()
    logits = logits if bias is None else logits + bias.to(wide)
    loss = F.cross_entropy(
        logits, target, None if weight is None else weight.to(wide),
        reduction=reduction, ignore_index=ignore_index, label_smoothing=label_smoothing,
    )  # fmt: skip
    return loss.to(x.dtype)


def _chunked(
    x: Tensor, linear_weight: Tensor, target: Tensor, bias: Tensor | None, weight: Tensor | None, reduction: str,
    ignore_index: int, label_smoothing: float, size: int, policy: str, dtype: torch.dtype, retain: bool,
    *gradients: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The loss, and in place of the gradients that eager computes with it tensors without elements."""
    if any(gradients):
        raise CaptureError(
            "linear_cross_entropy in chunks computes gradients in forward",
            fix="export under torch.no_grad(), or hardtack.training_step with F.cross_entropy of the product",
        )
    loss = _loss(x, linear_weight, target, bias, weight, reduction, ignore_index, label_smoothing, dtype)
    return loss, x.new_empty((0, 0)), linear_weight.new_empty((0, 0), dtype=x.dtype), x.new_empty((0,))


def _of_each(
    x: Tensor, linear_weight: Tensor, target: Tensor, bias: Tensor | None, weight: Tensor | None, ignore_index: int,
    size: int, policy: str, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    return _loss(x, linear_weight, target, bias, weight, "none", ignore_index, 0.0, dtype)


_RULES: dict[str, Callable[..., Any]] = {
    "_linear_cross_entropy_batch_chunked": _chunked,
    "_linear_cross_entropy_batch_chunked_no_reduction": _of_each,
}


def rules() -> dict[Any, Callable[..., Any]]:
    """By op, of those that torch has registered: it does so when the loss is first called."""
    found = {name: getattr(torch.ops.torch_nn, name, None) for name in _RULES}
    return {op.default: _RULES[name] for name, op in found.items() if op is not None}
