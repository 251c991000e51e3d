"""Lowering of reductions and of ops that look at a window: reduce, pools, resize."""

from __future__ import annotations

from itertools import product as combinations

from hardtack.codegen.ir.expr import Expr, as_expr, const, floordiv, int_value, maximum, minimum
from hardtack.codegen.ir.graph import Lit, Op
from hardtack.codegen.ir.loops import Arg
from hardtack.codegen.ir.types import INT_RANGE, DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder, lit_of, start
from hardtack.codegen.lower.views import ONE, ZERO, Idx


def lowest(dtype: DType) -> Lit:
    """The identity of max."""
    if dtype.is_float:
        return Lit(float("-inf"), dtype)
    return Lit(False, dtype) if dtype is DType.BOOL else Lit(INT_RANGE[dtype][0], dtype)


def lower_reduce(low: Lowering, op: Op) -> None:
    x = op.inputs[0]
    assert isinstance(x, str)
    b, out, index = start(low, op)
    shape = low.graph.types[x].shape
    kind, dims = str(op.attr("kind")), op.attr("dims")
    assert isinstance(dims, tuple)
    kept = list(index)
    if op.attr("keepdim"):
        kept = [i for d, i in enumerate(index) if d not in dims]
    base = low.buffers.get(x)
    order = base.order if base is not None else tuple(range(len(shape)))
    reduced = {d: b.axis(shape[d], "reduce") for d in order if d in dims}
    source: Idx = tuple(reduced[d] if d in dims else kept.pop(0) for d in range(len(shape)))
    value = b.load(x, source)
    args: tuple[Arg, ...] = (value,)
    if kind in ("argmax", "argmin"):
        args = (value, b.index(reduced[dims[0]]))
    if not b.axes or all(a.kind == "parallel" for a in b.axes):
        # every reduced dimension has size 1
        b.store(out.name, index, args[-1] if kind.startswith("arg") else value)
    else:
        b.store(out.name, index, b.reduce(kind, *args, dtype=out.dtype))
    b.done()


def _window(low: Lowering, op: Op, b: NestBuilder, index: Idx, other: Lit) -> tuple[Arg, list[Expr]]:
    """One element of a pooling window, masked outside the input, and its spatial index."""
    x = op.inputs[0]
    assert isinstance(x, str)
    shape = low.graph.types[x].shape
    kernel, stride, padding, dilation = (op.attr(k) for k in ("kernel", "stride", "padding", "dilation"))
    taps = [b.axis(as_expr(k), "reduce") for k in kernel]  # type: ignore[attr-defined]
    where = [
        o * s - p[0] + t * d
        for o, s, p, t, d in zip(index[2:], stride, padding, taps, dilation, strict=True)  # type: ignore[call-overload]
    ]
    conditions = [c for i, n in zip(where, shape[2:], strict=True) for c in b.inside(i, n)]
    return b.load(x, (*index[:2], *where), b.all_of(conditions), other), where


def lower_pool(low: Lowering, op: Op) -> None:
    b, out, index = start(low, op)
    if op.attr("kind") == "max":
        value, _ = _window(low, op, b, index, lowest(out.dtype))
        b.store(out.name, index, _reduced(b, "max", value, dtype=out.dtype))
        b.done()
        return
    value, _ = _window(low, op, b, index, lit_of(0, out.dtype))
    total = _reduced(b, "sum", value, dtype=out.dtype)
    count = b.index(_count(low, op, index))
    b.store(
        out.name,
        index,
        b.compute("div", total, b.cast(count, out.dtype))
        if isinstance(count, str)
        else b.compute("mul", total, lit_of(1.0 / count.value, out.dtype)),
    )
    b.done()


def _reduced(b: NestBuilder, kind: str, *args: Arg, dtype: DType) -> Arg:
    """A reduction, or the value itself where the window has one element."""
    return b.reduce(kind, *args, dtype=dtype) if any(a.kind == "reduce" for a in b.axes) else args[0]


