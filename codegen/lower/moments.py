"""Lowering of moments: mean and variance of groups of channels, never as a difference of large numbers.

Three ways: sums by channel and then by group, which follow x's order in memory (the CPU); a pass over each group, for a
device whose programs hold a group; and parts of the points, channel by channel, whose moments are then merged (Chan,
Golub and LeVeque 1979): one pass over memory however large a group is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, const, floordiv, int_value, maximum, minimum, mod, product
from hardtack.codegen.ir.graph import Lit, Op
from hardtack.codegen.ir.loops import Arg, Buffer
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder
from hardtack.codegen.lower.operands import try_operand
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.views import delinearize

NOISE = 2.0**-18
"""Of a mean square: what is left of it below this share, once the mean is exact, is rounding alone."""


@dataclass(frozen=True)
class Moments:
    """The op being lowered. n, groups, each (channels of a group) and space: the sizes of x."""

    low: Lowering
    op: Op

    @property
    def x(self) -> str:
        return self.op.value(0)

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


def distance_sums(b: NestBuilder, distance: Arg, dtype: DType) -> tuple[Arg, Arg]:
    """The sums of distances from a mean and of their squares."""
    return total(b, distance, dtype), total(b, b.compute("mul", distance, distance), dtype)


def corrected(m: Moments, b: NestBuilder, mean: Arg, far: Arg, squares: Arg) -> tuple[Arg, Arg]:
    """Mean and variance from a rounded mean and the sums over all points of the distances from it and of their squares
    (Chan, Golub and LeVeque 1983): the mean of equal values is their value, and their variance 0."""
    dtype, points = m.mean.dtype, m.each * m.points
    shift, square = shared(b, far, points, dtype), shared(b, squares, points, dtype)
    spread = b.compute("sub", square, b.compute("mul", shift, shift))
    noise = b.compute("lt", spread, b.compute("mul", square, Lit(NOISE, dtype)))
    return b.compute("add", mean, shift), b.compute("where", noise, Lit(0.0, dtype), spread)


@lowers("moments")
def lower_moments(low: Lowering, op: Op) -> None:
    """By channel, then by group: the mean, then the distances from it."""
    m = Moments(low, op)
    dtype = m.mean.dtype
    first = low.temporary(f"{m.mean.name}.first", dtype, m.mean.shape)
    (sums,) = _by_channel(m, 1, lambda b, index: (total(b, m.load(b, index), dtype),))
    b, at = _over_group(m, first)
    b.store(first.name, at[:2], shared(b, total(b, b.load_buffer(sums.name, _channel(m, at)), dtype), *_of(m)))
    b.done()

    def far(b: NestBuilder, index: tuple[Expr, ...]) -> tuple[Arg, ...]:
        # a group without channels has no points
        mean = b.load_buffer(first.name, (index[0], floordiv(index[1], maximum(m.each, ONE))))
        return distance_sums(b, b.compute("sub", m.load(b, index), mean), dtype)

    parts = _by_channel(m, 2, far)
    b, at = _over_group(m, m.mean)
    found = [total(b, b.load_buffer(p.name, _channel(m, at)), dtype) for p in parts]
    mean, variance = corrected(m, b, b.load_buffer(first.name, at[:2]), *found)
    b.store(m.mean.name, at[:2], mean)
    b.store(m.variance.name, at[:2], variance)
    b.done()


def _of(m: Moments) -> tuple[Expr, DType]:
    """What `shared` wants besides a sum over a group."""
    return m.each * m.points, m.mean.dtype


def _by_channel(
    m: Moments, count: int, sums: Callable[[NestBuilder, tuple[Expr, ...]], tuple[Arg, ...]]
) -> tuple[Buffer, ...]:
    """Buffers [N, C] of the `count` values that `sums` makes of each channel, given an index that walks its points."""
    out = [m.low.temporary(f"{m.mean.name}.channels", m.mean.dtype, m.shape[:2]) for _ in range(count)]
    b = m.nest(out[0].name)
    n, c = b.loop(out[0].shape, out[0].order)
    space = [b.axis(size, "reduce") for size in m.shape[2:]]
    for buffer, value in zip(out, sums(b, (n, c, *space)), strict=True):
        b.store(buffer.name, (n, c), value)
    b.done()
    return tuple(out)


def _over_group(m: Moments, out: Buffer) -> tuple[NestBuilder, tuple[Expr, ...]]:
    """A nest over out [N, groups] that reduces each group's channels; its index, and the channel's in the group."""
    b = m.nest(out.name)
    n, g = b.loop(out.shape, out.order)
    return b, (n, g, b.axis(m.each, "reduce"))


def _channel(m: Moments, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
    n, g, r = at
    return n, g * m.each + r


def by_group(m: Moments) -> None:
    """Each group in one go, its elements in memory's order."""
    dtype = m.mean.dtype
    first = m.low.temporary(f"{m.mean.name}.first", dtype, m.mean.shape)
    for out in (first, m.mean):
        b = m.nest(out.name)
        n, g = b.loop(out.shape, out.order)
        if m.last:
            space = [b.axis(size, "reduce") for size in m.shape[2:]]
            r = b.axis(m.each, "reduce")
        else:
            r = b.axis(m.each, "reduce")
            space = [b.axis(size, "reduce") for size in m.shape[2:]]
        value = m.load(b, (n, g * m.each + r, *space))
        if out is first:
            b.store(first.name, (n, g), shared(b, total(b, value, dtype), *_of(m)))
        else:
            mean = b.load_buffer(first.name, (n, g))
            sums = distance_sums(b, b.compute("sub", value, mean), dtype)
            for buffer, found in zip((m.mean, m.variance), corrected(m, b, mean, *sums), strict=True):
                b.store(buffer.name, (n, g), found)
        b.done()


