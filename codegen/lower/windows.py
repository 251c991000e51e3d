"""Lowering of reductions and of ops that look at a window: reduce, pools."""

from __future__ import annotations

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, as_expr, const, floordiv, int_value, maximum, minimum
from hardtack.codegen.ir.graph import Lit, Op
from hardtack.codegen.ir.loops import Arg
from hardtack.codegen.ir.types import INT_RANGE, DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder, lit_of, start
from hardtack.codegen.lower.operands import sum_of_constant
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.views import Idx


def lowest(dtype: DType) -> Lit:
    """The identity of max."""
    if dtype.is_float:
        return Lit(float("-inf"), dtype)
    return Lit(False, dtype) if dtype is DType.BOOL else Lit(INT_RANGE[dtype][0], dtype)


@lowers("reduce")
def lower_reduce(low: Lowering, op: Op) -> None:
    x = op.value(0)
    if sum_of_constant(low, op):
        return
    b, out, index = start(low, op)
    shape = low.graph.types[x].shape
    kind, dims = op.str_attr("kind"), op.tuple_attr("dims")
    kept = list(index)
    if op.bool_attr("keepdim"):
        kept = [i for d, i in enumerate(index) if d not in dims]
    base = low.buffers.get(x)
    order = base.order if base is not None else tuple(range(len(shape)))
    reduced = {d: b.axis(shape[d], "reduce") for d in order if d in dims}
    source: Idx = tuple(reduced[d] if d in dims else kept.pop(0) for d in range(len(shape)))
    value = b.cast(b.load(x, source), out.dtype) if kind == "sum" else b.load(x, source)
    args: tuple[Arg, ...] = (value,)
    if kind in ("argmax", "argmin"):
        args = (value, b.index(reduced[dims[0]]))
    if not b.axes or all(a.kind == "parallel" for a in b.axes):
        # every reduced dimension has size 1; a sum begins at 0, to which -0 adds nothing
        single = b.compute("add", value, Lit(0.0, out.dtype)) if kind == "sum" and out.dtype.is_float else value
        b.store(out.name, index, args[-1] if kind.startswith("arg") else single)
    else:
        b.store(out.name, index, b.reduce(kind, *args, dtype=out.dtype))
    b.done()


def _window(low: Lowering, op: Op, b: NestBuilder, index: Idx, other: Lit) -> tuple[Arg, list[Expr], str | None]:
    """One element of a pooling window, masked outside the input; its spatial index; the mask."""
    x = op.value(0)
    shape = low.graph.types[x].shape
    kernel, stride, padding, dilation = (op.tuple_attr(k) for k in ("kernel", "stride", "padding", "dilation"))
    taps = [b.axis(as_expr(k), "reduce") for k in kernel]
    where = [o * s - p[0] + t * d for o, s, p, t, d in zip(index[2:], stride, padding, taps, dilation, strict=True)]
    conditions = [c for i, n in zip(where, shape[2:], strict=True) for c in b.inside(i, n)]
    mask = b.all_of(conditions)
    return b.load(x, (*index[:2], *where), mask, other), where, mask


@lowers("pool")
def lower_pool(low: Lowering, op: Op) -> None:
    b, out, index = start(low, op)
    if op.str_attr("kind") == "max":
        value, _, _ = _window(low, op, b, index, lowest(out.dtype))
        b.store(out.name, index, _reduced(b, "max", value, dtype=out.dtype))
        b.done()
        return
    value, _, _ = _window(low, op, b, index, lit_of(0, out.dtype))
    b.store(out.name, index, b.cast(_average(b, b.total(b.wide(value)), _count(low, op, index)), out.dtype))
    b.done()


def _average(b: NestBuilder, total: Arg, count: Expr) -> Arg:
    """total / count in total's type; by a constant as a product. Integers are rounded towards zero."""
    dtype, known = b.dtype(total), int_value(count)
    if not dtype.is_float:
        return b.compute("truncdiv", total, b.cast(b.index(count), dtype))
    if known is not None:
        return b.compute("mul", total, lit_of(1.0 / known, dtype))
    return b.compute("div", total, b.cast(b.index(count), dtype))


