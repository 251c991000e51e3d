"""Convolutions as something that is faster: products, and convolutions of fewer taps with more channels.

Everything here gives operands that read the input through strides, or a copy of it that is made for the purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, const, int_value, product
from hardtack.codegen.ir.graph import Lit, Op
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.lower.builder import Lowering, NestBuilder
from hardtack.codegen.lower.convolution import geometry
from hardtack.codegen.lower.layout import channels_last
from hardtack.codegen.lower.operands import copied, is_constant, operand, prepacked, try_operand, whole
from hardtack.codegen.tune.conv_plan import FEW_CHANNELS

WIDEST_PADDING = 3
"""How many times as many channels a padded copy may have."""
UNIT_NBYTES = 16
"""What asynchronous copies read at a time."""


@dataclass(frozen=True)
class Windows:
    """A convolution without padding over a padded copy in which all that a window reads of a row is one run of
    channels, and the last dimension has one tap. x, weights: as the template conv takes them; run: as long as the runs
    are in the packed weights, where zeros follow. What follows in x is another window's: it is not read, since the
    product of an infinity and 0 is none."""

    x: Operand
    weights: Operand
    run: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]


@dataclass(frozen=True)
class _Conv:
    """An op's operands and attributes, one entry a spatial dimension."""

    x: str
    w: str
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]


def _plain(low: Lowering, op: Op) -> _Conv | None:
    """None where the channels are in groups, or the convolution is transposed."""
    given = geometry(op)
    if given.groups != 1 or given.transposed:
        return None
    x, w = op.value(0), op.value(1)
    kernel = tuple(int_value(n) or 0 for n in low.graph.types[w].shape[2:])
    return _Conv(x, w, kernel, given.stride, given.padding, given.dilation)


def as_product(low: Lowering, op: Op) -> tuple[Operand, Operand] | None:
    """a [points, K] and b [K, O], whose product is the result, channels-last: of one tap that goes everywhere, and of
    few channels whose taps do not overlap. None for other convolutions."""
    c = _plain(low, op)
    if c is None or any(p != (0, 0) for p in c.padding):
        return None
    if prod(c.kernel) == prod(c.stride) == 1:
        weights = operand(low, c.w, op)
        a = _points(low, c.x, op)
        return a, Operand(weights.buffer, weights.dtype, weights.offset, weights.shape[1::-1], weights.strides[1::-1])
    channels = int_value(low.graph.types[c.x].shape[1])
    apart = c.kernel == c.stride and prod(c.dilation) == 1
    if not apart or channels is None or channels >= FEW_CHANNELS or not is_constant(low, c.w):
        return None
    return _patches(low, op, c)


def _points(low: Lowering, x: str, op: Op) -> Operand:
    """x [N, C, *S] as [N * S, C], its channels side by side and its points evenly spaced."""
    view = try_operand(low, x)
    if view is None or not _even(view):
        view = copied(low, x, op, channels_last(len(low.graph.types[x].shape)))
    spatial = [
        (n, s) for n, s in zip((view.shape[0], *view.shape[2:]), (view.strides[0], *view.strides[2:]), strict=True)
    ]
    step = next((s for n, s in reversed(spatial) if n is not ONE), view.shape[1])
    rows = product(n for n, _ in spatial)
    return Operand(view.buffer, view.dtype, view.offset, (rows, view.shape[1]), (step, ONE))


def _even(view: Operand) -> bool:
    """True if channels lie side by side and all points follow each other in equal steps."""
    if view.strides[1] is not ONE and view.shape[1] is not ONE:
        return False
    wanted: Expr | None = None
    for n, s in _inner_first(view):
        if n is ONE:
            continue
        if wanted is not None and s is not wanted:
            return False
        wanted = s * n
    return True


def _inner_first(view: Operand) -> list[tuple[Expr, Expr]]:
    """Size and stride of all dimensions but the channels', the last first."""
    dims = list(zip(view.shape, view.strides, strict=True))
    return [*dims[:1:-1], dims[0]]