def by_parts(m: Moments, parts: int) -> None:
    """The points of space in `parts` runs: the sums of every channel of every run, and of its distances from its mean
    and their squares, in one pass; then the moments of all of a group."""
    low, dtype = m.low, m.mean.dtype
    parts = _even(parts, int_value(m.points))
    shape = (m.shape[0], const(parts), m.shape[1])
    sums, far, squares = (low.temporary(f"{m.mean.name}.{name}", dtype, shape) for name in ("sums", "far", "squares"))
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
        if out is sums:
            b.store(sums.name, (n, p, c), total(b, value, dtype))
        else:
            own = shared(b, b.load_buffer(sums.name, (n, p, c)), maximum(1, _held(m, p, length, whole)), dtype)
            distance = b.compute("sub", value, own)
            if mask is not None:
                distance = b.compute("where", mask, distance, Lit(0.0, dtype))
            for buffer, found in zip((far, squares), distance_sums(b, distance, dtype), strict=True):
                b.store(buffer.name, (n, p, c), found)
        b.done()
    _merge(m, Parts(sums, far, squares), length, whole)


@dataclass(frozen=True)
class Parts:
    """[N, parts, C]: the sums, and those of the distances from each part's own mean and of their squares."""

    sums: Buffer
    far: Buffer
    squares: Buffer


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


def _merge(m: Moments, parts: Parts, length: Expr, whole: bool) -> None:
    """The moments of groups from those of their channels' parts: the mean of all; how far from it the parts lie, which
    corrects it; the squares."""
    low, dtype, count_of_parts = m.low, m.mean.dtype, parts.sums.shape[1]
    first = low.temporary(f"{m.mean.name}.first", dtype, m.mean.shape)
    for out in (first, m.mean):
        b = m.nest(out.name)
        n, g = b.loop(out.shape, out.order)
        p, r = b.axis(count_of_parts, "reduce"), b.axis(m.each, "reduce")
        at = (n, p, g * m.each + r)
        value: Arg = b.load_buffer(parts.sums.name, at)
        if out is first:
            b.store(first.name, (n, g), shared(b, total(b, value, dtype), *_of(m)))
        else:
            held = _held(m, p, length, whole)
            points, mean = count(b, held, dtype), b.load_buffer(first.name, (n, g))
            own = shared(b, value, maximum(1, held), dtype)
            far, squares = b.load_buffer(parts.far.name, at), b.load_buffer(parts.squares.name, at)
            # about the mean of all: sum (d + s)^2 = sum d^2 + 2 s sum d + n s^2, d from the part's own mean
            shift = b.compute("sub", own, mean)
            moved = b.compute("mul", points, shift)
            twice = b.compute("add", b.compute("add", far, far), moved)
            around = b.compute("add", squares, b.compute("mul", shift, twice))
            sums = (total(b, b.compute("add", far, moved), dtype), total(b, around, dtype))
            for buffer, found in zip((m.mean, m.variance), corrected(m, b, mean, *sums), strict=True):
                b.store(buffer.name, (n, g), found)
        b.done()
