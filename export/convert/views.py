"""Views and data movement by position: reshape, permute, slice, cat, pad, flip, and the ops that only rename a
tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.expr import Expr, as_expr, const, int_value
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Number, Result, Size, Value, converts
from hardtack.exporter.dtypes import from_torch
from hardtack.exporter.errors import Refusal


@converts(
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    "aten.unsqueeze.default",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
    "aten.view_copy.default",
    "aten._reshape_alias.default",
)
def _reshaped(b: Builder, x: Value, *_: Any, **__: Any) -> Value:
    """The same elements in row-major order; torch has worked out the shape."""
    shape = b.result.shape
    b.require("eq", ex.product(x.shape), ex.product(shape), "a view has as many elements")
    return b.reshape(x, shape)


@converts("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def _squeezed(b: Builder, x: Value, dims: int | Sequence[int] | None = None) -> Value:
    """x without the named dims of size 1, by default all. A dynamic one goes or stays as it did in the example."""
    named = range(x.rank) if dims is None else [dims] if isinstance(dims, int) else dims
    for dim in named:
        if x.rank and int_value(x.shape[dim]) is None:
            if b.traced(x.shape[dim]) == 1:
                b.require("eq", x.shape[dim], 1, "squeeze drops the dimension")
            else:
                b.require("ne", x.shape[dim], 1, "squeeze would drop a dimension of size 1")
    return b.reshape(x, b.result.shape)


@converts(
    "aten.clone.default",
    "prims.copy_strided.default",
    "aten.contiguous.default",
    "aten.alias.default",
    "aten.detach.default",
    "aten.lift_fresh_copy.default",
    "aten.lift_fresh.default",
    "aten.detach_.default",
    "aten.positive.default",
    "aten.resolve_conj.default",
    "aten.resolve_neg.default",
    "aten.real.default",
    "aten.conj.default",
    "aten._conj.default",
)
def _unchanged(b: Builder, x: Value, *args: Any, **kwargs: Any) -> Value:
    """A copy of a value is that value."""
    return x


@converts(
    "aten._to_copy.default",
    "aten.to.dtype",
    "aten.to.dtype_layout",
    "aten.to.device",
    "aten.type_as.default",
    "prims.convert_element_type.default",
)
def _to(b: Builder, x: Any, *_: Any, **__: Any) -> Value:
    """x: a number where torch's own decompositions convert one, under vmap."""
    return b.to(x, b.result.dtype) if isinstance(x, Value) else b.full((), x, b.result.dtype)


@converts("aten.view.dtype")
def _view_dtype(b: Builder, x: Value, dtype: Any) -> Value:
    target = from_torch(dtype)
    if target is x.dtype:
        return x
    if target.nbytes != x.dtype.nbytes or DType.BOOL in (target, x.dtype):
        raise Refusal(f"reading {x.dtype} as {target} changes the number of elements")
    return b.op("bitcast", x, dtype=target)


