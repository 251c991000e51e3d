"""Attention as loops, of any dtype: scores, their largest, sums of exponentials, weighted sums."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.graph import Lit, Op, Operand
from hardtack.codegen.ir.graph_infer_nn import attention_operands
from hardtack.codegen.ir.loops import Arg, Buffer
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.attention import has_codes
from hardtack.codegen.lower.builder import Lowering, NestBuilder
from hardtack.codegen.lower.views import Idx


def attention_as_reductions(low: Lowering, op: Op) -> None:
    """Scores in memory, their row maxima, the sums of their exponentials, and the weighted sum, in f64 or else f32."""
    out = low.buffers[op.outputs[0]]
    work = DType.F64 if out.dtype is DType.F64 else DType.F32
    given = attention_operands(has_codes(op), op.inputs)
    k, v = str(given.k), str(given.v)
    keys = low.graph.types[k].shape[-2]
    rows = out.shape[:-1]
    scores = low.temporary(f"{out.name}.scores", work, (*rows, keys))
    peaks = low.temporary(f"{out.name}.peaks", work, rows)
    sums = low.temporary(f"{out.name}.sums", work, rows)
    _score(low, op, scores)

    b, index = _rows(low, op, peaks)
    peak = _reduced(b, "max", b.load_buffer(scores.name, (*index, b.axis(keys, "reduce"))), work)
    unanswered = b.compute("eq", peak, Lit(-math.inf, work))
    b.store(peaks.name, index, b.compute("where", unanswered, Lit(0.0, work), peak))
    b.done()

    b, index = _rows(low, op, sums)
    total = _reduced(b, "sum", _weight(b, scores, peaks, index, b.axis(keys, "reduce")), work)
    b.store(sums.name, index, b.compute("where", b.compute("eq", total, Lit(0.0, work)), Lit(1.0, work), total))
    b.done()

    b, index = _rows(low, op, out)
    s = b.axis(keys, "reduce")
    weight = _weight(b, scores, peaks, index[:-1], s)
    row = (*index[:-3], _key_head(low, op, index[-3]), s)
    value = b.cast(_number(b, op, v, given.scales[-1:], row, index[-1]), work)
    mean = b.compute(
        "div", _reduced(b, "sum", b.compute("mul", weight, value), work), b.load_buffer(sums.name, index[:-1])
    )
    b.store(out.name, index, b.cast(mean, out.dtype))
    b.done()


def _rows(low: Lowering, op: Op, buffer: Buffer) -> tuple[NestBuilder, Idx]:
    b = NestBuilder(low, buffer.name, op.origin)
    return b, b.loop(buffer.shape, buffer.order)


def _number(b: NestBuilder, op: Op, value: str, scales: Sequence[Operand], row: Idx, column: Expr) -> Arg:
    """An element of k or v: of codes what they stand for."""
    found = b.load(value, (*row, column))
    if not scales:
        return found
    exact = b.compute("mul", b.cast(found, DType.F32), b.load(scales[0], row))
    return b.cast(exact, b.low.graph.type_of(op.inputs[0]).dtype)


def _score(low: Lowering, op: Op, scores: Buffer) -> None:
    given = attention_operands(has_codes(op), op.inputs)
    q, k = str(given.q), str(given.k)
    b, index = _rows(low, op, scores)
    *batch, h, t, s = index
    d = b.axis(low.graph.types[q].shape[-1], "reduce")
    left = b.cast(b.load(q, (*batch, h, t, d)), scores.dtype)
    row = (*batch, _key_head(low, op, h), s)
    right = b.cast(_number(b, op, k, given.scales[:1], row, d), scores.dtype)
    scale = op.float_attr("scale")
    value: Arg = _reduced(b, "sum", b.compute("mul", left, right), scores.dtype)
    value = b.compute("mul", value, Lit(scale, scores.dtype))
    never = Lit(-math.inf, scores.dtype)
    if op.bool_attr("causal"):
        value = b.compute("where", b.compute("le", b.index(s), b.index(t)), value, never)
    if given.mask is not None:
        mask = b.broadcast(given.mask, index)
        if b.dtype(mask) is DType.BOOL:
            value = b.compute("where", mask, value, never)
        else:
            value = b.compute("add", value, b.cast(mask, scores.dtype))
    b.store(scores.name, index, value)
    b.done()


def _key_head(low: Lowering, op: Op, head: Expr) -> Expr:
    """The head of k and v that query head `head` reads."""
    q, k = op.inputs[:2]
    per_key = low.graph.type_of(q).shape[-3] // low.graph.type_of(k).shape[-3]
    return head // per_key


def _weight(b: NestBuilder, scores: Buffer, peaks: Buffer, row: Idx, s: Expr) -> Arg:
    score, peak = b.load_buffer(scores.name, (*row, s)), b.load_buffer(peaks.name, row)
    return b.compute("exp", b.compute("sub", score, peak))


def _reduced(b: NestBuilder, kind: str, value: Arg, dtype: DType) -> Arg:
    """The reduction, or the value itself where there is one element."""
    return b.reduce(kind, value, dtype=dtype) if any(a.kind == "reduce" for a in b.axes) else value
