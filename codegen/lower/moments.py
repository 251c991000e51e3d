"""Lowering of moments: mean and variance of groups of channels, never as a difference of large numbers.

Three ways: sums by channel and then by group, which follow x's order in memory (the CPU); a pass over each group, for a
device whose programs hold a group; and parts of the points, channel by channel, whose moments are then merged (Chan,
Golub and LeVeque 1979): one pass over memory however large a group is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hardtack.codegen.ir.expr import Expr, const, floordiv, int_value, maximum, minimum, mod, product
from hardtack.codegen.ir.graph import Lit, Op
from hardtack.codegen.ir.loops import Arg, Buffer
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder
from hardtack.codegen.lower.operands import try_operand
from hardtack.codegen.lower.views import ONE, ZERO, delinearize


@dataclass(frozen=True)
class Moments:
    """The op being lowered. n, groups, each (channels of a group) and space: the sizes of x."""

    low: Lowering
    op: Op

    @property
    def x(self) -> str:
        value = self.op.inputs[0]
        assert isinstance(value, str)
        return value

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.low.graph.types[self.x].shape

    @property
    def mean(self) -> Buffer:
        return self.low.buffers[self.op.outputs[0]]

    @property
    def variance(self) -> Buffer:
        return self.low.buffers[self.op.outputs[1]]

    @property
    def groups(self) -> Expr:
        return self.mean.shape[1]

    @property
    def each(self) -> Expr:
        return floordiv(self.shape[1], self.groups)

    @property
    def points(self) -> Expr:
        """Points of space."""
        return product(self.shape[2:])

    @property
    def last(self) -> bool:
        """True if x is channels-last in memory."""
        view = try_operand(self.low, self.x)
        return view is not None and view.strides[1] is ONE and self.shape[1] is not ONE and self.points is not ONE

    def nest(self, name: str) -> NestBuilder:
        return NestBuilder(self.low, name, self.op.origin)

    def load(self, b: NestBuilder, index: Sequence[Expr], mask: str | None = None) -> Arg:
        """An element of x in the type of the results."""
        other = None if mask is None else Lit(0.0, self.low.graph.types[self.x].dtype)
        return b.cast(b.load(self.x, tuple(index), mask, other), self.mean.dtype)


def count(b: NestBuilder, size: Expr, dtype: DType) -> Arg:
    """A size as a float."""
    known = int_value(size)
    return Lit(float(known), dtype) if known is not None else b.cast(b.index(size), dtype)


def shared(b: NestBuilder, value: Arg, among: Expr, dtype: DType) -> Arg:
    """value / among."""
    known = int_value(among)
    if known is not None and known > 0 and known & (known - 1) == 0:
        return b.compute("mul", value, Lit(1.0 / known, dtype))
    return b.compute("div", value, count(b, among, dtype))


def total(b: NestBuilder, value: Arg, dtype: DType) -> Arg:
    """The sum over the nest's reduced axes; the value itself where there are none."""
    reduced = any(a.kind == "reduce" for a in b.axes)
    return b.reduce("sum", value, dtype=dtype) if reduced else value


def square(b: NestBuilder, value: Arg, mean: Arg) -> Arg:
    """(value - mean)^2."""
    distance = b.compute("sub", value, mean)
    return b.compute("mul", distance, distance)


def lower_moments(low: Lowering, op: Op) -> None:
    """By channel, then by group: the mean, then the mean square distance from it."""
    m = Moments(low, op)
    _by_channel(m, m.mean, lambda b, index: m.load(b, index))

    def far(b: NestBuilder, index: tuple[Expr, ...]) -> Arg:
        at = (index[0], floordiv(index[1], maximum(m.each, ONE)))  # a group without channels has no points
        return square(b, m.load(b, index), b.load_buffer(m.mean.name, at))

    _by_channel(m, m.variance, far)


def _by_channel(m: Moments, out: Buffer, value: Callable[[NestBuilder, tuple[Expr, ...]], Arg]) -> None:
    """out [N, groups] = the mean of value(index of x) over each group."""
    sums = m.low.temporary(f"{out.name}.channels", out.dtype, m.shape[:2])
    b = m.nest(sums.name)
    n, c = b.loop(sums.shape, sums.order)
    space = [b.axis(size, "reduce") for size in m.shape[2:]]
    b.store(sums.name, (n, c), total(b, value(b, (n, c, *space)), out.dtype))
    b.done()
    b = m.nest(out.name)
    n, g = b.loop(out.shape, out.order)
    r = b.axis(m.each, "reduce")
    found = total(b, b.load_buffer(sums.name, (n, g * m.each + r)), out.dtype)
    b.store(out.name, (n, g), shared(b, found, m.each * m.points, out.dtype))
    b.done()


