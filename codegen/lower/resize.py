"""Lowering of resize: each output element is a weighted sum of the product of one-dimensional taps.

Positions are torch's: from the scale that the user gave, else from the sizes, in f64 for f64 images and in f32 for all
others. For images of two dims torch has a second kernel, for small results, that treats equal and doubled sizes apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as combinations

from hardtack.codegen.ir.expr import Expr, bounds, floordiv, int_value
from hardtack.codegen.ir.graph import Lit, Op
from hardtack.codegen.ir.loops import Arg
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder, start
from hardtack.codegen.lower.rules import lowers

SMALL = 128
"""Height and width of a result that torch's kernel for small results takes, together."""

Tap = tuple[Expr, Arg]
"""Source index and weight."""

Known = str | bool
"""A condition: a bool value of the nest, or known when the program is made."""


@dataclass(frozen=True)
class Dim:
    """Output index `o` of a dimension of n inputs and m outputs; scale: what the user gave.

    work: the float type of positions and weights. small: torch's kernel for small results computes the dimension.
    """

    o: Expr
    n: Expr
    m: Expr
    scale: float | None
    work: DType
    small: Known


@lowers("resize")
def lower_resize(low: Lowering, op: Op) -> None:
    b, out, index = start(low, op)
    x = op.value(0)
    sizes = low.graph.types[x].shape[2:]
    scales = op.tuple_attr("scales")
    mode, align = op.str_attr("mode"), op.bool_attr("align_corners")
    work = DType.F64 if out.dtype is DType.F64 else DType.F32
    small = _small(b, out.shape[2:])
    dims = [Dim(o, n, m, s, work, small) for o, n, m, s in zip(index[2:], sizes, out.shape[2:], scales, strict=True)]
    if mode.startswith("nearest"):
        where = [_nearest(b, mode, d) for d in dims]
        b.store(out.name, index, b.load(x, (*index[:2], *where)))
        b.done()
        return
    total: Arg | None = None
    for choice in combinations(*(_taps(b, mode, align, d) for d in dims)):
        value = b.cast(b.load(x, (*index[:2], *(at for at, _ in choice))), work)
        for _, weight in choice:
            value = b.compute("mul", value, weight)
        total = value if total is None else b.compute("add", total, value)
    assert total is not None
    b.store(out.name, index, b.cast(total, out.dtype))
    b.done()


def _small(b: NestBuilder, sizes: tuple[Expr, ...]) -> Known:
    """Whether torch takes its kernel for small results, as it does in two dims only."""
    return len(sizes) == 2 and _at_most(b, sizes[0] + sizes[1], SMALL)


def _nearest(b: NestBuilder, mode: str, d: Dim) -> Expr:
    """The source index of the nearest modes."""
    if d.n is d.m and d.scale in (None, 1.0):
        return d.o
    if mode == "nearest" and (whole := _whole_factor(d)) is not None:
        return floordiv(d.o, whole)
    at: Arg = _rounded_down(b, mode, d, d.work)
    if d.work is DType.F64 and d.small is not False:  # the kernel for small results takes positions in f32
        at = _choose(b, d.small, _rounded_down(b, mode, d, DType.F32), at)
    if mode == "nearest" and d.scale is not None:
        doubled, same = (_both(b, d.small, _equal(b, d.m, size)) for size in (d.n * 2, d.n))
        at = _choose(b, doubled, b.index(floordiv(d.o, 2)), at)
        at = _choose(b, same, b.index(d.o), at)
    return b.check(at, d.n)


def _rounded_down(b: NestBuilder, mode: str, d: Dim, work: DType) -> Arg:
    position = _position(b, mode, False, d, work)
    whole = b.compute("cast", b.compute("floor", b.cast(position, DType.F32)), dtype=DType.I64)
    return b.compute("min", whole, b.index(d.n - 1))


def _whole_factor(d: Dim) -> int | None:
    """k where m = k * n and the scale, if the user gave one, is k, too."""
    for k in (2, 3, 4, 8, 16):
        if d.m is d.n * k and d.scale in (None, float(k)):
            return k
    return None


