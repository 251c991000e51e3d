"""Reading and writing by index: gather, take, put, scatter, embedding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hardtack.codegen.ir.expr import as_expr, const, int_value, never_negative, product
from hardtack.codegen.ir.types import INT_RANGE, DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.sums import coefficient
from hardtack.exporter.convert.table import Number, Size, Value, converts
from hardtack.exporter.convert.value_sizes import true_indices
from hardtack.exporter.convert.views import positions, slice_start, wrapped
from hardtack.exporter.errors import Refusal


def _integer(b: Builder, index: Value) -> Value:
    return index if index.dtype.is_int else b.to(index, DType.I64)


@converts("aten.embedding.default")
def _embedding(b: Builder, weight: Value, indices: Value, *_: Any, **__: Any) -> Value:
    return b.op("take", weight, _integer(b, indices), dims=(0,), at=0, wraps=False)


@converts("aten.index_select.default")
def _index_select(b: Builder, x: Value, dim: int, index: Value) -> Value:
    if x.rank == 0:
        return x
    at = dim % x.rank
    flat = b.reshape(index, (1,)) if index.rank == 0 else index
    return b.op("take", x, _integer(b, flat), dims=(at,), at=at, wraps=False)


@converts("aten.index.Tensor", "aten._unsafe_index.Tensor")
def _index(b: Builder, x: Value, indices: Sequence[Value | None]) -> Value:
    dims, chosen = _chosen(b, indices)
    return b.op("take", x, *chosen, dims=dims, at=index_position(dims))


def _chosen(b: Builder, indices: Sequence[Value | None]) -> tuple[tuple[int, ...], list[Value]]:
    """The dims that are indexed and their index tensors. A mask stands for one of each of its dims."""
    every: list[Value | None] = []
    for i in indices:
        if i is not None and i.dtype in (DType.BOOL, DType.U8):
            if i.rank == 0:
                raise Refusal("indexing by a mask without dimensions: use torch.where")
            every += true_indices(b, i)
        else:
            every.append(i)
    pairs = [(d, i) for d, i in enumerate(every) if i is not None]
    return tuple(d for d, _ in pairs), [_integer(b, i) for _, i in pairs]


def index_position(dims: Sequence[int]) -> int:
    """Where advanced indexing puts the index dims: in place of adjacent indexed dims, else in front."""
    adjacent = list(dims) == list(range(dims[0], dims[0] + len(dims)))
    return dims[0] if adjacent else 0


@converts("aten.index_put.default", "aten.index_put_.default", "aten._unsafe_index_put.default")
def _index_put(
    b: Builder, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False, unsafe: bool = False
) -> Value:
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype is DType.BOOL:
        return _masked_put(b, x, indices[0], values, accumulate)
    dims, chosen = _chosen(b, indices)
    values = b.to(values, x.dtype)
    return b.op("put", x, values, *chosen, dims=dims, at=index_position(dims), accumulate=bool(accumulate))


def _masked_put(b: Builder, x: Value, mask: Value, values: Value, accumulate: bool) -> Value:
    """x[mask] = values: a selection, where all that the mask selects get the same; else each its own, in order."""
    behind = x.rank - mask.rank
    values = b.to(values, x.dtype)
    if values.rank > behind and int_value(product(values.shape[: values.rank - behind])) != 1:
        places = true_indices(b, mask)
        b.require("eq", values.shape[0], places[0].shape[0], "as many values as the mask selects")
        return b.op("put", x, values, *places, dims=tuple(range(mask.rank)), at=0, accumulate=accumulate)
    values = b.reshape(values, values.shape[max(0, values.rank - behind) :])
    shape: list[Size] = [*mask.shape, *([1] * behind)]
    new = b.pw("add", x, values) if accumulate else b.expand(values, x.shape)
    return b.where(b.reshape(mask, shape), new, x, x.dtype)


@converts("aten.gather.default")
def _gather(b: Builder, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    if x.rank == 0:
        return b.expand(x, index.shape) if index.rank == 0 else b.expand(b.reshape(x, (1,)), index.shape)
    if index.rank == 0:
        index = b.reshape(index, (1,))
        return b.reshape(b.op("gather", x, index, dim=dim % x.rank), ())
    return b.op("gather", x, index, dim=dim % x.rank)


_REDUCTIONS = {"add": "sum", "multiply": "prod", **{k: k for k in ("sum", "prod", "amax", "amin", "mean")}}


@converts(
    "aten.scatter.src",
    "aten.scatter.value",
    "aten.scatter.reduce",
    "aten.scatter.value_reduce",
    "aten.scatter_reduce.two",
)
def _scatter(
    b: Builder,
    x: Value,
    dim: int,
    index: Value,
    src: Any,
    reduce_by: str | None = None,
    *,
    reduce: str | None = None,
    include_self: bool = True,
) -> Value:
    """x with src added, multiplied, compared, averaged or put in at index along dim; without x's own elements there,
    unless `include_self`.
    """
    name = reduce or reduce_by
    kind = "none" if name is None else _REDUCTIONS.get(name)
    if kind is None:
        raise Refusal(f"scatter with reduce={name!r}")
    if x.rank == 0:
        x, index = b.reshape(x, (1,)), b.reshape(index, (1,))
        src = b.reshape(src, (1,)) if isinstance(src, Value) else src
        return b.reshape(_scatter_along(b, x, 0, index, src, kind, include_self), ())
    return _scatter_along(b, x, dim % x.rank, index, src, kind, include_self)


@converts("aten.scatter_add.default")
def _scatter_add(b: Builder, x: Value, dim: int, index: Value, src: Value) -> Value:
    return _scatter(b, x, dim, index, src, "add")


def _scatter_along(b: Builder, x: Value, dim: int, index: Value, src: Any, kind: str, include_self: bool) -> Value:
    source = b.to(src, x.dtype) if isinstance(src, Value) else b.full(index.shape, src, x.dtype)
    if not include_self:
        blank = b.full(index.shape, _identity(x.dtype, kind), x.dtype)
        x = b.op("scatter", x, index, blank, dim=dim, reduce="none")
    if kind != "mean":
        return b.op("scatter", x, index, source, dim=dim, reduce=kind)
    if x.dtype is DType.BOOL:
        raise Refusal("scatter_reduce by mean of bool, which torch does not have: convert to a number type first")
    total = b.op("scatter", x, index, source, dim=dim, reduce="sum")
    each = b.full(index.shape, 1, x.dtype)
    hits = b.op("scatter", b.full(x.shape, int(include_self), x.dtype), index, each, dim=dim, reduce="sum")
    return b.pw("div" if x.dtype.is_float else "floordiv", total, b.where(b.pw("eq", hits, 0), 1, hits, x.dtype))


def _identity(dtype: DType, kind: str) -> bool | int | float:
    """What does not count beside another element."""
    if kind in ("amax", "amin"):
        lo, hi = (-math.inf, math.inf) if dtype.is_float else INT_RANGE.get(dtype, (False, True))
        return lo if kind == "amax" else hi
    return 1 if kind == "prod" else 0


@converts("aten.slice_scatter.default")
def _slice_scatter(
    b: Builder, x: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    """x with the slice replaced by src."""
    at = dim % x.rank
    length = src.shape[at]
    if isinstance(start, Number):
        return _put_along(b, x, at, positions(b, start, length, step), b.to(src, x.dtype), False)
    first = slice_start(b, (start, end, step), x.shape[at], length)
    src = b.to(src, x.dtype)
    if step == 1:
        return _replaced(b, x, src, at, first)
    if int_value(length) == 0:
        return x
    index = b.pw("add", b.pw("mul", b.iota(length), step), first)
    return _put_along(b, x, at, index, src, False)


def _replaced(b: Builder, x: Value, src: Value, dim: int, first: Any) -> Value:
    """x with x[.., first : first + len(src), ..] = src: joined from parts where the sizes alone say that it lies inside
    of x, written by index where a guard says so.
    """
    begin, length, size = as_expr(first), src.shape[dim], x.shape[dim]
    rest = size - begin - length
    for end in (begin, rest):
        b.require("le", 0, end, f"{b.origin.op} stays inside its input")
    if not all(map(never_negative, (begin, length, rest))):
        return _put_along(b, x, dim, positions(b, begin, length, 1), src, False)
    parts: list[Value] = []
    if begin is not const(0):
        parts.append(b.slice(x, dim, 0, begin))
    parts.append(src)
    if rest is not const(0):
        parts.append(b.slice(x, dim, begin + length, rest))
    return b.cat(parts, dim)


@converts("aten.select_scatter.default")
def _select_scatter(b: Builder, x: Value, src: Value, dim: int, index: Size) -> Value:
    at = dim % x.rank
    row = b.unsqueeze(b.to(src, x.dtype), at)
    if isinstance(index, Number):
        return _put_along(b, x, at, b.reshape(index, (1,)), row, False)
    return _replaced(b, x, row, at, wrapped(b, index, x.shape[at]))


def _put_along(
    b: Builder, x: Value, dim: int, index: Value, source: Value, accumulate: bool, wraps: bool = True
) -> Value:
    """x with source, of x's rank or a scalar, at index along dim. wraps: a negative index counts from the end."""
    at = dim % x.rank
    known: dict[str, object] = {} if wraps else {"wraps": False}
    return b.op("put", x, source, _integer(b, index), stated=None, dims=(at,), at=at, accumulate=accumulate, **known)


