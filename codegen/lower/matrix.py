"""Lowering of ops that a template computes: matmul, conv, recurrences, sorting, scans.

Where a template does not apply (a dtype, a shape, weights that are not constant), the op becomes an ordinary reduction.
"""

from __future__ import annotations

from hardtack.codegen.ir.expr import Expr, const, int_value, sym
from hardtack.codegen.ir.graph import Op, make_attrs
from hardtack.codegen.ir.graph import Operand as GraphOperand
from hardtack.codegen.ir.graph_infer_nn import GATES
from hardtack.codegen.ir.loops import Arg, Axis, Buffer, Operand, TemplateNest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.layout import channels_last
from hardtack.codegen.lower.builder import Lowering, NestBuilder, lit_of, start
from hardtack.codegen.lower.operands import copied, is_constant, operand, prepacked, try_operand, whole
from hardtack.codegen.lower.views import ONE

PANEL = 32
"""Columns of a packed weight panel: one layout for every CPU target (templates/cpp/gemm.h)."""


def template(
    low: Lowering,
    op: Op,
    kind: str,
    result: Buffer,
    operands: tuple[Operand, ...],
    extra: tuple[str, ...] = (),
    **attrs: object,
) -> None:
    """Emit a TemplateNest whose axes walk `result` in memory order."""
    axes = tuple(Axis(sym(f"i{d}", extent=result.shape[d]), result.shape[d]) for d in result.order)
    low.emit(TemplateNest(result.name, kind, axes, operands, result.name, extra, make_attrs(**attrs), op.origin))


def lower_matmul(low: Lowering, op: Op) -> None:
    a, b = op.inputs
    assert isinstance(a, str) and isinstance(b, str)
    out = low.buffers[op.outputs[0]]
    if low.graph.types[a].dtype is not DType.F32:
        matmul_as_reduction(low, op)
        return
    a_view, b_view = operand(low, a, op), operand(low, b, op)
    batched = any(n is not ONE for n in out.shape[:-2])
    if is_constant(low, b) and not batched:
        template(low, op, "gemm_packed", out, (_unit_last(low, a, a_view, op), pack_matrix(low, b_view)))
    else:
        template(low, op, "gemm_dynamic", out, _in_two_batch_dims(low, op, a_view, b_view))