def _taps(b: NestBuilder, mode: str, align_corners: bool, d: Dim) -> list[Tap]:
    """What linear and cubic resizing add up."""
    same = mode == "linear" and _equal(b, d.m, d.n)
    if same is True:
        # the second tap adds nothing but the NaN that 0 times an infinity gives in torch, too
        return [(d.o, Lit(1.0, d.work)), (d.o, Lit(0.0, d.work))]
    position = _position(b, mode, align_corners, d, d.work)
    if d.scale is not None:
        position = _choose(b, same, _float(b, d.o, d.work), position)
    last = b.index(d.n - 1)
    floor = b.compute("floor", b.cast(position, DType.F32))
    first = b.compute("min", b.compute("cast", floor, dtype=DType.I64), last)
    beyond = b.compute("sub", position, b.cast(first, d.work))
    if d.work is DType.F64:  # whose floor may be one too many, taken of an f32
        beyond = b.compute("max", beyond, Lit(0.0, d.work))
    fraction = b.compute("min", beyond, Lit(1.0, d.work))
    if mode == "linear":
        second = b.compute("min", b.compute("add", first, Lit(1, DType.I64)), last)
        rest = b.compute("sub", Lit(1.0, d.work), fraction)
        return [(b.check(first, d.n), rest), (b.check(second, d.n), fraction)]
    out: list[Tap] = []
    for k, weight in enumerate(_cubic(b, fraction, d.work)):
        at = b.compute("add", first, Lit(k - 1, DType.I64))
        at = b.compute("max", b.compute("min", at, last), Lit(0, DType.I64))
        out.append((b.check(at, d.n), weight))
    return out


def _position(b: NestBuilder, mode: str, align_corners: bool, d: Dim, work: DType) -> Arg:
    """The source coordinate."""
    at = _float(b, d.o, work)
    if align_corners:
        # a single output stands at 0, whatever the spacing
        gaps = b.compute("max", _float(b, d.m - 1, work), Lit(1.0, work))
        return b.compute("mul", at, b.compute("div", _float(b, d.n - 1, work), gaps))
    step: Arg = (
        Lit(1.0 / d.scale, work)
        if d.scale is not None
        else b.compute("div", _float(b, d.n, work), _float(b, d.m, work))
    )
    if mode == "nearest":
        return b.compute("mul", at, step)
    centre = b.compute("add", at, Lit(0.5, work))
    if mode == "nearest-exact":
        return b.compute("mul", centre, step)
    position = b.compute("fma", centre, step, Lit(-0.5, work))  # as compilers make torch's kernels
    return position if mode == "cubic" else b.compute("max", position, Lit(0.0, work))


def _float(b: NestBuilder, e: Expr, dtype: DType) -> Arg:
    value = b.index(e)
    return b.cast(value, dtype) if isinstance(value, str) else Lit(float(value.value), dtype)


def _cubic(b: NestBuilder, t: Arg, work: DType) -> list[Arg]:
    """Keys' cubic convolution weights with a = -0.75, for taps at -1, 0, 1, 2."""
    a = -0.75

    def poly(x: Arg, *coefficients: float) -> Arg:
        result: Arg = Lit(coefficients[0], work)
        for c in coefficients[1:]:
            result = b.compute("add", b.compute("mul", result, x), Lit(c, work))
        return result

    one = Lit(1.0, work)
    far, near = (a, -5 * a, 8 * a, -4 * a), (a + 2, -(a + 3), 0.0, 1.0)
    u = b.compute("sub", one, t)
    return [
        poly(b.compute("add", t, one), *far),
        poly(t, *near),
        poly(u, *near),
        poly(b.compute("add", u, one), *far),
    ]


def _equal(b: NestBuilder, one: Expr, other: Expr) -> Known:
    difference = one - other
    lo, hi = bounds(difference)
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return False
    return True if int_value(difference) == 0 else b.compute("eq", b.index(one), b.index(other))


def _at_most(b: NestBuilder, size: Expr, limit: int) -> Known:
    lo, hi = bounds(size)
    if hi is not None and hi <= limit:
        return True
    return False if lo is not None and lo > limit else b.compute("le", b.index(size), Lit(limit, DType.I64))


def _both(b: NestBuilder, one: Known, other: Known) -> Known:
    if isinstance(one, bool):
        return one and other
    if isinstance(other, bool):
        return other and one
    return b.compute("and", one, other)


def _choose(b: NestBuilder, condition: Known, then: Arg, other: Arg) -> Arg:
    if isinstance(condition, bool):
        return then if condition else other
    return b.compute("where", condition, then, other)