def _count(low: Lowering, op: Op, index: Idx) -> Expr:
    """What an average divides by: see the `count` attribute of pool in ir/graph.py."""
    count = op.attr("count")
    if isinstance(count, int):
        return const(count)
    x = op.inputs[0]
    assert isinstance(x, str)
    sizes = low.graph.types[x].shape[2:]
    total: Expr = ONE
    rows = zip(index[2:], op.attr("kernel"), op.attr("stride"), op.attr("padding"), sizes, strict=True)  # type: ignore[call-overload]
    for o, k, s, p, n in rows:
        first = o * s - p[0]
        if count == "kernel":
            total = total * k
        elif count == "padded":
            total = total * (minimum(first + k, n + p[0]) - first)
        else:
            total = total * (minimum(first + k, n) - maximum(first, 0))
    return total


def lower_pool_index(low: Lowering, op: Op) -> None:
    b, out, index = start(low, op)
    x = op.inputs[0]
    assert isinstance(x, str)
    value, where = _window(low, op, b, index, lowest(low.graph.types[x].dtype))
    flat: Expr = ZERO
    for i, n in zip(where, low.graph.types[x].shape[2:], strict=True):
        flat = flat * n + i
    b.store(
        out.name,
        index,
        _reduced(b, "argmax", value, b.index(flat), dtype=DType.I64)
        if any(a.kind == "reduce" for a in b.axes)
        else b.index(flat),
    )
    b.done()


def lower_adaptive_pool(low: Lowering, op: Op) -> None:
    """Output o takes the inputs from floor(o*n/m) to ceil((o+1)*n/m)."""
    b, out, index = start(low, op)
    x = op.inputs[0]
    assert isinstance(x, str)
    sizes = low.graph.types[x].shape[2:]
    where: list[Expr] = []
    conditions: list[str] = []
    count: Expr = ONE
    for o, n, m in zip(index[2:], sizes, out.shape[2:], strict=True):
        first, end = floordiv(o * n, m), floordiv((o + 1) * n + m - 1, m)
        width = end - first
        longest = width if int_value(width) is not None or m is ONE else floordiv(n + m - 1, m) + 1
        i = first + b.axis(n if m is ONE else longest, "reduce")
        if longest is not width and m is not ONE:
            conditions.append(b.compute("lt", b.index(i), b.index(end)))
        where.append(i)
        count = count * (n if m is ONE else width)
    is_max = op.attr("kind") == "max"
    other = lowest(out.dtype) if is_max else lit_of(0, out.dtype)
    value = b.load(x, (*index[:2], *where), b.all_of(conditions), other)
    result = _reduced(b, "max" if is_max else "sum", value, dtype=out.dtype)
    if not is_max:
        result = (
            b.compute("div", result, b.cast(b.index(count), out.dtype))
            if int_value(count) is None
            else (b.compute("mul", result, lit_of(1.0 / (int_value(count) or 1), out.dtype)))
        )
    b.store(out.name, index, result)
    b.done()


def lower_resize(low: Lowering, op: Op) -> None:
    """Each output element is a weighted sum of the product of per-dimension taps."""
    b, out, index = start(low, op)
    x = op.inputs[0]
    assert isinstance(x, str)
    sizes = low.graph.types[x].shape[2:]
    scales = op.attr("scales")
    assert isinstance(scales, tuple)
    taps = [
        _taps(b, str(op.attr("mode")), bool(op.attr("align_corners")), o, n, m, s)
        for o, n, m, s in zip(index[2:], sizes, out.shape[2:], scales, strict=True)
    ]
    total: Arg | None = None
    for choice in combinations(*taps):
        value = b.load(x, (*index[:2], *(at for at, _ in choice)))
        value = b.cast(value, DType.F32) if any(w is not None for _, w in choice) else value
        for _, weight in choice:
            if weight is not None:
                value = b.compute("mul", value, weight)
        total = value if total is None else b.compute("add", total, value)
    assert total is not None
    b.store(out.name, index, b.cast(total, out.dtype))
    b.done()