def _patches(low: Lowering, op: Op, c: _Conv) -> tuple[Operand, Operand]:
    """A copy of x in which the elements of a window follow each other, channels last where x has them so."""
    x, weights = low.graph.types[c.x], operand(low, c.w, op)
    batch, channels, *_ = x.shape
    points = low.graph.types[op.outputs[0]].shape[2:]
    view = try_operand(low, c.x)
    last = view is not None and view.strides[1] is ONE
    taps = tuple(const(k) for k in c.kernel)
    inner = (*taps, channels) if last else (channels, *taps)
    copy = low.temporary(f"{c.x}.patches", x.dtype, (batch, *points, *inner))
    b = NestBuilder(low, copy.name, op.origin)
    index = b.loop(copy.shape, copy.order)
    rank = len(points)
    places, rest = index[1 : 1 + rank], index[1 + rank :]
    channel, offsets = (rest[-1], rest[:-1]) if last else (rest[0], rest[1:])
    source = tuple(p * s + t for p, s, t in zip(places, c.stride, offsets, strict=True))
    b.store(copy.name, index, b.load(c.x, (index[0], channel, *source)))
    b.done()
    depth = product(inner)
    rows = product((batch, *points))
    a = Operand(copy.name, x.dtype, ZERO, (rows, depth), (depth, ONE))
    outs = weights.shape[0]
    sizes = [int_value(n) or 0 for n in (outs, product(taps), channels)]
    if last:
        packed = prepacked(low, "taps_conv", weights, (1, *sizes), (1,))
    else:
        packed = prepacked(low, "filters", weights, (sizes[0], sizes[1] * sizes[2]), ())
    return a, Operand(packed.buffer, x.dtype, ZERO, (depth, outs), (ONE, depth))


def windows(low: Lowering, op: Op) -> Windows | None:
    """For few channels: a row of a window as one run of elements. None where that is not worth its padding."""
    c = _plain(low, op)
    if c is None or not is_constant(low, c.w) or c.dilation[-1] != 1 or c.kernel[-1] == 1:
        return None
    x = low.graph.types[c.x]
    channels = int_value(x.shape[1])
    if channels is None or channels >= FEW_CHANNELS:
        return None
    unit = UNIT_NBYTES // x.dtype.nbytes
    wide = next(n for n in range(channels, channels + unit) if c.stride[-1] * n % unit == 0)
    if wide > WIDEST_PADDING * channels:
        return None
    read = c.kernel[-1] * wide
    run = -(-read // 16) * 16
    points = low.graph.types[op.outputs[0]].shape[2:]
    sizes = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(points, c.stride, c.kernel, c.dilation, strict=True)]
    even = unit // gcd(unit, wide)
    row = ((points[-1] - 1) * c.stride[-1] + -(-run // wide) + (even - 1)) // even * even
    copy = low.temporary(f"{c.x}.padded", x.dtype, (x.shape[0], *sizes[:-1], row, const(wide)))
    b = NestBuilder(low, copy.name, op.origin)
    index = b.loop(copy.shape, copy.order)
    source = tuple(i - lo for i, (lo, _) in zip(index[1:-1], c.padding, strict=True))
    inside = [t for i, n in zip(source, x.shape[2:], strict=True) for t in b.inside(i, n)]
    inside += b.inside(index[-1], x.shape[1]) if wide != channels else []
    loaded = b.load(c.x, (index[0], index[-1], *source), b.all_of(inside), Lit(0.0, x.dtype))
    b.store(copy.name, index, loaded)
    b.done()
    steps = copy.strides()
    shape = (x.shape[0], const(read), *sizes[:-1], points[-1])
    view = Operand(copy.name, x.dtype, ZERO, shape, (steps[0], ONE, *steps[1:-2], steps[-2] * c.stride[-1]))
    raw = operand(low, c.w, op)
    outs = int_value(raw.shape[0]) or 0
    packed = whole(low.buffers[prepacked(low, "windows", raw, (1, outs, prod(c.kernel[:-1]), run), (wide, run)).buffer])
    weights = Operand(
        packed.buffer, packed.dtype, packed.offset, (*packed.shape[:2], const(read), packed.shape[2]),
        tuple(packed.strides[d] for d in (0, 1, 3, 2)),
    )  # fmt: skip
    rank = len(points)
    return Windows(
        view, weights, run, (*c.kernel[:-1], 1), (*c.stride[:-1], 1), ((0, 0),) * rank, (*c.dilation[:-1], 1)
    )