@converts("aten.index_add.default")
def _index_add(b: Builder, x: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Value:
    if isinstance(alpha, float) and source.dtype is DType.BOOL:
        alpha = bool(alpha)  # sums refuse it; here torch casts
    factor = coefficient(b, alpha, source.dtype)
    scaled = source if alpha == 1 else b.pw("and" if source.dtype is DType.BOOL else "mul", source, factor)
    return _ranked_put(b, x, dim, index, b.to(scaled, x.dtype), True)


@converts("aten.index_copy.default")
def _index_copy(b: Builder, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _ranked_put(b, x, dim, index, b.to(source, x.dtype), False)


@converts("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def _index_fill(b: Builder, x: Value, dim: int, index: Value, value: Any) -> Value:
    return _ranked_put(b, x, dim, index, b.tensor(b.cast(value, x.dtype), x.dtype), False, wraps=True)


def _ranked_put(
    b: Builder, x: Value, dim: int, index: Value, source: Value, accumulate: bool, wraps: bool = False
) -> Value:
    """put for tensors and indices of any rank, 0 included."""
    flat = b.reshape(index, (1,)) if index.rank == 0 else index
    if x.rank == 0:
        out = _put_along(b, b.reshape(x, (1,)), 0, flat, b.reshape(source, (1,)), accumulate, wraps)
        return b.reshape(out, ())
    if source.rank and index.rank == 0 and source.rank == x.rank - 1:
        source = b.unsqueeze(source, dim % x.rank)
    return _put_along(b, x, dim, flat, source, accumulate, wraps)


@converts("aten.take.default")
def _take(b: Builder, x: Value, index: Value) -> Value:
    return b.op("take", b.reshape(x, (product(x.shape),)), index, dims=(0,), at=0)


@converts("aten.put.default")
def _put(b: Builder, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    flat = b.reshape(x, (product(x.shape),))
    out = b.op("put", flat, b.reshape(source, index.shape), index, dims=(0,), at=0, accumulate=bool(accumulate))
    return b.reshape(out, x.shape)


@converts("aten.one_hot.default")
def _one_hot(b: Builder, x: Value, num_classes: int = -1) -> Value:
    if num_classes < 0:
        raise Refusal("one_hot without num_classes depends on values: give the number of classes")
    hit = b.op("eq", b.unsqueeze(b.to(x, DType.I64), -1), b.iota(num_classes))
    return b.to(hit, DType.I64)
