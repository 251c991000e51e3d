"""Views by position in memory: as_strided, and diagonals, with the ops that write them back into their tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.expr import Expr, as_expr, const, int_value
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Size, Value, converts
from hardtack.exporter.errors import Refusal
from hardtack.exporter.sizes.shapes import Sizes
from hardtack.exporter.sizes.strides import is_dense


@converts("aten.diagonal.default")
def _diagonal(b: Builder, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Elements [.., i, i + offset, ..], the diagonal last."""
    turned, stated = b.permute(x, _plane_last(x.rank, dim1, dim2)), b.result.shape[-1]
    length = ex.minimum(turned.shape[-2] - max(0, -offset), turned.shape[-1] - max(0, offset))
    if stated not in (length, ex.maximum(length, 0)):  # of (n, 1) torch takes it for 1, which it is from n = 1 on
        b.same(stated, length)
    rows = b.iota(stated)
    lower = b.pw("add", rows, max(0, -offset)) if offset < 0 else rows
    upper = b.pw("add", rows, offset) if offset > 0 else rows
    return b.op("take", turned, lower, upper, dims=(x.rank - 2, x.rank - 1), at=x.rank - 2)


@converts("aten.diagonal_scatter.default")
def _diagonal_scatter(b: Builder, x: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """x with the diagonal replaced: a selection from src, spread along the rows, or columns, of its elements."""
    order = _plane_last(x.rank, dim1, dim2)
    plane = b.permute(x, order)
    rows, columns = plane.shape[-2:]
    along, rank = (rows, src.rank) if offset >= 0 else (columns, src.rank - 1)
    after: list[Size] = [*([0] * (src.rank - 1)), along - src.shape[-1]]
    line = b.unsqueeze(b.pad(b.to(src, x.dtype), [0] * src.rank, after), rank)
    hit = b.pw("eq", b.unsqueeze(b.pw("add", b.iota(rows), offset), 1), b.iota(columns))
    return b.permute(b.where(hit, line, plane, x.dtype), [order.index(d) for d in range(x.rank)])


def _plane_last(rank: int, dim1: int, dim2: int) -> list[int]:
    first, second = dim1 % rank, dim2 % rank
    return [*(i for i in range(rank) if i not in (first, second)), first, second]


@converts("aten.as_strided.default", "aten.as_strided_copy.default")
def _as_strided(
    b: Builder, x: Value, size: Sequence[Size], stride: Sequence[Size], storage_offset: Any = None, *, walk: Any
) -> Value:
    """A broadcast or permuted view of the whole of x where the strides say that, otherwise elements by their place."""
    fake = walk.node.args[0].meta["val"]
    flat, first = _in_memory_order(b, walk, x, fake), _first(walk, fake, storage_offset)
    target, strides = [as_expr(s) for s in size], [as_expr(s) for s in stride]
    whole = _whole(b, flat, target, strides) if first is const(0) else None
    if whole is not None:
        return whole
    places = _places(b, flat, target, strides, first)
    return b.reshape(b.op("take", flat, places, dims=(0,), at=0), target)


@converts("aten.as_strided_scatter.default")
def _as_strided_scatter(
    b: Builder, x: Value, src: Value, size: Sequence[Size], stride: Sequence[Size], storage_offset: Any = None, *,
    walk: Any,
) -> Value:  # fmt: skip
    """x with the elements at these places replaced by those of src."""
    fake = walk.node.args[0].meta["val"]
    order = _memory_order(fake)
    flat, first = _in_memory_order(b, walk, x, fake), _first(walk, fake, storage_offset)
    places = _places(b, flat, [as_expr(s) for s in size], [as_expr(s) for s in stride], first)
    new = b.reshape(b.to(src, x.dtype), places.shape)
    out = b.op("put", flat, new, places, dims=(0,), at=0, accumulate=False)
    turned = b.reshape(out, [x.shape[d] for d in order])
    return b.permute(turned, [order.index(d) for d in range(x.rank)])


@converts("aten.resize.default")
def _resize(b: Builder, x: Value, size: Sequence[Size], *, memory_format: Any = None, walk: Any) -> Value:
    """The first elements in memory, in row-major order; what lies behind the last one holds nothing that is known."""
    flat, target = _in_memory_order(b, walk, x, walk.node.args[0].meta["val"]), [as_expr(n) for n in size]
    count = ex.product(target)
    if count is not flat.shape[0]:
        b.require("le", count, flat.shape[0], "resize_ gives no more elements than there are: others hold nothing")
        flat = b.slice(flat, 0, 0, count)
    return b.reshape(flat, target)


def _memory_order(t: torch.Tensor) -> tuple[int, ...]:
    """The dims from the outermost in memory to the innermost. Refusal for a tensor that does not fill its memory."""
    steps = [s.node.hint if isinstance(s, torch.SymInt) else s for s in t.stride()]
    order = tuple(sorted(range(t.dim()), key=lambda d: (-steps[d], d)))
    if not is_dense(t, order):
        raise Refusal("as_strided of a tensor that is itself a part of another, or repeats: use slicing, or a clone")
    return order


def _in_memory_order(b: Builder, walk: Any, x: Value, fake: torch.Tensor) -> Value:
    """x as the vector that its memory holds."""
    return b.reshape(b.permute(x, _memory_order(fake)), (ex.product(x.shape),))


def _first(walk: Any, fake: torch.Tensor, storage_offset: Any) -> Expr:
    """The place of the first element, counted from that of x: offsets count from the beginning of the storage."""
    if storage_offset is None:
        return const(0)
    sizes: Sizes = walk.sizes
    return as_expr(storage_offset) - sizes.of(fake.storage_offset())


def _whole(b: Builder, flat: Value, target: list[Expr], strides: list[Expr]) -> Value | None:
    """All elements of flat, permuted, and broadcast along dims of stride 0; None for other strides."""
    live = [i for i in range(len(target)) if strides[i] is not const(0) and int_value(target[i]) != 1]
    order = sorted(live, key=lambda i: (-(int_value(strides[i]) or 2**63), i))
    expected: Expr = const(1)
    for i in reversed(order):
        if strides[i] is not expected:
            return None
        expected = expected * target[i]
    if expected is not flat.shape[0]:
        return None
    dense = b.reshape(flat, [target[i] for i in order])
    back = b.permute(dense, [order.index(i) for i in live])
    return b.expand(b.reshape(back, [target[i] if i in live else 1 for i in range(len(target))]), target)


def _places(b: Builder, flat: Value, target: list[Expr], strides: list[Expr], first: Expr) -> Value:
    """The place in flat of each element, as a vector. That all lie inside is a guard if it is not known."""
    count = ex.product(target)
    if int_value(count) != 0:
        last = ex.add(first, *((n - 1) * s for n, s in zip(target, strides, strict=True)))
        b.require("le", 0, first, "as_strided stays inside its tensor")
        b.require("le", last + 1, flat.shape[0], "as_strided stays inside its tensor")
    places: Value = b.full([1] * len(target), first, DType.I64)
    for i, (n, s) in enumerate(zip(target, strides, strict=True)):
        steps = b.reshape(b.pw("mul", b.iota(n), s), [n if j == i else 1 for j in range(len(target))])
        places = b.pw("add", places, steps)
    return b.reshape(b.expand(places, target), (count,))