def by_group(m: Moments) -> None:
    """Each group in one go, its elements in memory's order."""
    for out in (m.mean, m.variance):
        b = m.nest(out.name)
        n, g = b.loop(out.shape, out.order)
        if m.last:
            space = [b.axis(size, "reduce") for size in m.shape[2:]]
            r = b.axis(m.each, "reduce")
        else:
            r = b.axis(m.each, "reduce")
            space = [b.axis(size, "reduce") for size in m.shape[2:]]
        value = m.load(b, (n, g * m.each + r, *space))
        if out is m.variance:
            value = square(b, value, b.load_buffer(m.mean.name, (n, g)))
        found = total(b, value, out.dtype)
        b.store(out.name, (n, g), shared(b, found, m.each * m.points, out.dtype))
        b.done()


def by_parts(m: Moments, parts: int) -> None:
    """The points of space in `parts` runs: the sum and the square distance from its own mean of every channel of every
    run, in one pass; then the moments of all of a group."""
    low, dtype = m.low, m.mean.dtype
    parts = _even(parts, int_value(m.points))
    shape = (m.shape[0], const(parts), m.shape[1])
    sums = low.temporary(f"{m.mean.name}.sums", dtype, shape)
    squares = low.temporary(f"{m.mean.name}.squares", dtype, shape)
    length = floordiv(m.points + (parts - 1), parts)
    whole = mod(m.points, parts) is ZERO
    for out in (sums, squares):
        b = m.nest(out.name)
        order = (0, 1, 2) if m.last else (0, 2, 1)
        n, p, c = b.loop(shape, order)
        at = p * length + b.axis(length, "reduce")
        mask = None
        if not whole:
            mask = b.compute("lt", b.index(at), b.index(m.points))
        value = m.load(b, (n, c, *_in_space(m, at)), mask)
        if out is squares:
            own = shared(b, b.load_buffer(sums.name, (n, p, c)), maximum(1, _held(m, p, length, whole)), dtype)
            value = square(b, value, own)
            if mask is not None:
                value = b.compute("where", mask, value, Lit(0.0, dtype))
        b.store(out.name, (n, p, c), total(b, value, dtype))
        b.done()
    _merge(m, sums, squares, length, whole)


def _even(parts: int, points: int | None) -> int:
    """A number of equal parts close to the wanted one, if there is one: none of them needs a mask."""
    wanted = range(parts, parts // 2, -1)
    return parts if points is None else next((p for p in wanted if points % p == 0), parts)


def _in_space(m: Moments, at: Expr) -> list[Expr]:
    """The index in each dimension of space of point number `at`."""
    return list(delinearize(at, m.shape[2:]))


def _held(m: Moments, part: Expr, length: Expr, whole: bool) -> Expr:
    """How many points a part has."""
    return length if whole else maximum(0, minimum(length, m.points - part * length))


def _merge(m: Moments, sums: Buffer, squares: Buffer, length: Expr, whole: bool) -> None:
    """The moments of groups from those of their channels' parts."""
    dtype, parts = m.mean.dtype, sums.shape[1]
    for out in (m.mean, m.variance):
        b = m.nest(out.name)
        n, g = b.loop(out.shape, out.order)
        p, r = b.axis(parts, "reduce"), b.axis(m.each, "reduce")
        at = (n, p, g * m.each + r)
        value: Arg = b.load_buffer(sums.name, at)
        if out is m.variance:
            held = _held(m, p, length, whole)
            far = square(b, shared(b, value, maximum(1, held), dtype), b.load_buffer(m.mean.name, (n, g)))
            weighted = b.compute("mul", count(b, held, dtype), far)
            value = b.compute("add", b.load_buffer(squares.name, at), weighted)
        found = total(b, value, dtype)
        b.store(out.name, (n, g), shared(b, found, m.each * m.points, dtype))
        b.done()
