"""Reductions, scans, sorting and statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.graph import TensorType
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.pointwise import promoted
from hardtack.exporter.convert.table import Result, Value, converts
from hardtack.exporter.dtypes import TORCH_DTYPE, from_torch
from hardtack.exporter.errors import Refusal


def dims_of(x: Value, dim: int | Sequence[int] | None) -> list[int]:
    """The dims to reduce: all for None or an empty list."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return list(range(x.rank))
    chosen = [dim] if isinstance(dim, int) else list(dim)
    return sorted({d % x.rank for d in chosen}) if x.rank else []


@converts("aten.sum.default", "aten.sum.dim_IntList", kind="sum")
@converts("aten.prod.default", "aten.prod.dim_int", kind="prod")
def _sum(b: Builder, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, kind: str) -> Value:
    result = b.result.dtype
    wide = b.wide(b.to(x, result))
    return b.to(b.reduce(wide, kind, dims_of(x, dim), keepdim), result)


@converts("aten.mean.default", "aten.mean.dim")
def _mean(b: Builder, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    result = b.result.dtype
    return b.to(b.mean(b.wide(b.to(x, result)), dims_of(x, dim), keepdim), result)


@converts("aten.any.default", "aten.any.dim", "aten.any.dims", kind="any")
@converts("aten.all.default", "aten.all.dim", "aten.all.dims", kind="all")
def _any(b: Builder, x: Value, dim: Any = None, keepdim: bool = False, *, kind: str) -> Value:
    none = isinstance(dim, (list, tuple)) and not dim  # over no dimension, where other reductions take () for all
    return b.to(b.reduce(b.to(x, DType.BOOL), kind, [] if none else dims_of(x, dim), keepdim), b.result.dtype)


def extreme(b: Builder, x: Value, kind: str, dims: Sequence[int], keepdim: bool) -> Value:
    """The largest or smallest element; of bool by any and all."""
    if x.dtype is DType.BOOL:
        return b.reduce(x, "any" if kind == "max" else "all", dims, keepdim)
    return b.reduce(x, kind, dims, keepdim)


@converts("aten.amax.default", "aten.max.default", kind="max")
@converts("aten.amin.default", "aten.min.default", kind="min")
def _amax(b: Builder, x: Value, dim: Any = None, keepdim: bool = False, *, kind: str) -> Value:
    return extreme(b, x, kind, dims_of(x, dim), keepdim)


@converts("aten.aminmax.default")
def _aminmax(b: Builder, x: Value, *, dim: Any = None, keepdim: bool = False) -> Result:
    dims = dims_of(x, dim)
    return extreme(b, x, "min", dims, keepdim), extreme(b, x, "max", dims, keepdim)


@converts("aten.max.dim", kind="max")
@converts("aten.min.dim", kind="min")
def _max_dim(b: Builder, x: Value, dim: int, keepdim: bool = False, *, kind: str) -> Result:
    return extreme(b, x, kind, dims_of(x, dim), keepdim), arg_extreme(b, x, kind, dim, keepdim)


def arg_extreme(b: Builder, x: Value, kind: str, dim: int, keepdim: bool) -> Value:
    """The index of the first extreme element along dim."""
    plain = b.to(x, DType.U8) if x.dtype is DType.BOOL else x
    return b.reduce(plain, f"arg{kind}", dims_of(x, dim), keepdim)


@converts("aten.argmax.default", kind="max")
@converts("aten.argmin.default", kind="min")
def _argmax(b: Builder, x: Value, dim: int | None = None, keepdim: bool = False, *, kind: str) -> Value:
    if dim is not None:
        return arg_extreme(b, x, kind, dim, keepdim)
    flat = arg_extreme(b, b.reshape(x, (ex.product(x.shape),)), kind, 0, False)
    return b.reshape(flat, b.result.shape)


@converts("aten.cumsum.default", kind="sum")
@converts("aten.cumprod.default", kind="prod")
def _cumsum(b: Builder, x: Value, dim: int, *, dtype: Any = None, kind: str) -> Value:
    result = b.result.dtype
    wide = b.wide(b.to(x, result))
    return b.to(b.op("scan", wide, kind=kind, dim=dim % x.rank), result) if x.rank else b.to(wide, result)


@converts("aten.logcumsumexp.default")
def _logcumsumexp(b: Builder, x: Value, dim: int) -> Value:
    """log of the running sum of e^x, kept as a logarithm from element to element."""
    return b.to(b.op("scan", b.wide(x), kind="logsumexp", dim=dim % x.rank), x.dtype) if x.rank else x


@converts("aten.sort.default", "aten.sort.stable")
def _sort(b: Builder, x: Value, *args: Any, **kwargs: Any) -> Result:
    given = dict(zip(("dim", "descending"), args, strict=False)) | kwargs
    if x.rank == 0:
        return x, b.full((), 0, DType.I64)
    dim, descending = given.get("dim", -1) % x.rank, bool(given.get("descending", False))
    plain = b.to(x, DType.U8) if x.dtype is DType.BOOL else x
    values, index = b.multi("sort", plain, dim=dim, descending=descending)
    return b.to(values, x.dtype), index


@converts("aten.argsort.default", "aten.argsort.stable")
def _argsort(b: Builder, x: Value, *args: Any, **kwargs: Any) -> Value:
    return _sort(b, x, *args, **kwargs)[1]  # type: ignore[index,return-value]


@converts("aten.topk.default")
def _topk(b: Builder, x: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Result:
    if x.rank == 0:
        return x, b.full((), 0, DType.I64)
    at = dim % x.rank
    b.require("le", b.result.shape[at], x.shape[at], "topk takes no more than there is")
    return b.multi("topk", x, stated=(b.result, TensorType(DType.I64, b.result.shape)), dim=at, largest=bool(largest))


@converts("aten.kthvalue.default")
def _kthvalue(b: Builder, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> Result:
    if x.rank == 0:
        return x, b.full((), 0, DType.I64)
    values, index = b.multi("sort", x, dim=dim % x.rank, descending=False)
    pick = [b.slice(v, dim % x.rank, k - 1, 1) for v in (values, index)]
    return tuple(b.reshape(p, b.result.shape) for p in pick)


@converts("aten.median.dim")
def _median(b: Builder, x: Value, dim: int, keepdim: bool = False) -> Result:
    """The lower of the middle elements. NaN sorts last, and a row with one has NaN as its median."""
    if x.rank == 0:
        return x, b.full((), 0, DType.I64)
    at = dim % x.rank
    size = x.shape[at]
    b.require("le", 1, size, "median needs an element")
    values, index = b.multi("sort", x, dim=at, descending=False)
    middle = [b.slice(v, at, ex.floordiv(size - 1, 2), 1) for v in (values, index)]
    if x.dtype.is_float:
        last = b.slice(values, at, size - 1, 1)
        broken = b.op("isnan", last)
        first_nan = b.reduce(b.to(b.op("isnan", x), DType.U8), "argmax", [at], True)
        middle = [b.where(broken, last, middle[0], x.dtype), b.where(broken, first_nan, middle[1], DType.I64)]
    return tuple(b.reshape(m, b.result.shape) for m in middle)


@converts("aten.median.default")
def _median_all(b: Builder, x: Value) -> Value:
    flat = b.reshape(x, (ex.product(x.shape),))
    found = _median(b, flat, 0)
    assert isinstance(found, tuple)
    return found[0] or flat


@converts("aten.cummax.default", kind="max")
@converts("aten.cummin.default", kind="min")
def _cummax(b: Builder, x: Value, dim: int, *, kind: str) -> Result:
    """The running extreme; the index of its last occurrence so far is the running maximum of the positions that reach
    it."""
    if x.rank == 0:
        return x, b.full((), 0, DType.I64)
    at = dim % x.rank
    plain = b.to(x, DType.U8) if x.dtype is DType.BOOL else x
    values = b.op("scan", plain, kind=kind, dim=at)
    place = b.reshape(b.iota(x.shape[at]), [x.shape[at] if i == at else 1 for i in range(x.rank)])
    hit = b.op("eq", plain, values)
    if plain.dtype.is_float:
        hit = b.op("or", hit, b.op("isnan", plain))
    index = b.op("scan", b.where(hit, place, 0, DType.I64), kind="max", dim=at)
    return b.to(values, x.dtype), index


@converts("aten.searchsorted.Tensor")
def _searchsorted(
    b: Builder, boundaries: Value, x: Value, *rest: Any, sorter: Value | None = None, **options: Any
) -> Value:
    if sorter is not None:
        boundaries = b.op("gather", boundaries, sorter, dim=boundaries.rank - 1)
    return _bucketize(b, x, boundaries, *rest, **options)


@converts("aten.bucketize.Tensor")
def _bucketize(b: Builder, x: Value, boundaries: Value, *rest: Any, right: bool = False, **options: Any) -> Value:
    """How many boundaries lie below each value (or at it, with `right`): counted, which serves short boundary lists.

    Compared in the dtype that both promote to, as torch does: 2^24 + 1 is at a boundary of 2^24 in float32.
    """
    right = right or options.get("side") == "right"
    _, dtype = promoted(boundaries, x)
    wide = boundaries if boundaries.rank == 1 else b.unsqueeze(boundaries, -2)
    below = b.pw("le" if right else "lt", wide, b.unsqueeze(x, -1), dtype=dtype)
    if x.dtype.is_float:
        below = b.op("or", below, b.unsqueeze(b.op("isnan", x), -1))
    count = b.reduce(b.to(below, DType.I64), "sum", [below.rank - 1], False)
    return b.to(count, b.result.dtype)


NOISE = 2.0**-18
"""Of a sum of squares: what is left of it below this share, once the mean is exact, is rounding alone."""


def centred(b: Builder, x: Value, dims: Sequence[int]) -> tuple[Value, Value]:
    """The mean over dims, kept with size 1, and the sum of squared distances from it.

    In two passes: a mean, then the distances from it and their squares, which correct both (Chan, Golub and LeVeque
    1983). So the mean of equal values is their value, and the error of a mean of many does not count.
    """
    first = b.mean(x, dims, True)
    far = b.reduce(b.pw("sub", x, first), "sum", dims, True)
    # the same distance in other words: as one value with two readers it would be stored
    distance = b.pw("add", x, b.pw("neg", first))
    squares = b.reduce(b.pw("mul", distance, distance), "sum", dims, True)
    shift = b.over(far, x, dims)
    left = b.pw("sub", squares, b.pw("mul", far, shift))
    noise = b.pw("lt", left, b.pw("mul", squares, NOISE))
    return b.pw("add", first, shift), b.where(noise, 0.0, left, x.dtype)


def variance(b: Builder, x: Value, dims: Sequence[int], keepdim: bool, correction: float) -> tuple[Value, Value]:
    """(variance, mean)."""
    mean, total = centred(b, x, dims)
    count = ex.product(x.shape[d] for d in dims) if x.rank else ex.const(1)
    number = int_value(count)
    if number is not None:
        degrees: Any = float(max(0, number - correction))
    else:
        degrees = b.pw("max", b.pw("sub", b.cast(count, x.dtype), correction, dtype=x.dtype), 0.0)
    out = b.pw("div", total, degrees, dtype=x.dtype)
    if keepdim:
        return out, mean
    shape = [n for d, n in enumerate(x.shape) if d not in dims]
    return b.reshape(out, shape), b.reshape(mean, shape)


@converts("aten.var.default", name="var")
@converts("aten.std.default", name="std")
def _var_of_all(b: Builder, x: Value, unbiased: bool = True, *, name: str) -> Result:
    return _var(b, x, correction=int(unbiased), name=name)


@converts("aten.var.dim", name="var")
@converts("aten.std.dim", name="std")
def _var_along(b: Builder, x: Value, dim: Any, unbiased: bool = True, keepdim: bool = False, *, name: str) -> Result:
    return _var(b, x, dim, correction=int(unbiased), keepdim=keepdim, name=name)


@converts("aten.var.correction", name="var")
@converts("aten.std.correction", name="std")
@converts("aten.var_mean.correction", name="var_mean")
@converts("aten.std_mean.correction", name="std_mean")
def _var(b: Builder, x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False, name: str) -> Result:
    if not x.dtype.is_float:
        raise Refusal(f"{name} of {x.dtype}")
    # torch counts in f64: the root of a variance that f32 does not hold may be one that it does, and a mean near zero
    # keeps its digits
    doubled = (name.startswith("std") and x.dtype is not DType.F16) or name == "var_mean"
    wide = b.to(x, DType.F64) if doubled else b.wide(x)
    dims = dims_of(x, dim)
    out, mean = variance(b, wide, dims, keepdim, 1 if correction is None else correction)
    out = b.pw("sqrt", out) if name.startswith("std") else out
    out = b.to(out, x.dtype)
    return (out, b.to(_of_one(b, mean, wide, dims), x.dtype)) if name.endswith("_mean") else out


def _of_one(b: Builder, mean: Value, x: Value, dims: Sequence[int]) -> Value:
    """The mean; of one element that element, which may be infinite, so that its distance from itself is no number."""
    return _unless_one(b, mean, x, dims, lambda: b.mean(x, dims, True))


def _unless_one(b: Builder, many: Value, x: Value, dims: Sequence[int], one: Callable[[], Value]) -> Value:
    """What is reduced over dims: `one` where they hold a single element, `many` elsewhere."""
    count = ex.product(x.shape[d] for d in dims)
    lo, hi = ex.bounds(count)
    if (lo is not None and lo > 1) or hi == 0:
        return many
    alone = b.reshape(one(), many.shape)
    if lo == hi == 1:
        return alone
    return b.where(b.pw("eq", b.cast(count, DType.I64), 1), alone, many, many.dtype)


@converts("aten.linalg_vector_norm.default")
def _norm(b: Builder, x: Value, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    """The p-norm (sum |x|^p)^(1/p); p of 0 counts, p of infinity takes the extreme. That of one number is its distance
    from 0, whose power might overflow or vanish.
    """
    result = from_torch(dtype) if dtype is not None else b.result.dtype
    wide, dims, p = b.wide(b.to(x, result)), dims_of(x, dim), float(ord)
    out = p_norm(b, wide, p, dims, keepdim)
    if p not in (0.0, 1.0, math.inf, -math.inf):
        out = _unless_one(b, out, wide, dims, lambda: p_norm(b, wide, 1.0, dims, keepdim))
    return b.to(out, result)


def p_norm(b: Builder, x: Value, p: float, dims: Sequence[int], keepdim: bool) -> Value:
    """The p-norm over dims, in x's own dtype."""
    size = b.pw("abs", x)
    if p in (math.inf, -math.inf):
        return b.reduce(size, "max" if p > 0 else "min", dims, keepdim)
    if p == 0:
        return b.reduce(b.to(b.pw("ne", x, 0.0), x.dtype), "sum", dims, keepdim)
    if p == 1:
        return b.reduce(size, "sum", dims, keepdim)
    if p == 2:
        return b.pw("sqrt", b.reduce(b.pw("mul", x, x), "sum", dims, keepdim))
    return b.pw("pow", b.reduce(b.pw("pow", size, p), "sum", dims, keepdim), 1.0 / p)


@converts("aten.logsumexp.default")
def _logsumexp(b: Builder, x: Value, dim: Any, keepdim: bool = False) -> Value:
    """max + log(sum(e^(x - max))), with an infinite max left out of the difference."""
    dims = dims_of(x, dim)
    wide = b.wide(b.to(x, b.result.dtype))
    top = b.reduce(wide, "max", dims, True)
    safe = b.where(b.op("isinf", top), 0.0, top, wide.dtype)
    total = b.pw("log", b.reduce(b.pw("exp", b.pw("sub", wide, safe)), "sum", dims, keepdim))
    return b.to(b.pw("add", total, b.reshape(safe, total.shape)), b.result.dtype)


@converts("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def _count_nonzero(b: Builder, x: Value, dim: Any = None) -> Value:
    return b.reduce(b.to(b.to(x, DType.BOOL), DType.I64), "sum", dims_of(x, dim), False)


@converts("aten.histc.default")
def _histc(b: Builder, x: Value, bins: int = 100, min: Any = 0, max: Any = 0) -> Value:
    """Counts by comparing with every bin; values outside of [min, max] are not counted. min == max would need the
    data's range. The place of a value is (x - min) * bins / (max - min), each step and each number rounded to x's
    type, as eager has it: a factor that is rounded beforehand puts whole numbers on an edge into the bin below.
    """
    if min == max:
        raise Refusal("histc without min and max depends on the values: give a range")
    flat = b.reshape(x, (ex.product(x.shape), 1))
    if not flat.dtype.is_float:
        raise Refusal(f"histc of {x.dtype}")
    low, high, number = (torch.tensor(float(v), dtype=TORCH_DTYPE[x.dtype]) for v in (min, max, bins))
    scaled = b.pw("mul", b.pw("sub", flat, low.item()), number.item())
    place = b.pw("floor", b.wide(b.pw("div", scaled, (high - low).item())))
    inside = b.op("and", b.pw("ge", flat, low.item()), b.pw("le", flat, high.item()))
    last = b.pw("min", place, float(bins - 1))
    hit = b.op("and", b.op("eq", last, b.cast(b.iota(bins), last.dtype)), inside)
    return b.to(b.reduce(b.to(hit, DType.I64), "sum", [0], False), b.result.dtype)
