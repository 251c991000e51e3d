"""Products and convolutions of any rank, dtype and weights as loops: sums over channels, taps, the inner dimension."""

from __future__ import annotations

from collections.abc import Callable

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph import Operand as GraphOperand
from hardtack.codegen.ir.loops import Arg, Buffer
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder, lit_of, start
from hardtack.codegen.lower.convolution import geometry
from hardtack.codegen.lower.layout import channels_last
from hardtack.codegen.lower.views import Idx


def matmul_as_reduction(low: Lowering, op: Op, load_right: Callable[[NestBuilder, Idx], Arg] | None = None) -> None:
    """Any rank and dtype: a sum over the inner dimension. load_right: gives the element at an index of the right side;
    None: that of the value."""
    a, b_name = op.value(0), op.value(1)
    b, out, index = start(low, op)
    k = b.axis(low.graph.types[a].shape[-1], "reduce")
    right = load_right or (lambda b, at: b.load(b_name, at))
    factors = (b.load(a, (*index[:-1], k)), right(b, (*index[:-2], k, index[-1])))
    left, factor = (_summed(b, x) for x in factors)
    b.store(out.name, index, b.cast(b.total(b.compute("mul", left, factor)), out.dtype))
    b.done()


def _summed(b: NestBuilder, x: Arg) -> Arg:
    """A factor in the type in which products are added up."""
    if b.dtype(x).nbytes > 1:
        return b.wide(x)
    return b.cast(x, DType.F32 if b.dtype(x).is_float8 else DType.I32)


def conv_as_reduction(low: Lowering, op: Op) -> None:
    """Any rank, dtype and weights: sums over channels and taps, and the bias."""
    out = low.buffers[op.outputs[0]]
    bias = op.inputs[2] if len(op.inputs) > 2 else None
    result = out if bias is None else conv_result(low, out, bias)
    _taps_and_channels(low, op, result)
    if bias is not None:
        finish_conv(low, op, result, out, bias)


def conv_result(low: Lowering, out: Buffer, bias: GraphOperand | None) -> Buffer:
    """What a convolution writes before its bias is added, channels-last: of half types in f32, to be rounded once."""
    dtype = DType.F32 if bias is not None and out.dtype.is_half else out.dtype
    return low.temporary(f"{out.name}.conv", dtype, out.shape, channels_last(len(out.shape)))


def finish_conv(low: Lowering, op: Op, result: Buffer, out: Buffer, bias: GraphOperand | None) -> None:
    """out = result + bias, in out's own order."""
    b = NestBuilder(low, out.name, op.origin)
    index = b.loop(out.shape, out.order)
    value: Arg = b.load_buffer(result.name, index)
    if bias is not None:
        value = b.compute("add", value, b.cast(b.load(bias, (index[1],)), result.dtype))
    b.store(out.name, index, b.cast(value, out.dtype))
    b.done()


def _taps_and_channels(low: Lowering, op: Op, result: Buffer) -> None:
    """Any rank, dtype and weights: a masked sum over channels and taps."""
    x, w = op.value(0), op.value(1)
    b = NestBuilder(low, result.name, op.origin)
    index = b.loop(result.shape, result.order)
    x_shape, w_shape = low.graph.types[x].shape, low.graph.types[w].shape
    given = geometry(op)
    groups, transposed = given.groups, given.transposed
    per_group_out = w_shape[1] if transposed else floordiv_exact(w_shape[0], groups)
    per_group_in = floordiv_exact(w_shape[0], groups) if transposed else w_shape[1]
    taps = [b.axis(n, "reduce") for n in w_shape[2:]]
    c = b.axis(per_group_in, "reduce")
    group = index[1] // per_group_out
    dims = zip(index[2:], taps, given.stride, given.padding, given.dilation, x_shape[2:], strict=True)
    where: list[Expr] = []
    conditions: list[str] = []
    for o, t, s, p, d, n in dims:
        if transposed:
            reach = o + p[0] - t * d
            if s != 1:
                conditions.append(b.compute("eq", b.index(reach % s), lit_of(0, DType.I64)))
            at = reach // s
        else:
            at = o * s - p[0] + t * d
        conditions += b.inside(at, n)
        where.append(at)
    channel = group * per_group_in + c
    fill = lit_of(given.fill, low.graph.types[x].dtype)
    value = b.wide(b.load(x, (index[0], channel, *where), b.all_of(conditions), fill))
    inner = (channel, index[1] % per_group_out) if transposed else (index[1], c)
    term = b.compute("mul", value, b.wide(b.load(w, (*inner, *taps))))
    b.store(result.name, index, b.cast(b.total(term), result.dtype))
    b.done()


def floordiv_exact(n: Expr, divisor: int) -> Expr:
    """n / divisor for a size that is a multiple of it."""
    return n // divisor