def _reduced(b: NestBuilder, kind: str, *args: Arg, dtype: DType) -> Arg:
    """A reduction, or the value itself where the window has one element."""
    return b.reduce(kind, *args, dtype=dtype) if any(a.kind == "reduce" for a in b.axes) else args[0]


def _count(low: Lowering, op: Op, index: Idx) -> Expr:
    """What an average divides by: see the `count` attribute of pool in ir/graph.py."""
    count = op.attr("count")
    if isinstance(count, int):
        return const(count)
    x = op.value(0)
    sizes = low.graph.types[x].shape[2:]
    total: Expr = ONE
    kernel, stride, padding = (op.tuple_attr(k) for k in ("kernel", "stride", "padding"))
    for o, k, s, p, n in zip(index[2:], kernel, stride, padding, sizes, strict=True):
        first = o * s - p[0]
        if count == "kernel":
            total = total * k
        elif count == "padded":
            total = total * (minimum(first + k, n + p[0]) - first)
        else:
            total = total * (minimum(first + k, n) - maximum(first, 0))
    return total


@lowers("pool_index")
def lower_pool_index(low: Lowering, op: Op) -> None:
    b, out, index = start(low, op)
    x = op.value(0)
    value, where, mask = _window(low, op, b, index, lowest(low.graph.types[x].dtype))
    flat: Expr = ZERO
    for i, n in zip(where, low.graph.types[x].shape[2:], strict=True):
        flat = flat * n + i
    if all(a.kind == "parallel" for a in b.axes):
        b.store(out.name, index, b.index(flat))
        b.done()
        return
    place: Arg = b.index(flat)
    if mask is not None:  # what lies outside comes after its equals
        place = b.compute("where", mask, place, Lit(INT_RANGE[DType.I64][1], DType.I64))
    found = b.reduce("argmax", value, place, dtype=DType.I64)
    if low.graph.types[x].dtype.is_float:  # each NaN takes over, as in torch
        broken = b.compute("where", b.compute("isnan", value), b.index(flat), Lit(-1, DType.I64))
        last = b.reduce("max", broken, dtype=DType.I64)
        found = b.compute("where", b.compute("ge", last, Lit(0, DType.I64)), last, found)
    b.store(out.name, index, found)
    b.done()


@lowers("adaptive_pool")
def lower_adaptive_pool(low: Lowering, op: Op) -> None:
    """Output o takes the inputs from floor(o*n/m) to ceil((o+1)*n/m)."""
    b, out, index = start(low, op)
    x = op.value(0)
    sizes = low.graph.types[x].shape[2:]
    where: list[Expr] = []
    conditions: list[str] = []
    count: Expr = ONE
    for o, n, outputs in zip(index[2:], sizes, out.shape[2:], strict=True):
        m = maximum(outputs, ONE)  # without outputs no window is asked for
        first, end = floordiv(o * n, m), floordiv((o + 1) * n + m - 1, m)
        width = end - first
        longest = width if int_value(width) is not None or m is ONE else floordiv(n + m - 1, m) + 1
        i = first + b.axis(n if m is ONE else longest, "reduce")
        if longest is not width and m is not ONE:
            conditions.append(b.compute("lt", b.index(i), b.index(end)))
        where.append(i)
        count = count * (n if m is ONE else width)
    is_max = op.str_attr("kind") == "max"
    other = lowest(out.dtype) if is_max else lit_of(0, out.dtype)
    value = b.load(x, (*index[:2], *where), b.all_of(conditions), other)
    if is_max:
        result = _reduced(b, "max", value, dtype=out.dtype)
    else:
        result = _average(b, b.total(b.wide(value)), count)
    b.store(out.name, index, b.cast(result, out.dtype))
    b.done()
