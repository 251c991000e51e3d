"""Scales of blocks of 1 x 128 or 128 x 128, as scaled products take them."""

from __future__ import annotations

from collections.abc import Sequence

from hardtack.codegen.ir.expr import Expr, const, floordiv, int_value
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Value

BLOCK = 128


def block_scales(b: Builder, rows: Sequence[Value], scales: Sequence[Value]) -> list[Value] | None:
    """Scales of both operands of a product, x [M, K] and the weight's columns [N, K], for each of their elements, in
    f32. That of x is [M, K/128] or [M/128, K/128], that of the weight lies the other way. None for any others."""
    turned = [scales[0], b.swap(scales[1], 0, 1) if scales[1].rank == 2 else scales[1]]
    found = [_spread(b, v, s) for v, s in zip(rows, turned, strict=True)]
    known = [s for s in found if s is not None]
    return known if len(known) == len(found) else None


def _spread(b: Builder, rows: Value, scale: Value) -> Value | None:
    """[rows, K] of a scale; None where it is of no such blocks, or rows in blocks or K are not fixed."""
    count, depth = rows.shape
    if scale.rank != 2 or scale.dtype is not DType.F32 or int_value(depth) is None:
        return None
    if not b.same(scale.shape[1], _blocks(depth)):
        return None
    if not b.same(scale.shape[0], count):
        if int_value(count) is None or not b.same(scale.shape[0], _blocks(count)):
            return None
        scale = _repeated(b, scale, 0, count)
    return _repeated(b, scale, 1, depth)


def _blocks(size: Expr) -> Expr:
    return floordiv(size + (BLOCK - 1), BLOCK)


def _repeated(b: Builder, x: Value, dim: int, size: Expr) -> Value:
    """Each element along a dimension 128 times, as far as `size`."""
    apart = b.unsqueeze(x, dim + 1)
    shape = (*apart.shape[: dim + 1], const(BLOCK), *apart.shape[dim + 2 :])
    joined = (*x.shape[:dim], x.shape[dim] * BLOCK, *x.shape[dim + 1 :])
    return b.slice(b.reshape(b.expand(apart, shape), joined), dim, 0, size)
