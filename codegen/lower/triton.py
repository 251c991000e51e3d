"""Lowering for GPUs: graph ops that a Triton template computes. What stands here replaces the rules of the same name.

Which kernel computes an op, and with which tiles, is decided here (codegen/tune) and travels as the attribute `plan`.
"""

from __future__ import annotations

from collections.abc import Callable

from hardtack.codegen.ir.expr import Expr, bounds, const, int_value, product
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_infer_nn import GATES
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.loops import Buffer, Operand
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower import matrix, moments
from hardtack.codegen.lower.attention import attention_as_reductions
from hardtack.codegen.lower.builder import Lowering, NestBuilder
from hardtack.codegen.lower.following import heavy_behind
from hardtack.codegen.lower.matrix import row_major, template
from hardtack.codegen.lower.operands import copied, is_constant, join_constants, operand, prepacked, whole
from hardtack.codegen.lower.pointwise import lower_cat_selected
from hardtack.codegen.lower.views import ONE, ZERO
from hardtack.codegen.tune.attention import LARGEST_HEAD, AttentionPlan, AttentionShape
from hardtack.codegen.tune.candidates import Plan, Shape
from hardtack.codegen.tune.gemm import GemmPlan, GemmShape
from hardtack.codegen.tune.rows import plan_moments, plan_scan, plan_sort


def hint(low: Lowering, e: Expr) -> int:
    """A size for choosing kernels: symbols take their example values."""
    from hardtack.codegen.fuse import size_hint

    return size_hint(e, low.hints)


def decide(low: Lowering, subject: str, choice: str, reason: str) -> None:
    """Record a choice of kernel."""
    low.decisions.append(Decision("template", subject, choice, True, reason))


def chosen(low: Lowering, shape: Shape) -> Plan:
    """The plan for a shape, from a tuning table or by cost; how it came about is recorded."""
    plan, decisions = low.tuning.choose(shape, low.arch)
    low.decisions += decisions
    return plan


def lower_matmul(low: Lowering, op: Op) -> None:
    a, b = op.inputs
    assert isinstance(a, str) and isinstance(b, str)
    out = low.buffers[op.outputs[0]]
    if not out.dtype.is_float:
        matrix.lower_matmul(low, op)
        return
    a_view, b_view = operand(low, a, op), operand(low, b, op)
    if is_constant(low, b) and (a_view.dtype is DType.F32 or product(a_view.shape[:-1]) is ONE):
        b_view = _by_columns(low, b_view)
    emit_gemm(low, op, out, a_view, b_view, is_constant(low, b), lambda: copied(low, a, op, None))


def lower_cat(low: Lowering, op: Op) -> None:
    """A cat of constants is made at export, as joined products have it; any other one runs."""
    if not join_constants(low, op):
        lower_cat_selected(low, op)


def _by_columns(low: Lowering, b: Operand) -> Operand:
    """A constant matrix with K innermost: one row times it reads long runs of memory, and TF32 has no other order."""
    k, n = b.shape[-2:]
    if b.strides[-2] is ONE or k is ONE or n is ONE or product(b.shape[:-2]) is not ONE:
        return b
    matrix = Operand(b.buffer, b.dtype, b.offset, (k, n), b.strides[-2:])
    packed = prepacked(low, "columns", matrix, (int_value(n) or 0, int_value(k) or 0), ())
    lead = len(b.shape) - 2
    return Operand(packed.buffer, b.dtype, ZERO, b.shape, (*(ZERO,) * lead, ONE, k))


def emit_gemm(
    low: Lowering,
    op: Op,
    out: Buffer,
    a: Operand,
    b: Operand,
    constant: bool,
    copy_a: Callable[[], Operand] | None = None,
) -> None:
    """out [..., M, N] = a [..., M, K] b [..., K, N]. Leading dimensions along which b is the same become rows.

    copy_a: gives a as a row-major copy, for rows that are not evenly spaced.
    """
    if copy_a is not None and _shared(b) and _foldable(a, b) > 0:
        a = copy_a()
    lead = _foldable(a, b)
    a = Operand(
        a.buffer,
        a.dtype,
        a.offset,
        (*a.shape[:lead], product(a.shape[lead:-1]), a.shape[-1]),
        (*a.strides[:lead], _row_stride(a), a.strides[-1]),
    )
    b = Operand(b.buffer, b.dtype, b.offset, (*b.shape[:lead], *b.shape[-2:]), (*b.strides[:lead], *b.strides[-2:]))
    # of another op the product is a part, and what is computed of it is not in the graph
    heavy = op.kind in ("matmul", "conv") and heavy_behind(low, op.outputs[0])
    shape = gemm_shape(low, out, a, b, heavy)
    plan = chosen(low, shape)
    assert isinstance(plan, GemmPlan)
    decide(low, out.name, f"gemm {plan.variant} {plan.block_m}x{plan.block_n}x{plan.block_k}", plan.reason)
    attrs = {"plan": plan, "constant": constant}
    if plan.splits == 1:
        template(low, op, "gemm", out, (a, b), (), batch_axes=lead, **attrs)
        return
    by_part = (0, *(d + 1 for d in out.order))
    parts = low.temporary(f"{out.name}.parts", DType.F32, (const(plan.splits), *out.shape), by_part)
    template(low, op, "gemm", parts, (a, b), (), batch_axes=lead + 1, **attrs)
    add_parts(low, op, parts, out)