@converts("aten.permute.default")
def _permute(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    return b.permute(x, dims)


@converts("aten.t.default", "aten.numpy_T.default", "aten.mT.default")
def _t(b: Builder, x: Value) -> Value:
    return b.swap(x, -1, -2) if x.rank >= 2 else x


@converts("aten.transpose.int")
def _transpose(b: Builder, x: Value, dim0: int, dim1: int) -> Value:
    return b.swap(x, dim0, dim1) if x.rank else x


@converts("aten.movedim.intlist", "aten.movedim.int")
def _movedim(b: Builder, x: Value, source: Any, destination: Any) -> Value:
    pairs = [(source, destination)] if isinstance(source, int) else list(zip(source, destination, strict=True))
    moved = {d % x.rank: s % x.rank for s, d in pairs}
    rest = iter(i for i in range(x.rank) if i not in moved.values())
    return b.permute(x, [moved[i] if i in moved else next(rest) for i in range(x.rank)])


@converts("aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default", "aten.expand_copy.default")
def _expand(b: Builder, x: Value, *_: Any, **__: Any) -> Value:
    return b.expand(x, b.result.shape)


@converts("aten.repeat.default")
def _repeat(b: Builder, x: Value, repeats: Sequence[Size]) -> Value:
    """Each dim of n becomes (r, n) by broadcasting, then r * n by reshaping."""
    shape = (const(1),) * (len(repeats) - x.rank) + x.shape
    split: list[Size] = []
    target: list[Size] = []
    for size, count in zip(shape, repeats, strict=True):
        split += [1, size]
        target += [count, size]
    return b.reshape(b.expand(b.reshape(x, split), target), b.result.shape)


@converts("aten.tile.default")
def _tile(b: Builder, x: Value, dims: Sequence[Size]) -> Value:
    return _repeat(b, x, [1] * (x.rank - len(dims)) + list(dims))


def counts_from_end(b: Builder, index: Expr) -> bool:
    """True for an index that is negative: by the bounds of its sizes, else as it was for the sizes that torch traced
    with. Torch has settled all shapes by that reading, so it becomes an input check.
    """
    lo, hi = ex.bounds(index)
    if lo is not None and lo >= 0:
        return False
    if hi is not None and hi < 0:
        return True
    traced = b.traced(index)
    if traced is None:
        raise Refusal(f"the index {index} may be negative or not, depending on sizes")
    if traced < 0:
        b.require("lt", index, 0, f"{b.origin.op} counts from the end")
    else:
        b.require("le", 0, index, f"{b.origin.op} counts from the start")
    return traced < 0


@converts("aten.slice.Tensor", "aten.slice_copy.Tensor")
def _slice(b: Builder, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: Size = 1) -> Value:
    at = dim % x.rank
    if isinstance(step, Number):
        raise Refusal("a slice has a step that the run computes")
    if isinstance(step, Expr):
        b.require("le", 1, step, "the step of a slice is positive")
    if not b.stated:
        return _cut(b, x, at, start, end, step)
    if isinstance(start, Number):
        return b.op("take", x, positions(b, start, b.result.shape[at], step), dims=(at,), at=at)
    first = slice_start(b, (start, end, step), x.shape[at], b.result.shape[at])
    if isinstance(step, Expr):
        return b.op("take", x, positions(b, first, b.result.shape[at], step), dims=(at,), at=at)
    return b.slice(x, at, first, b.result.shape[at], step)


def _cut(b: Builder, x: Value, dim: int, start: Any, end: Any, step: Size) -> Value:
    """A slice whose length the run computes: its bounds as Python takes them, cut where the dimension ends."""
    first = _within(b, 0 if start is None else start, x.shape[dim])
    stop = _within(b, x.shape[dim] if not isinstance(end, Number) and _is_open(end) else end, x.shape[dim])
    span = b.pw("max", b.pw("sub", stop, first), 0)
    length = b.pw("floordiv", b.pw("add", span, as_expr(step) - 1), step)
    size = b.read(length, int_value(x.shape[dim]))
    return b.op("take", x, positions(b, first, size, step), dims=(dim,), at=dim)


def _within(b: Builder, index: Any, size: Expr) -> Value:
    """An index as an i64 scalar; from the end if it is negative, and no further than the ends."""
    at = b.tensor(b.cast(index, DType.I64))
    index_from_start = b.where(b.pw("lt", at, 0), b.pw("add", at, size), at, DType.I64)
    return b.pw("min", b.pw("max", index_from_start, 0), size)


def positions(b: Builder, start: Value | Expr, length: Expr, step: Size) -> Value:
    """The indices of a slice that begins at a number of the run, or of the sizes; that it lies inside torch asserts."""
    return b.pw("add", b.pw("mul", b.iota(length), step), start)


def slice_start(b: Builder, bounds: tuple[Any, Any, Size], size: Expr, length: Expr) -> Expr:
    """The first index of the slice [start:end:step] of a dimension, which has `length` elements for the sizes that
    torch traced with.

    For others, a bound may lie outside of the dimension where it lay inside, or the reverse, and the slice be shorter
    or longer. What keeps the length as it is becomes an input check.
    """
    start, end, step = bounds
    if isinstance(end, Number):
        raise Refusal("a slice ends at a number that the run computes")
    first = _SliceBound(const(0), const(0), None) if start is None else _slice_bound(b, start, size)
    stop = _SliceBound(size, size, None) if _is_open(end) else _slice_bound(b, end, size)
    if first is None or stop is None:  # of sizes that are data: the slice lies inside, or is refused
        return as_expr(start or 0)
    empty = int_value(length) == 0
    if empty or _count(first.traced, stop.traced, step) is length:
        for bound in (first, stop):
            if bound.outside is not None:
                b.require("le", *bound.outside, f"{b.origin.op} is cut where its input ends")
        if empty:
            b.require("le", stop.traced, first.traced, f"{b.origin.op} is empty")
        return const(0) if empty else first.traced
    count = ex.maximum(_count(first.limited, stop.limited, step), 0)
    b.require("eq", count, length, f"{b.origin.op} has the size that torch traced")
    return first.limited


@dataclass(frozen=True)
class _SliceBound:
    """A bound of a slice. `traced`: as for the sizes that torch traced with, which holds for others while the first of
    `outside` is at most the second (always, if None). `limited`: for all sizes.
    """

    traced: Expr
    limited: Expr
    outside: tuple[Expr, Expr] | None


def _slice_bound(b: Builder, index: Size, size: Expr) -> _SliceBound | None:
    """None where torch has kept no sizes that it traced with."""
    e = as_expr(index)
    from_end = counts_from_end(b, e)
    at, limit = (e + size, const(0)) if from_end else (e, size)
    limited = ex.maximum(at, limit) if from_end else ex.minimum(at, limit)
    outside = (at, limit) if from_end else (limit, at)
    room = b.traced(outside[1] - outside[0])
    if room is None:
        return None
    return _SliceBound(limit, limited, outside) if room > 0 else _SliceBound(at, limited, None)


_OPEN_END = 2**62
"""torch writes x[n:] as x[n : 2**63 - 1]."""


def _is_open(end: Any) -> bool:
    return end is None or (int_value(as_expr(end)) or 0) >= _OPEN_END


def _count(first: Expr, stop: Expr, step: Size) -> Expr:
    """How many elements lie between two bounds."""
    return ex.floordiv(stop - first + (as_expr(step) - 1), step)


@converts("aten.narrow.default")
def _narrow(b: Builder, x: Value, dim: int, start: Size, length: Size) -> Value:
    at = dim % x.rank
    return b.slice(x, at, wrapped(b, start, x.shape[at]), length)


@converts("aten.select.int", "aten.select_copy.int")
def _select(b: Builder, x: Value, dim: int, index: Size) -> Value:
    at = dim % x.rank
    if isinstance(index, Number):
        return b.op("take", x, index, dims=(at,), at=at)
    return b.select(x, at, wrapped(b, index, x.shape[at]))


def wrapped(b: Builder, index: Size, size: Expr) -> Expr:
    """A single index, negative from the end."""
    e = as_expr(index)
    return e + size if counts_from_end(b, e) else e


@converts("aten.split_with_sizes.default", "aten.split_with_sizes_copy.default")
def _split_sizes(b: Builder, x: Value, split_sizes: Sequence[Size], dim: int = 0) -> Result:
    parts: list[Value] = []
    at: Expr = const(0)
    for size in split_sizes:
        parts.append(b.slice(x, dim % x.rank, at, size))
        at = at + as_expr(size)
    return parts


@converts("aten.split.Tensor", "aten.chunk.default", "aten.tensor_split.sections")
def _split(b: Builder, x: Value, split_size: Size, dim: int = 0) -> Result:
    lengths = [t.shape[dim % x.rank] for t in b.stated if t is not None]
    return _split_sizes(b, x, lengths, dim)


@converts("aten.unbind.int")
def _unbind(b: Builder, x: Value, dim: int = 0) -> Result:
    return [b.select(x, dim % x.rank, i) for i in range(len(b.stated))]


@converts("aten.cat.default")
def _cat(b: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Parts of another dtype are promoted; the legacy empty vectors of shape [0] are left out."""
    parts = [t for t in tensors if not (t.rank == 1 and int_value(t.shape[0]) == 0)] or list(tensors[:1])
    return b.cat([b.to(t, b.result.dtype) for t in parts], dim)


@converts("aten.stack.default")
def _stack(b: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    parts = [b.unsqueeze(b.to(t, b.result.dtype), dim) for t in tensors]
    return b.cat(parts, dim % (tensors[0].rank + 1))


@converts("aten.constant_pad_nd.default")
def _constant_pad(b: Builder, x: Value, pad: Sequence[Size], value: Any = 0) -> Value:
    lo, hi = _widths(x, pad)
    for size, before, after in zip(x.shape, lo, hi, strict=True):
        cut = ex.minimum(as_expr(before), 0) + ex.minimum(as_expr(after), 0)
        b.require("le", 0, size + cut, "a negative padding cuts off what is there")
    return b.pad(x, lo, hi, value)


def _widths(x: Value, pad: Sequence[Size]) -> tuple[list[Size], list[Size]]:
    """torch's padding list (last dim first) as widths before and after, one a dim."""
    lo: list[Size] = [0] * x.rank
    hi: list[Size] = [0] * x.rank
    for i in range(len(pad) // 2):
        lo[x.rank - 1 - i], hi[x.rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return lo, hi


@converts(*(f"aten.reflection_pad{n}d.default" for n in (1, 2, 3)), mode="reflect")
@converts(*(f"aten.replication_pad{n}d.default" for n in (1, 2, 3)), mode="replicate")
def _mirrored_pad(b: Builder, x: Value, padding: Sequence[Size], *, mode: str) -> Value:
    lo, hi = _widths(x, padding)
    return _moded_pad(b, x, lo, hi, mode)


def _moded_pad(b: Builder, x: Value, lo: list[Size], hi: list[Size], mode: str) -> Value:
    for size, before, after in zip(x.shape, lo, hi, strict=True):
        if int_value(before) == 0 and int_value(after) == 0:
            continue
        for width in (before, after):
            limit = as_expr(width) + 1 if mode == "reflect" else as_expr(width) if mode == "circular" else const(1)
            b.require("le", limit, size, f"{mode} padding by {width}")
    return b.op("pad", x, lo=tuple(lo), hi=tuple(hi), mode=mode)


@converts("aten._pad_enum.default", "aten.pad.default")
def _pad(b: Builder, x: Value, pad: Sequence[Size], mode: Any = "constant", value: Any = None) -> Value:
    names = {0: "constant", 1: "reflect", 2: "replicate", 3: "circular"}
    kind = names[mode] if isinstance(mode, int) else mode
    lo, hi = _widths(x, pad)
    return b.pad(x, lo, hi, value or 0) if kind == "constant" else _moded_pad(b, x, lo, hi, kind)


@converts("aten.flip.default")
def _flip(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    order = tuple(sorted(d % x.rank for d in dims)) if x.rank else ()
    return b.op("flip", x, dims=order) if order else x


@converts("aten.roll.default")
def _roll(b: Builder, x: Value, shifts: Sequence[Size], dims: Sequence[int] = ()) -> Value:
    """The last `shift` elements moved to the front, dim by dim; without dims, of the flattened tensor."""
    if not dims:
        flat = b.reshape(x, (ex.product(x.shape),))
        return b.reshape(_rolled(b, flat, shifts[0], 0), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(b, x, shift, dim % x.rank)
    return x


def _rolled(b: Builder, x: Value, shift: Size | Number, dim: int) -> Value:
    size = x.shape[dim]
    if isinstance(shift, Number):
        index = b.pw("remainder", b.pw("sub", b.iota(size), shift), ex.maximum(size, 1))
        return b.op("take", x, index, dims=(dim,), at=dim)
    if int_value(size) == 0:
        return x
    by = ex.mod(as_expr(shift), size if int_value(size) else ex.maximum(size, 1))
    if int_value(by) == 0:
        return x
    return b.cat([b.slice(x, dim, size - by, by), b.slice(x, dim, 0, size - by)], dim)


@converts("aten.unfold.default")
def _unfold(b: Builder, x: Value, dimension: int, size: int, step: int) -> Value:
    """Windows of `size` every `step`: dim becomes their count, their elements come last."""
    if x.rank == 0:
        return b.reshape(x, b.result.shape)
    dim = dimension % x.rank
    b.require("le", size, x.shape[dim], "a window of unfold fits into its input")
    count = b.result.shape[dim]
    starts = b.pw("mul", b.iota(count), step)
    index = b.pw("add", b.unsqueeze(starts, 1), b.iota(size))
    taken = b.op("take", x, index, dims=(dim,), at=dim)
    order = [i for i in range(taken.rank) if i != dim + 1] + [dim + 1]
    return b.permute(taken, order)


@converts("aten.pixel_shuffle.default")
def _pixel_shuffle(b: Builder, x: Value, upscale_factor: int) -> Value:
    """[.., C r^2, H, W] to [.., C, H r, W r]."""
    r, n = upscale_factor, x.rank
    channels = b.result.shape[-3]
    split = b.reshape(x, (*x.shape[:-3], channels, r, r, x.shape[-2], x.shape[-1]))
    at = n - 3
    order = [*range(at), at, at + 3, at + 1, at + 4, at + 2]
    return b.reshape(b.permute(split, order), b.result.shape)


@converts("aten.pixel_unshuffle.default")
def _pixel_unshuffle(b: Builder, x: Value, downscale_factor: int) -> Value:
    """[.., C, H r, W r] to [.., C r^2, H, W]."""
    r, at = downscale_factor, x.rank - 3
    for size in x.shape[-2:]:
        b.require("eq", ex.mod(size, r), 0, f"pixel_unshuffle by {r}")
    height, width = (ex.floordiv(size, r) for size in x.shape[-2:])
    split = b.reshape(x, (*x.shape[:-2], height, r, width, r))
    shape = (*x.shape[:-3], x.shape[-3] * r * r, height, width)
    return b.reshape(b.permute(split, [*range(at), at, at + 2, at + 4, at + 1, at + 3]), shape)