def _in_two_batch_dims(low: Lowering, op: Op, a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """The operands with their leading dimensions joined into two at most: the template steps through no more. Where
    strides stand against it, a is copied, then b."""
    views = [a, b]
    for side, name in enumerate(op.inputs):
        if len(_batch_joined(*views)[0].shape) <= 4:
            break
        assert isinstance(name, str)
        views[side] = copied(low, name, op, None)
    return _batch_joined(*views)


def _batch_joined(a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """Leading dimensions that follow one another evenly in both operands as one; those of size 1 left out."""
    lead = len(a.shape) - 2
    sizes: list[Expr] = []
    steps: list[list[Expr]] = []
    for n, *step in zip(a.shape[:lead], a.strides[:lead], b.strides[:lead], strict=True):
        if n is ONE:
            continue
        if sizes and all(outer is inner * n for outer, inner in zip(steps[-1], step, strict=True)):
            sizes[-1], steps[-1] = sizes[-1] * n, step
        else:
            sizes.append(n)
            steps.append(step)
    return tuple(  # type: ignore[return-value]
        Operand(
            o.buffer,
            o.dtype,
            o.offset,
            (*sizes, *o.shape[lead:]),
            (*(step[side] for step in steps), *o.strides[lead:]),
        )
        for side, o in enumerate((a, b))
    )


def _unit_last(low: Lowering, value: str, view: Operand, op: Op) -> Operand:
    """The packed GEMM reads rows whose elements lie side by side."""
    good = view.strides[-1] is ONE or view.shape[-1] is ONE
    return view if good else copied(low, value, op, None)


def pack_matrix(low: Lowering, b_view: Operand) -> Operand:
    """A constant [.., K, N] as panels [ceil(N/32), K, 32]; leading dimensions have size 1."""
    k, n = (int_value(e) or 0 for e in b_view.shape[-2:])
    matrix = Operand(b_view.buffer, b_view.dtype, b_view.offset, b_view.shape[-2:], b_view.strides[-2:])
    return prepacked(low, "panels", matrix, (-(-n // PANEL), k, PANEL), ())


def matmul_as_reduction(low: Lowering, op: Op) -> None:
    """Any rank and dtype: a sum over the inner dimension."""
    a, b_name = op.inputs
    assert isinstance(a, str)
    b, out, index = start(low, op)
    k = b.axis(low.graph.types[a].shape[-1], "reduce")
    left = b.wide(b.load(a, (*index[:-1], k)))
    right = b.wide(b.load(b_name, (*index[:-2], k, index[-1])))
    b.store(out.name, index, b.cast(b.total(b.compute("mul", left, right)), out.dtype))
    b.done()


def lower_conv(low: Lowering, op: Op) -> None:
    w = op.inputs[1]
    assert isinstance(w, str)
    out = low.buffers[op.outputs[0]]
    _lower_conv(low, op, out.dtype is DType.F32 and len(out.shape) <= 4 and is_constant(low, w))


def conv_as_reduction(low: Lowering, op: Op) -> None:
    """Any rank, dtype and weights: sums over channels and taps, and the bias."""
    _lower_conv(low, op, templated=False)


def _lower_conv(low: Lowering, op: Op, templated: bool) -> None:
    x, w = op.inputs[0], op.inputs[1]
    assert isinstance(x, str) and isinstance(w, str)
    out = low.buffers[op.outputs[0]]
    bias = op.inputs[2] if len(op.inputs) > 2 else None
    # templates write channels-last, which an output of the graph is not; a bias is an ordinary pointwise nest over the
    # template's result, which grouping makes an epilogue
    order = channels_last(len(out.shape))
    direct = bias is None and (out.order == order or not templated)
    result = out if direct else conv_result(low, out, bias)
    if templated:
        _conv_template(low, op, x, w, result)
    else:
        _conv_as_reduction(low, op, x, w, result)
    if not direct:
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


def _ints(op: Op, name: str) -> tuple[int, ...]:
    value = op.attr(name)
    assert isinstance(value, tuple)
    return tuple(int(v) for v in value)


def _conv_template(low: Lowering, op: Op, x: str, w: str, result: Buffer) -> None:
    groups, transposed = op.attr("groups"), bool(op.attr("transposed"))
    assert isinstance(groups, int)
    w_view = try_operand(low, w)
    assert w_view is not None, "a constant's views are folded at export"
    w_shape = [int_value(e) or 0 for e in w_view.shape]
    channels_in = w_shape[0] if transposed else w_shape[1] * groups
    channels_out = w_shape[1] * groups if transposed else w_shape[0]
    depthwise = not transposed and groups == channels_in == channels_out and groups > 1
    view = try_operand(low, x)
    x_order = channels_last(len(result.shape))
    # a copy costs one pass; a few channels are gathered by the template, which packs its patches anyway
    few = channels_in <= 4 and not depthwise and not transposed and groups == 1
    if view is None or (view.strides[1] is not ONE and view.shape[1] is not ONE and not few):
        view = copied(low, x, op, x_order)
    kind = "depthwise" if depthwise else "conv_transposed" if transposed else "conv"
    weights = _pack_conv(low, w_view, kind, groups)
    padding = op.attr("padding")
    template(
        low,
        op,
        kind,
        result,
        (view, weights),
        kernel=tuple(w_shape[2:]),
        stride=_ints(op, "stride"),
        padding=padding,
        dilation=_ints(op, "dilation"),
        groups=groups,
    )


def _pack_conv(low: Lowering, w: Operand, kind: str, groups: int) -> Operand:
    """conv: [groups][ceil(Og/32)][K...][Cg][32]; depthwise: [K...][C]; see templates/cpp/conv.h."""
    shape = [int_value(e) or 0 for e in w.shape]
    taps = shape[2:]
    if kind == "depthwise":
        return prepacked(low, "depthwise", w, (*taps, shape[0]), ())
    if kind == "conv_transposed":
        packed = (groups, -(-shape[1] // PANEL), *taps, shape[0] // groups, PANEL)
        return prepacked(low, "conv_transposed", w, packed, (groups,))
    packed = (groups, -(-(shape[0] // groups) // PANEL), *taps, shape[1], PANEL)
    return prepacked(low, "conv", w, packed, (groups,))


def _conv_as_reduction(low: Lowering, op: Op, x: str, w: str, result: Buffer) -> None:
    """Any rank, dtype and weights: a masked sum over channels and taps."""
    b = NestBuilder(low, result.name, op.origin)
    index = b.loop(result.shape, result.order)
    x_shape, w_shape = low.graph.types[x].shape, low.graph.types[w].shape
    groups, transposed = op.attr("groups"), bool(op.attr("transposed"))
    assert isinstance(groups, int)
    per_group_out = w_shape[1] if transposed else floordiv_exact(w_shape[0], groups)
    per_group_in = floordiv_exact(w_shape[0], groups) if transposed else w_shape[1]
    taps = [b.axis(n, "reduce") for n in w_shape[2:]]
    c = b.axis(per_group_in, "reduce")
    group = index[1] // per_group_out
    geometry = zip(
        index[2:],
        taps,
        _ints(op, "stride"),
        op.attr("padding"),
        _ints(op, "dilation"),
        x_shape[2:],
        strict=True,  # type: ignore[call-overload]
    )
    where: list[Expr] = []
    conditions: list[str] = []
    for o, t, s, p, d, n in geometry:
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
    zero = lit_of(0, low.graph.types[x].dtype)
    value = b.wide(b.load(x, (index[0], channel, *where), b.all_of(conditions), zero))
    inner = (channel, index[1] % per_group_out) if transposed else (index[1], c)
    term = b.compute("mul", value, b.wide(b.load(w, (*inner, *taps))))
    b.store(result.name, index, b.cast(b.total(term), result.dtype))
    b.done()


def floordiv_exact(n: Expr, divisor: int) -> Expr:
    """n / divisor for a size that is a multiple of it."""
    return n // divisor


def lower_recurrent(low: Lowering, op: Op) -> None:
    """Input projections of all steps in one GEMM, then the recurrence."""
    lstm = op.kind == "lstm"
    names = [x for x in op.inputs if isinstance(x, str)]
    x, h0 = names[0], names[1]
    c0 = names[2] if lstm else None
    w_ih, w_hh, *biases = names[3:] if lstm else names[2:]
    y = low.buffers[op.outputs[0]]
    steps, batch, _ = low.graph.types[x].shape
    gates = low.graph.types[w_ih].shape[0]
    projected = low.temporary(f"{y.name}.gates", y.dtype, (steps * batch, gates))
    x_rows = copied(low, x, op, None) if not dense_rows(low, x) else operand(low, x, op)
    flat = Operand(x_rows.buffer, x_rows.dtype, x_rows.offset, (steps * batch, x_rows.shape[2]), x_rows.strides[1:])
    ih = operand(low, w_ih, op)
    ih_t = Operand(ih.buffer, ih.dtype, ih.offset, ih.shape[::-1], ih.strides[::-1])
    template(low, op, "gemm_packed", projected, (flat, pack_matrix(low, ih_t)))
    gated = with_biases(low, op, projected, biases)
    hidden = int_value(low.graph.types[w_hh].shape[1]) or 0
    count = GATES[op.kind]
    packed = (-(-hidden // PANEL), count, hidden, PANEL)
    weights = prepacked(low, "recurrent", operand(low, w_hh, op), packed, (count,))
    states = []
    for name in (h0, c0):
        if name is not None:
            view = operand(low, name, op)
            states.append(view if view.strides[-1] is ONE or view.shape[-1] is ONE else copied(low, name, op, None))
    extra: tuple[Operand, ...] = ()
    if biases and op.kind == "gru":
        whole_bias = operand(low, biases[1], op)
        extra = (
            Operand(whole_bias.buffer, whole_bias.dtype, whole_bias.offset + 2 * hidden, (const(hidden),), (ONE,)),
        )
    views = (whole(gated), weights, *states, *extra)
    template(low, op, op.kind, y, views, tuple(op.outputs[1:]), reverse=op.attr("reverse"))


def with_biases(low: Lowering, op: Op, projected: Buffer, biases: list[str]) -> Buffer:
    """The projections with b_ih, and with b_hh but for the GRU's n gate, which adds it inside the reset."""
    if not biases:
        return projected
    gated = low.temporary(f"{op.outputs[0]}.biased", projected.dtype, projected.shape)
    b = NestBuilder(low, gated.name, op.origin)
    row, gate = b.loop(gated.shape, gated.order)
    value = b.load_buffer(projected.name, (row, gate))
    value = b.compute("add", value, b.load(biases[0], (gate,)))
    mask, other = None, None
    if op.kind == "gru":
        mask, other = b.compute("lt", b.index(gate), b.index(projected.shape[1] // 3 * 2)), lit_of(0, projected.dtype)
    hidden_bias = b.load(biases[1], (gate,), mask, other)
    b.store(gated.name, (row, gate), b.compute("add", value, hidden_bias))
    b.done()
    return gated


def dense_rows(low: Lowering, x: str) -> bool:
    """True if x [T, B, I] is row-major as it stands, so that [T*B, I] is a view."""
    view = try_operand(low, x)
    if view is None:
        return False
    steps, batch, width = view.strides
    return (width is ONE or view.shape[2] is ONE) and (steps is batch * view.shape[1] or view.shape[0] is ONE)


def lower_sorted(low: Lowering, op: Op) -> None:
    """sort and topk along a dimension: rows are gathered to the end first where it is not the last."""
    x = op.inputs[0]
    assert isinstance(x, str)
    dim = op.attr("dim")
    assert isinstance(dim, int)
    view = row_major(low, x, op)
    values, indices = low.buffers[op.outputs[0]], low.buffers[op.outputs[1]]
    descending = op.attr("descending") if op.kind == "sort" else op.attr("largest")
    template(low, op, op.kind, values, (view,), (indices.name,), dim=dim, descending=descending)


def lower_scan(low: Lowering, op: Op) -> None:
    x = op.inputs[0]
    assert isinstance(x, str)
    out = low.buffers[op.outputs[0]]
    view = row_major(low, x, op)
    template(low, op, "scan", out, (view,), scan=op.attr("kind"), dim=op.attr("dim"))


def row_major(low: Lowering, x: str, op: Op) -> Operand:
    """The value dense and row-major, copied where it is not."""
    view = try_operand(low, x)
    step: Expr = ONE
    for n, stride in reversed(list(zip(view.shape, view.strides, strict=True))) if view is not None else ():
        if n is not ONE and stride is not step:
            view = None
            break
        step = step * n
    return view or copied(low, x, op, None)