def _shared(b: Operand) -> bool:
    """True if all matrices of the batch are one."""
    return all(n is ONE or int_value(s) == 0 for n, s in zip(b.shape[:-2], b.strides[:-2], strict=True))


def _foldable(a: Operand, b: Operand) -> int:
    """How many leading dimensions stay a batch; those behind them join the rows of a."""
    lead = len(a.shape) - 2
    row = _row_stride(a)
    while lead > 0:
        d = lead - 1
        shared = b.shape[d] is ONE or int_value(b.strides[d]) == 0
        following = row * product(a.shape[lead:-1])
        if not (a.shape[d] is ONE or (shared and a.strides[d] is following)):
            break
        lead = d
    return lead


def _row_stride(a: Operand) -> Expr:
    """Elements from one row to the next: the stride of the innermost row dimension that is not 1."""
    for n, s in zip(reversed(a.shape[:-1]), reversed(a.strides[:-1]), strict=True):
        if n is not ONE:
            return s
    return a.strides[-2]


def gemm_shape(low: Lowering, out: Buffer, a: Operand, b: Operand, heavy: bool) -> GemmShape:
    """What the plan of a product depends on. heavy: behind one of several rows, as GemmShape has it."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    return GemmShape(
        hint(low, product(a.shape[:-2])),
        hint(low, m),
        hint(low, n),
        hint(low, k),
        a.dtype,
        depth_first=b.strides[-2] is ONE,
        one_row=m is ONE,
        streamable=_streamable(a) and _streamable(b),
        heavy=heavy and m is not ONE,
    )


def _streamable(o: Operand) -> bool:
    """True if bulk copies can read the matrix: one dense dimension, all else in steps of 16 bytes."""
    unit = 16 // o.dtype.nbytes
    rows, columns = o.strides[-2:]
    other = rows if columns is ONE else columns
    dense = columns is ONE or rows is ONE
    return dense and other is not ONE and int_value(other % unit) == 0 and int_value(o.offset % unit) == 0


def add_parts(low: Lowering, op: Op, parts: Buffer, out: Buffer) -> None:
    """out = the sum of `parts` [S, ...] over its first dimension."""
    b = NestBuilder(low, out.name, op.origin)
    index = b.loop(out.shape, out.order)
    part = b.axis(parts.shape[0], "reduce")
    total = b.reduce("sum", b.load_buffer(parts.name, (part, *index)), dtype=parts.dtype)
    b.store(out.name, index, b.cast(total, out.dtype))
    b.done()


def lower_attention(low: Lowering, op: Op) -> None:
    """softmax(q k^T * scale + mask) v; a query that no key answers gives zeros."""
    out = low.buffers[op.outputs[0]]
    q, k, v = (low.graph.type_of(x) for x in op.inputs[:3])
    d, e = int_value(q.shape[3]), int_value(v.shape[3])
    if out.dtype is DType.F64 or d is None or e is None or not 0 < max(d, e) <= LARGEST_HEAD or min(d, e) == 0:
        decide(low, out.name, "reductions", f"heads of {q.shape[3]} and {v.shape[3]} elements in {out.dtype}")
        attention_as_reductions(low, op)
        return
    views: list[Operand] = []
    for x in op.inputs:
        assert isinstance(x, str)
        view = operand(low, x, op)
        if len(views) < 3 and view.strides[-1] is not ONE and view.shape[-1] is not ONE:
            view = copied(low, x, op, None)
        views.append(view)
    batch, heads, kv_heads, tq, tk = (hint(low, x) for x in (*q.shape[:2], k.shape[1], q.shape[2], k.shape[2]))
    causal = bool(op.attr("causal"))
    plan = chosen(low, AttentionShape(batch, heads, kv_heads, tq, tk, d, e, out.dtype, causal))
    assert isinstance(plan, AttentionPlan)
    decide(low, out.name, f"attention {plan.block_m}x{plan.block_n}, {plan.splits} parts", plan.reason)
    attrs = {"plan": plan, "scale": op.attr("scale"), "causal": op.attr("causal")}
    if plan.splits == 1:
        template(low, op, "attention", out, tuple(views), (), **attrs)
        return
    parts = low.temporary(f"{out.name}.parts", DType.F32, (const(plan.splits), *out.shape))
    weights = low.temporary(f"{out.name}.weights", DType.F32, (const(plan.splits), *out.shape[:-1]))
    template(low, op, "attention", parts, tuple(views), (weights.name,), **attrs)
    template(low, op, "attention_combine", out, (whole(parts), whole(weights)))


def lower_recurrent(low: Lowering, op: Op) -> None:
    """Input projections of all steps in one product, then the recurrence."""
    lstm = op.kind == "lstm"
    names = [x for x in op.inputs if isinstance(x, str)]
    x, states, (w_ih, w_hh, *biases) = names[0], names[1 : 3 if lstm else 2], names[3 if lstm else 2 :]
    y = low.buffers[op.outputs[0]]
    steps, batch, _ = low.graph.types[x].shape
    gates = low.graph.types[w_ih].shape[0]
    projected = low.temporary(f"{y.name}.gates", y.dtype, (steps * batch, gates))
    rows = operand(low, x, op) if matrix.dense_rows(low, x) else copied(low, x, op, None)
    flat = Operand(rows.buffer, rows.dtype, rows.offset, (steps * batch, rows.shape[2]), rows.strides[1:])
    ih = operand(low, w_ih, op)
    ih_t = Operand(ih.buffer, ih.dtype, ih.offset, ih.shape[::-1], ih.strides[::-1])
    emit_gemm(low, op, projected, flat, ih_t, is_constant(low, w_ih))
    gated = matrix.with_biases(low, op, projected, biases)
    views = [whole(gated), operand(low, w_hh, op)]
    for name in states:
        view = operand(low, name, op)
        views.append(view if view.strides[-1] is ONE or view.shape[-1] is ONE else copied(low, name, op, None))
    if biases and op.kind == "gru":
        bias, hidden = operand(low, biases[1], op), y.shape[2]
        views.append(Operand(bias.buffer, bias.dtype, bias.offset + hidden * 2 * bias.strides[0], (hidden,), (ONE,)))
    decide(low, y.name, f"{op.kind} by sequences", "one program keeps the state of a block of sequences")
    template(low, op, op.kind, y, tuple(views), tuple(op.outputs[1:]), reverse=op.attr("reverse"))


def lower_sorted(low: Lowering, op: Op) -> None:
    """sort and topk: one kernel for short rows, else runs that are merged, or by counting."""
    x = op.inputs[0]
    assert isinstance(x, str)
    view = row_major(low, x, op)
    values, indices = (low.buffers[o] for o in op.outputs)
    dim = op.attr("dim")
    assert isinstance(dim, int)
    shape = view.shape or (ONE,)
    length, lines = shape[dim], product((*shape[:dim], *shape[dim + 1 :]))
    known = int_value(length)
    plan = plan_sort(hint(low, length), bounds(length)[1], known is not None, hint(low, lines), view.dtype)
    decide(low, values.name, f"{op.kind} by {plan.way}", plan.reason)
    descending = op.attr("descending") if op.kind == "sort" else op.attr("largest")
    attrs = {"dim": dim, "shape": shape, "descending": descending}
    blocks = {"block_n": plan.block_n, "block_r": plan.block_r}
    results = (indices.name,)
    if plan.way != "merge":
        kind = "sort_rows" if plan.way == "rows" else "sort_count"
        template(low, op, kind, values, (view,), results, **blocks, **attrs)
        return
    items = low.temporary(f"{values.name}.items", DType.I64, (lines, length))
    template(low, op, "sort_rows", items, (view,), (), **blocks, **attrs)
    run = plan.block_n
    for k in range(plan.passes):
        last = k == plan.passes - 1
        target = values if last else low.temporary(f"{values.name}.items", DType.I64, (lines, length))
        template(low, op, "sort_merge", target, (view, whole(items)), results if last else (), run=run, **attrs)
        items, run = target, 2 * run


def lower_scan(low: Lowering, op: Op) -> None:
    x = op.inputs[0]
    assert isinstance(x, str)
    view, dim = row_major(low, x, op), op.attr("dim")
    assert isinstance(dim, int)
    length = view.shape[dim] if view.shape else ONE
    block = plan_scan(hint(low, length), hint(low, product(view.shape[dim + 1 :])))
    template(low, op, "scan", low.buffers[op.outputs[0]], (view,), scan=op.attr("kind"), dim=dim, block=block)


def lower_moments(low: Lowering, op: Op) -> None:
    """A program for each group, or parts of all groups."""
    m = moments.Moments(low, op)
    n, groups, each, points = (hint(low, e) for e in (m.mean.shape[0], m.groups, m.each, m.points))
    parts, reason = plan_moments(n * groups, each, points, m.last)
    decide(low, m.mean.name, f"moments in {parts} parts" if parts else "moments of whole groups", reason)
    if parts:
        moments.by_parts(m, parts)
    else:
        moments.by_group(m)


RULES: dict[str, Callable[[Lowering, Op], None]] = {
    "moments": lower_moments,
    "cat": lower_cat,
    "matmul": lower_matmul,
    "attention": lower_attention,
    **dict.fromkeys(GATES, lower_recurrent),
    "sort": lower_sorted,
    "topk": lower_sorted,
    "scan": lower_scan,
}
"""Graph op kind -> its rule on a GPU."""

__all__ = ["RULES", "GemmPlan"]
