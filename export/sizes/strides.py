"""Strides: those of contiguous tensors, those that callers must give, and what torch's symbolic ones say."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import Max

from hardtack.codegen.ir.expr import Expr, const
from hardtack.exporter.sizes.shapes import sympy_of


def row_major(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Strides, in elements, of a contiguous tensor."""
    strides: list[Expr] = []
    step: Expr = const(1)
    for size in reversed(shape):
        strides.insert(0, step)
        step = step * size
    return tuple(strides)


def contract_order(t: torch.Tensor) -> tuple[int, ...]:
    """The dims from the outermost to the innermost as every caller must lay them out: channels-last if the example is,
    otherwise row-major.

    Other strides of an example (a slice, a transposed matrix, an expanded row) are accidents of how it was made.
    """
    plain, channels_last = tuple(range(t.dim())), (0, *range(2, t.dim()), 1)
    return channels_last if t.dim() > 2 and not is_dense(t, plain) and is_dense(t, channels_last) else plain


def contract_strides(t: torch.Tensor, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The strides, in elements, that every caller must give for an input of this shape."""
    order = contract_order(t)
    strides = row_major(tuple(shape[d] for d in order))
    return tuple(strides[order.index(d)] for d in range(t.dim()))


def is_dense(t: torch.Tensor, order: tuple[int, ...]) -> bool:
    """Contiguous in that order of dimensions for every size: strides are products of the sizes further in."""
    step: Any = 1
    for d in reversed(order):
        size, stride = t.shape[d], t.stride()[d]
        plain = sympy_of(stride) if isinstance(stride, torch.SymInt) else stride
        want = sympy_of(step) if isinstance(step, torch.SymInt) else step
        matters = not isinstance(size, int) or size != 1
        if matters and sympy.simplify(_without_max(plain) - want) != 0:
            return False
        step = step * size
    return True


def laid_out(t: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """A copy that is contiguous in that order of dimensions, to the last stride of a dimension of size 1."""
    plain = t.permute(order).clone(memory_format=torch.contiguous_format)
    return plain.permute([order.index(d) for d in range(t.dim())])


def otherwise_strided(x: Any) -> Any:
    """A tensor that is both row-major and channels_last, because sizes are 1, with the strides of the other of the two,
    which say the same of its elements; anything else as it is. Eager mode may lay out what it makes of one by them.
    """
    if not isinstance(x, torch.Tensor) or x.layout is not torch.strided or x.dim() < 3:
        return x
    orders = tuple(range(x.dim())), (0, *range(2, x.dim()), 1)
    if not all(x.permute(order).is_contiguous() for order in orders):
        return x
    strides = [laid_out(torch.empty(x.shape, device="meta"), order).stride() for order in orders]
    return x.as_strided(x.shape, strides[1] if x.stride() == strides[0] else strides[0])


def example_size(size: int | torch.SymInt) -> int | None:
    """A size or stride as in the example; None for one that data decide."""
    if not isinstance(size, torch.SymInt):
        return size
    return int(size.node.hint) if size.node.has_hint() else None


def _without_max(e: Any) -> Any:
    """A stride as torch writes it, max(1, size) * ..., without the max that only matters for empty tensors."""
    if isinstance(e, int):
        return e
    return e.replace(
        lambda x: isinstance(x, Max) and 1 in x.args and len(x.args) == 2, lambda x: next(a for a in x.args if a != 1)
    )
