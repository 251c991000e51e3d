"""Ops whose results are as large as values say: nonzero, masks that select, unique, repeats, counts.

Each computes how many there are, reads that number as a size (Builder.read), and has results of this size.
"""

from __future__ import annotations

from typing import Any

from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.expr import int_value, product
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Result, Value, converts
from hardtack.exporter.errors import Refusal


def _flat(b: Builder, x: Value) -> Value:
    return b.reshape(x, (product(x.shape),))


def _mask(b: Builder, x: Value) -> Value:
    return _flat(b, b.to(x, DType.BOOL))


def true_places(b: Builder, flat: Value) -> Value:
    """bool [N] -> i64 [u], the indices of what is true, ascending."""
    size = flat.shape[0]
    ones = b.to(flat, DType.I64)
    count = b.reduce(ones, "sum", [0], False)
    # the k-th that is true is added to place k, and nothing to it by the others
    places = b.pw("max", b.pw("sub", b.op("scan", ones, kind="sum", dim=0), 1), 0)
    blank = b.full((size,), 0, DType.I64)
    found = b.op("scatter", blank, places, b.pw("mul", b.iota(size), ones), dim=0, reduce="sum")
    return b.slice(found, 0, 0, b.read(count, int_value(size)))


def true_indices(b: Builder, mask: Value) -> list[Value]:
    """A mask -> for each of its dims the i64 indices [u] of what is true, in row-major order."""
    flat = true_places(b, _mask(b, mask))
    out: list[Value] = []
    for d in range(mask.rank):
        behind = product(mask.shape[d + 1 :])
        at = flat if int_value(behind) == 1 else b.pw("floordiv", flat, ex.maximum(behind, 1))
        out.append(at if d == 0 else b.pw("remainder", at, ex.maximum(mask.shape[d], 1)))
    return out


@converts("aten.nonzero.default")
def _nonzero(b: Builder, x: Value) -> Value:
    found = true_indices(b, x)
    if not found:
        count = b.read(b.to(b.to(x, DType.BOOL), DType.I64), 1)
        return b.full((count, 0), 0, DType.I64)
    return b.cat([b.unsqueeze(i, 1) for i in found], 1)


@converts("aten.masked_select.default")
def _masked_select(b: Builder, x: Value, mask: Value) -> Value:
    shape = b.pw("eq", b.to(x, DType.BOOL), mask).shape
    whole, mask = b.expand(x, shape), b.expand(mask, shape)
    return b.op("take", _flat(b, whole), true_places(b, _flat(b, mask)), dims=(0,), at=0)


def _runs(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """[N] -> where each run of equal elements starts [u], the number of each element's run [N], the length of each."""
    size = x.shape[0]
    previous = b.op("take", x, b.pw("max", b.pw("sub", b.iota(size), 1), 0), dims=(0,), at=0)
    first = b.op("or", b.pw("eq", b.iota(size), 0), b.op("ne", x, previous))
    starts = true_places(b, first)
    number = b.pw("sub", b.op("scan", b.to(first, DType.I64), kind="sum", dim=0), 1)
    many = starts.shape[0]
    following = b.pw("add", b.iota(many), 1)
    inside = b.pw("min", following, ex.maximum(many - 1, 0))
    after = b.where(
        b.pw("lt", following, many), b.op("take", starts, inside, dims=(0,), at=0), b.cast(size, DType.I64), DType.I64
    )
    return starts, number, b.pw("sub", after, starts)


def _ordered(b: Builder, x: Value) -> Value:
    return b.to(x, DType.U8) if x.dtype is DType.BOOL else x


@converts("aten._unique2.default")
def _unique(
    b: Builder, x: Value, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Result:
    """Sorted in any case, which is an order as good as any."""
    flat = _ordered(b, _flat(b, x))
    values, order = b.multi("sort", flat, dim=0, descending=False)
    starts, number, counts = _runs(b, values)
    nothing = b.full((0,), 0, DType.I64)
    found = b.to(b.op("take", values, starts, dims=(0,), at=0), x.dtype)
    blank = b.full(flat.shape, 0, DType.I64)
    inverse = b.op("scatter", blank, order, number, dim=0, reduce="sum")
    return found, b.reshape(inverse, x.shape) if return_inverse else nothing, counts if return_counts else nothing


@converts("aten.unique_consecutive.default")
def _unique_consecutive(
    b: Builder, x: Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Result:
    if dim is not None and x.rank != 1:
        raise Refusal("unique_consecutive along a dimension: rows are not compared; give each row a number first")
    flat, nothing = _flat(b, x), b.full((0,), 0, DType.I64)
    starts, number, counts = _runs(b, flat)
    found = b.op("take", flat, starts, dims=(0,), at=0)
    return found, b.reshape(number, x.shape) if return_inverse else nothing, counts if return_counts else nothing


@converts("aten.repeat_interleave.Tensor")
def _repeats(b: Builder, repeats: Value, *, output_size: Any = None) -> Value:
    """[N] -> the index of each element, as often as its number says. Sorted: a step up where an element's end lies."""
    count = b.to(repeats, DType.I64)
    b.multi("assert", b.pw("le", 0, count), message="repeats of repeat_interleave are not negative")
    total = b.reduce(count, "sum", [0], False)
    size = b.read(total, None) if output_size is None else output_size
    if output_size is not None:
        b.multi("assert", b.pw("eq", total, size), message="output_size is the sum of the repeats")
    ends = b.op("scan", count, kind="sum", dim=0)
    steps = b.full((ex.as_expr(size) + 1,), 0, DType.I64)
    marked = b.op("scatter", steps, ends, b.full(ends.shape, 1, DType.I64), dim=0, reduce="sum")
    found = b.slice(b.op("scan", marked, kind="sum", dim=0), 0, 0, size)
    return b.to(found, repeats.dtype)


@converts("aten.bincount.default")
def _bincount(b: Builder, x: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    index = b.to(x, DType.I64)
    b.multi("assert", b.pw("le", 0, index), message="bincount takes no negative numbers")
    top = b.reduce(index, "max", [0], False, empty_ok=True)  # of nothing the lowest number
    size = b.read(b.pw("max", b.pw("add", b.pw("max", top, -1), 1), int(minlength)), None)
    dtype = DType.I64 if weights is None else DType.F32 if weights.dtype is DType.F32 else DType.F64
    ones = b.full(index.shape, 1, DType.I64) if weights is None else b.to(weights, dtype)
    return b.op("scatter", b.full((size,), 0, dtype), index, ones, dim=0, reduce="sum")