Tap = tuple[Expr, Arg | None]


def _taps(b: NestBuilder, mode: str, align_corners: bool, o: Expr, n: Expr, m: Expr, scale: object) -> list[Tap]:
    """(source index, weight) for one dimension of n inputs and m outputs, at output index o."""
    if n is m and scale in (None, 1.0):
        return [(o, None)]
    if mode == "nearest":
        whole = _whole_factor(n, m, scale)
        if whole is not None:
            return [(floordiv(o, whole), None)]
    position = _position(b, mode, align_corners, o, n, m, scale)
    last = b.index(n - 1)
    if mode.startswith("nearest"):
        at = b.compute("min", b.compute("cast", b.compute("floor", position), dtype=DType.I64), last)
        return [(b.check(at, n), None)]
    floor = b.compute("floor", position)
    fraction = b.compute("sub", position, floor)
    first = b.compute("cast", floor, dtype=DType.I64)
    one = Lit(1.0, DType.F32)
    weights = [b.compute("sub", one, fraction), fraction] if mode == "linear" else _cubic(b, fraction)
    start_at = 0 if mode == "linear" else -1
    out: list[Tap] = []
    for k, w in enumerate(weights):
        at = b.compute("add", first, Lit(k + start_at, DType.I64))
        at = b.compute("max", b.compute("min", at, last), Lit(0, DType.I64))
        out.append((b.check(at, n), w))
    return out


def _whole_factor(n: Expr, m: Expr, scale: object) -> int | None:
    """k where m = k * n and the scale, if the user gave one, is k, too."""
    for k in (2, 3, 4, 8, 16):
        if m is n * k and scale in (None, float(k)):
            return k
    return None


def _position(b: NestBuilder, mode: str, align_corners: bool, o: Expr, n: Expr, m: Expr, scale: object) -> Arg:
    """The source coordinate, in f32 as torch computes it."""
    f32 = DType.F32
    at, size_in, size_out = (b.cast(_as_value(b, e), f32) for e in (o, n, m))
    if mode != "nearest" and mode != "nearest-exact" and align_corners:
        if int_value(m) == 1:
            return Lit(0.0, f32)
        spacing = b.compute("div", b.cast(_as_value(b, n - 1), f32), b.cast(_as_value(b, m - 1), f32))
        return b.compute("mul", at, spacing)
    step: Arg = Lit(1.0 / float(scale), f32) if isinstance(scale, (int, float)) else b.compute("div", size_in, size_out)
    if mode == "nearest":
        return b.compute("mul", at, step)
    half = Lit(0.5, f32)
    centre = b.compute("mul", b.compute("add", at, half), step)
    if mode == "nearest-exact":
        return centre
    position = b.compute("sub", centre, half)
    return position if mode == "cubic" else b.compute("max", position, Lit(0.0, f32))


def _as_value(b: NestBuilder, e: Expr) -> Arg:
    value = b.index(e)
    return value if isinstance(value, str) else Lit(float(value.value), DType.F32)


def _cubic(b: NestBuilder, t: Arg) -> list[Arg]:
    """Keys' cubic convolution weights with a = -0.75, for taps at -1, 0, 1, 2."""
    a = -0.75
    f32 = DType.F32

    def poly(x: Arg, *coefficients: float) -> Arg:
        result: Arg = Lit(coefficients[0], f32)
        for c in coefficients[1:]:
            result = b.compute("add", b.compute("mul", result, x), Lit(c, f32))
        return result

    one = Lit(1.0, f32)
    far, near = (a, -5 * a, 8 * a, -4 * a), (a + 2, -(a + 3), 0.0, 1.0)
    u = b.compute("sub", one, t)
    return [
        poly(b.compute("add", t, one), *far),
        poly(t, *near),
        poly(u, *near),
        poly(b.compute("add", u, one), *far),
    ]
